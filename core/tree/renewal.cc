#include "core/tree/renewal.h"

#include <algorithm>
#include <fstream>
#include <utility>

#include "core/identity/authority.h"
#include "core/identity/csr.h"
#include "core/identity/token.h"
#include "core/identity/verify.h"
#include "core/net/deadline.h"
#include "core/tree/ask.h"
#include "core/tree/process.h"
#include "core/tree/renewed.h"
#include "core/wire/mapping.h"

namespace fluvial::tree {
namespace {

constexpr Duration kRenewalLookMin = std::chrono::milliseconds(50);

using Request = v1::RenewRequest;
using Reply = Result<v1::RenewReply>;

net::Awaitable<Result<net::Frame>> next_frame(std::shared_ptr<net::Session> session, Duration deadline) {
  co_return co_await net::with_deadline(session->receive(), deadline);
}

net::Awaitable<Reply> ask_on(std::shared_ptr<net::Session> session, Request request, Duration deadline) {
  v1::Envelope asked;
  *asked.mutable_renew_request() = std::move(request);
  session->post({std::move(asked), {}});
  Result<net::Frame> answer = co_await next_frame(session, deadline);
  if (!answer.ok()) co_return answer.error();
  if (!answer->header.has_renew_reply()) {
    co_return Error{Code::kDataLoss, "the coordinator's answer is none to a renewal"};
  }
  co_return std::move(*answer->header.mutable_renew_reply());
}

net::Awaitable<Reply> greet_and_ask(std::shared_ptr<net::Session> session, v1::Envelope hello,
                                    wire::Protocols protocols, Request request, Duration deadline) {
  session->post({std::move(hello), {}});
  Result<net::Frame> welcome = co_await next_frame(session, deadline);
  if (!welcome.ok()) co_return welcome.error();
  if (!welcome->header.has_welcome()) {
    co_return Error{Code::kFailedPrecondition, "the coordinator did not answer with a Welcome"};
  }
  const Status agreed = wire::check_protocol(protocols, welcome->header.welcome(), software_name());
  if (!agreed.ok()) co_return agreed.error();
  co_return co_await ask_on(std::move(session), std::move(request), deadline);
}

round::CertificateLife life_of(const identity::PeerIdentity& self) { return {self.issued, self.not_after}; }

identity::PeerIdentity self_of(const identity::Credentials& credentials) {
  Result<identity::PeerIdentity> self = identity::identity_of(credentials.chain.front());
  FLUVIAL_CHECK(self.ok(), "the credentials were loaded as a member's");
  return std::move(*self);
}

std::vector<std::string> pins_of(const std::vector<identity::Certificate>& authorities) {
  std::vector<std::string> pins;
  for (const identity::Certificate& authority : authorities) pins.push_back(identity::pin_of(authority));
  return pins;
}

}  // namespace

net::HostPort enrol_address(const std::string& setting, const std::string& folder, const net::HostPort& coordinator) {
  if (const auto given = net::parse_host_port(setting); !setting.empty() && given.ok()) return *given;
  std::ifstream note(folder + "/" + kEnrolAddressFile);
  if (std::string line; std::getline(note, line)) {
    if (const auto noted = net::parse_host_port(line); noted.ok()) return *noted;
  }
  return {coordinator.host, kEnrolPort};
}

Duration look_every(const config::SessionLimits& limits) {
  return std::clamp<Duration>(std::chrono::milliseconds(limits.past_certificate_max_ms) / 4, kRenewalLookMin,
                              std::chrono::seconds(30));
}

Result<identity::Credentials> accept_renewal(const v1::RenewReply& reply, const identity::Credentials& before,
                                             WallTime now) {
  FLUVIAL_TRY(wire::status_from_proto(reply.code(), reply.message()));
  FLUVIAL_ASSIGN(const identity::PeerIdentity own, identity::identity_of(before.chain.front()));
  FLUVIAL_ASSIGN(std::vector<identity::Certificate> authorities,
                 identity::Certificate::authorities_from_pem(reply.ca_pem()));
  FLUVIAL_ASSIGN(std::vector<identity::Certificate> chain,
                 identity::Certificate::chain_from_pem(reply.certificate_pem()));
  FLUVIAL_ASSIGN(const identity::PeerIdentity next, identity::verify_chain(chain, authorities, now, {}));
  FLUVIAL_TRY(check_renewed(own, next));
  identity::Credentials credentials{before.key, std::move(chain), std::move(authorities), before.enrolled_before,
                                    reply.trust()};
  FLUVIAL_TRY(identity::check_credentials(credentials, "the certificate in the coordinator's answer"));
  return credentials;
}

Renewal::Renewal(Runtime& runtime, Parts parts)
    : runtime_(runtime),
      parts_(std::move(parts)),
      credentials_(std::move(parts_.credentials)),
      self_(self_of(credentials_)),
      life_(life_of(self_)),
      authorities_(std::make_shared<identity::Live<std::vector<identity::Certificate>>>(
          std::make_shared<const std::vector<identity::Certificate>>(credentials_.authorities))),
      chance_(parts_.jitter_seed),
      when_chance_(chance_.uniform()),
      not_before_(runtime.clock.now()),
      wake_(runtime.strand) {}

std::function<Result<identity::PeerIdentity>(const std::string& chain_pem)> Renewal::verifier() const {
  return [authorities = authorities_,
          clock = &runtime_.clock](const std::string& chain_pem) -> Result<identity::PeerIdentity> {
    FLUVIAL_ASSIGN(const std::vector<identity::Certificate> chain, identity::Certificate::chain_from_pem(chain_pem));
    return identity::verify_chain(chain, *authorities->current(), clock->wall_now(), {});
  };
}

net::Awaitable<Result<std::shared_ptr<net::Session>>> Renewal::dial_and_look(Dial dial, net::HostPort address,
                                                                             Role role) {
  const std::string with = self_.serial_hex;
  Result<std::shared_ptr<net::Session>> opened = co_await dial(std::move(address), role);
  const bool renewed_meanwhile = self_.serial_hex != with;
  const bool not_accepted = !opened.ok() && opened.error().code == Code::kUnauthenticated;
  if (role == Role::kCoordinator && not_accepted && !renewed_meanwhile) {
    unknown_ = refused_ = true;
    wake_.notify_all();
  }
  co_return opened;
}

Dial Renewal::watching(Dial dial) {
  return [this, dial = std::move(dial)](net::HostPort address, Role role) {
    return dial_and_look(dial, std::move(address), role);
  };
}

void Renewal::tell(std::function<void(const std::string& chain_pem, WallTime ends)> renewed,
                   std::function<void()> tick) {
  renewed_ = std::move(renewed);
  tick_ = std::move(tick);
}

void Renewal::stop() {
  stopping_ = true;
  if (session_) session_->close({Code::kCancelled, "the node is stopping"}, false);
  wake_.notify_all();
}

void Renewal::told(Duration validity, std::uint64_t trust) {
  terms_.validity = validity;
  trust_told_ = trust;
  wake_.notify_all();
}

// A coordinator that has not said that it renews is not asked, but for a certificate that is worth nothing any more, or
// a list of authorities that it is not on.
net::Awaitable<void> Renewal::run() {
  while (!stopping_) {
    tick_();
    const WallTime now = runtime_.clock.wall_now();
    const bool at_once = has_ended() || unknown_;
    const bool may_ask = terms_.validity > Duration(0) || at_once;
    terms_.trusts_others = trust_told_ && *trust_told_ != credentials_.trust;
    const WallTime when = at_once ? WallTime::min() : round::renew_at(life_, terms_, now, when_chance_);
    const Duration early = not_before_ - runtime_.clock.now();
    if (may_ask && now >= when && early <= Duration(0)) {
      const Status renewed = co_await renew();
      if (!renewed.ok() && !stopping_) failed(renewed.error());
      continue;
    }
    Duration wait = parts_.tick_max;
    if (may_ask) wait = std::min(wait, std::max(early, when > now ? Duration(when - now) : Duration(0)));
    const Status slept = co_await net::with_deadline(wake_.wait(), std::max(wait, kRenewalLookMin));
    (void)slept.ok();  // something has changed, or it is time to look
  }
}

void Renewal::failed(const Error& why) {
  ++failures_;
  const Duration wait = round::renewal_retry(life_, runtime_.clock.wall_now(), failures_, chance_.uniform());
  not_before_ = runtime_.clock.now() + wait;
  runtime_.metrics.counter("certificate_renewals_total", {{"result", "failed"}}).add();
  const telemetry::Fields fields = {{"certificate_ends_at", identity::format_utc(life_.ends)},
                                    {"reason", why.to_string()},
                                    {"retry_in_s", std::chrono::duration<double>(wait).count()}};
  if (has_ended()) {
    runtime_.log.error("the certificate has ended and was not renewed; without another one no parent lets this node in",
                       fields);
  } else {
    runtime_.log.warn("the certificate was not renewed; it is still good, and renewed later", fields);
  }
}

// On a session of its own as long as the certificate is good there, by this clock and by the coordinator's word.
net::Awaitable<Status> Renewal::renew() {
  Result<Buffer> csr = identity::make_csr(credentials_.key);
  if (!csr.ok()) co_return csr.error();
  Request request;
  request.set_csr_der(std::string(as_text(csr->span())));
  request.set_trust(credentials_.trust);
  unknown_ = false;
  const bool by_enrolment = has_ended() || std::exchange(refused_, false);
  if (by_enrolment) request.set_certificate_pem(identity::Certificate::pem_of(credentials_.chain));
  Reply reply =
      by_enrolment ? co_await ask_enrolment(std::move(request)) : co_await ask_coordinator(std::move(request));
  session_.reset();
  if (!reply.ok()) {
    refused_ = !by_enrolment && reply.error().code == Code::kUnauthenticated;
    co_return reply.error();
  }
  Result<identity::Credentials> next = accept_renewal(*reply, credentials_, runtime_.clock.wall_now());
  if (!next.ok()) co_return next.error();
  co_return co_await take(std::move(*next));
}

net::Awaitable<Reply> Renewal::ask_coordinator(Request request) {
  Result<std::shared_ptr<net::Session>> opened = co_await parts_.dial(parts_.coordinator, Role::kCoordinator);
  if (!opened.ok()) co_return opened.error();
  session_ = *opened;
  if (stopping_) session_->close({Code::kCancelled, "the node is stopping"}, false);
  v1::Envelope message;
  v1::Hello& hello = *message.mutable_hello();
  hello.set_protocol_min(parts_.protocols.oldest);
  hello.set_protocol_max(parts_.protocols.newest);
  hello.set_software(software_name());
  Reply reply =
      co_await run_on(session_->executor(), greet_and_ask(session_, std::move(message), parts_.protocols,
                                                          std::move(request), runtime_.session.handshake_deadline));
  if (session_) session_->close({Code::kCancelled, "renewed"}, true);
  co_return reply;
}

net::Awaitable<Result<std::shared_ptr<net::Session>>> Renewal::reach_enrolment() {
  if (parts_.dial_enrolment) co_return co_await parts_.dial_enrolment();
  const auto tls = identity::TlsContext::enrol_client(pins_of(credentials_.authorities));
  if (!tls.ok()) co_return tls.error();
  co_return co_await net::connect(runtime_.io, parts_.enrolment.host, parts_.enrolment.port, *tls, runtime_.session,
                                  runtime_.hooks);
}

net::Awaitable<Reply> Renewal::ask_enrolment(Request request) {
  Result<std::shared_ptr<net::Session>> opened = co_await reach_enrolment();
  if (!opened.ok()) co_return opened.error();
  session_ = *opened;
  if (stopping_) session_->close({Code::kCancelled, "the node is stopping"}, false);
  Reply reply =
      co_await run_on(session_->executor(), ask_on(session_, std::move(request), runtime_.session.handshake_deadline));
  if (session_) session_->close({Code::kCancelled, "renewed"}, true);
  co_return reply;
}

// What cannot be used is not saved.
net::Awaitable<Status> Renewal::save_and_use(identity::Credentials next) {
  if (parts_.take) co_return co_await runtime_.pool.run([&] { return parts_.take(next); });
  auto client = identity::TlsContext::member_client(next);
  if (!client.ok()) co_return client.error();
  std::shared_ptr<const identity::TlsContext> server;
  if (parts_.server) {
    auto made = identity::TlsContext::member_server(next);
    if (!made.ok()) co_return made.error();
    server = std::move(*made);
  }
  const Status saved = co_await runtime_.pool.run([&] { return identity::save_credentials(next, parts_.folder); });
  if (!saved.ok()) co_return saved;
  parts_.client->replace(std::move(*client));
  if (server) parts_.server->replace(std::move(server));
  co_return Status{};
}

net::Awaitable<Status> Renewal::take(identity::Credentials next) {
  const Status taken = co_await save_and_use(next);
  if (!taken.ok()) co_return taken;
  authorities_->replace(std::make_shared<const std::vector<identity::Certificate>>(next.authorities));
  credentials_ = std::move(next);
  self_ = self_of(credentials_);
  life_ = life_of(self_);
  trust_told_ = credentials_.trust;
  failures_ = 0;
  when_chance_ = chance_.uniform();
  // However the coordinator answers, it is not asked without end.
  not_before_ = runtime_.clock.now() + round::renewal_retry(life_, runtime_.clock.wall_now(), 1, chance_.uniform());
  runtime_.metrics.counter("certificate_renewals_total", {{"result", "ok"}}).add();
  runtime_.metrics.gauge("certificate_expiry_timestamp_seconds")
      .set(std::chrono::duration<double>(life_.ends.time_since_epoch()).count());
  runtime_.log.info("certificate renewed",
                    {{"serial", self_.serial_hex}, {"certificate_ends_at", identity::format_utc(life_.ends)}});
  renewed_(identity::Certificate::pem_of(credentials_.chain), life_.ends);
  co_return Status{};
}

}  // namespace fluvial::tree
