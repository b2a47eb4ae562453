#include "coordinator/service/own_certificate.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/identity/csr.h"
#include "core/identity/token.h"
#include "core/net/deadline.h"

namespace fluvial::coordinator {
namespace {

constexpr Duration kLookMin = std::chrono::milliseconds(50);
constexpr Duration kLookMax = std::chrono::seconds(30);  // a clock that was set is noticed

void show(std::shared_ptr<identity::LiveTls>* live, std::shared_ptr<const identity::TlsContext> next) {
  if (*live) {
    (*live)->replace(std::move(next));
  } else {
    *live = identity::live(std::move(next));
  }
}

}  // namespace

Result<std::unique_ptr<OwnCertificate>> OwnCertificate::make(identity::PrivateKey key, identity::Grant grant,
                                                             std::shared_ptr<identity::LiveAuthority> authority,
                                                             WallTime now) {
  std::unique_ptr<OwnCertificate> own(new OwnCertificate(std::move(key), std::move(grant), std::move(authority)));
  FLUVIAL_TRY(own->put(now));
  return own;
}

Result<identity::Credentials> OwnCertificate::issue(const identity::CertificateAuthority& authority,
                                                    WallTime now) const {
  FLUVIAL_ASSIGN(const Buffer csr, identity::make_csr(key_));
  FLUVIAL_ASSIGN(std::vector<identity::Certificate> chain, authority.issue_chain(csr.span(), grant_, now));
  return identity::Credentials{key_, std::move(chain), authority.authorities(), 0, authority.trust()};
}

// During a rollover tokens and members that know the authority before alone come, too: it is shown to those that name
// none.
Result<std::vector<identity::Credentials>> OwnCertificate::enrolment(const identity::CertificateAuthority& authority,
                                                                     WallTime now) const {
  std::vector<identity::Credentials> shown;
  for (const identity::CertificateAuthority* one : {authority.before().get(), &authority}) {
    if (one == nullptr) continue;
    FLUVIAL_ASSIGN(identity::Credentials credentials, issue(*one, now));
    credentials.authorities = {one->chain().back()};
    shown.push_back(std::move(credentials));
  }
  return shown;
}

// All of it is made before anything is shown.
Status OwnCertificate::put(WallTime now) {
  const std::shared_ptr<const identity::CertificateAuthority> authority = authority_->current();
  FLUVIAL_ASSIGN(const identity::Credentials credentials, issue(*authority, now));
  FLUVIAL_ASSIGN(auto member, identity::TlsContext::member_server(credentials));
  FLUVIAL_ASSIGN(const std::vector<identity::Credentials> shown, enrolment(*authority, now));
  FLUVIAL_ASSIGN(auto enrol, identity::TlsContext::enrol_server(shown));
  FLUVIAL_ASSIGN(auto admin, identity::TlsContext::admin_server(credentials));
  FLUVIAL_ASSIGN(const identity::PeerIdentity self, identity::identity_of(credentials.chain.front()));
  show(&member_, std::move(member));
  show(&enrol_, std::move(enrol));
  show(&admin_, std::move(admin));
  chain_pem_ = identity::Certificate::pem_of(credentials.chain);
  life_ = {self.issued, self.not_after};
  return {};
}

Status OwnCertificate::renew(WallTime now) {
  FLUVIAL_TRY(put(now));
  renewed_();
  return {};
}

net::Awaitable<void> OwnCertificate::run(tree::Runtime& runtime) {
  wake_ = std::make_unique<net::AsyncSignal>(runtime.strand);
  unsigned failures = 0;
  while (!stopping_) {
    const WallTime now = runtime.clock.wall_now();
    // A clock that was set back makes it one of the future, which others may not accept for long.
    Duration wait = now < life_.issued ? Duration(0) : Duration(round::renew_at(life_, {}, now, 0) - now);
    if (wait <= Duration(0)) {
      const Status renewed = renew(now);
      failures = renewed.ok() ? 0 : failures + 1;
      wait = round::renewal_retry(life_, now, std::max(failures, 1U), 0);
      if (!renewed.ok()) {
        runtime.log.error("the coordinator's own certificate was not renewed; when it has ended nobody comes in",
                          {{"certificate_ends_at", identity::format_utc(life_.ends)},
                           {"reason", renewed.error().to_string()},
                           {"retry_in_s", std::chrono::duration<double>(wait).count()}});
      }
    }
    const Status slept = co_await net::with_deadline(wake_->wait(), std::clamp(wait, kLookMin, kLookMax));
    (void)slept.ok();  // it is time to look, or stopping_ is set
  }
}

void OwnCertificate::stop() {
  stopping_ = true;
  if (wake_) wake_->notify_all();
}

}  // namespace fluvial::coordinator
