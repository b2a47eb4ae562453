// Certificates that end: who has which, what happens to those on their way, and who must not go on with one.
#include <algorithm>
#include <deque>
#include <mutex>

#include "core/digest/sha256.h"
#include "core/identity/authority.h"
#include "core/identity/csr.h"
#include "core/identity/seeded_key.h"
#include "simulator/roles/cast.h"
#include "simulator/roles/certificates.h"

namespace fluvial::simulator {
namespace {

constexpr WallTime kFounded = std::chrono::sys_days(std::chrono::year(2023) / 1 / 1);

identity::Issuer make_issuer(std::size_t number) {
  const std::string name = "simulated authority" + (number == 0 ? "" : " " + std::to_string(number));
  auto key = identity::seeded_key(sha256(as_byte_span(name)));
  FLUVIAL_CHECK(key.ok(), "no key could be made");
  auto issuer = identity::make_issuer(std::move(*key), "simulated", kFounded, std::chrono::days(20 * 365));
  FLUVIAL_CHECK(issuer.ok(), "no authority could be made");
  return std::move(*issuer);
}

}  // namespace

// Ed25519: signatures, and so the times of frames, follow from the seed.
const identity::Issuer& simulated_issuer(std::size_t number) {
  static std::mutex mutex;
  static std::deque<identity::Issuer> issuers;
  const std::lock_guard lock(mutex);
  while (issuers.size() <= number) issuers.push_back(make_issuer(issuers.size()));
  return issuers[number];
}

std::shared_ptr<const identity::CertificateAuthority> simulated_authority() {
  static const auto authority =
      std::make_shared<const identity::CertificateAuthority>(identity::CertificateAuthority::of(simulated_issuer(0)));
  return authority;
}

void Cast::draw_certificates() {
  const Faults::Certificates& faults = scenario().faults.certificates;
  if (sized() || faults.life_s <= 0) return;
  life_ = std::chrono::seconds(std::max<std::int64_t>(1, static_cast<std::int64_t>(faults.life_s)));
  Rng rng = world_.chance().stream("forgetful");
  for (const Host& host : world_.hosts()) {
    if (happens(rng, faults.forgetful_fraction) && host.id != kRoot) forgetful_.insert(host.id);
  }
}

// A member of the version before does not renew: its certificate is one of that version's.
std::optional<identity::Credentials> Cast::certify(HostId host, const Identity& member, std::uint64_t enrolment,
                                                   const identity::PrivateKey& key, WallTime now) const {
  if (life_ == std::chrono::seconds(0) || is_older(host)) return std::nullopt;
  const auto& authority = rollovers_.authority();
  const auto csr = identity::make_csr(key);
  FLUVIAL_CHECK(csr.ok(), "no request could be made");
  const auto serial = identity::serial_of(sha256(as_byte_span(serial_of(host, enrolment))), csr->span());
  FLUVIAL_CHECK(serial.ok(), "a request of our own");
  const identity::Grant grant{{member.role, member.node, member.name}, life_, {}, {}, *serial};
  auto chain = authority->issue_chain(csr->span(), grant, std::chrono::floor<std::chrono::seconds>(now));
  FLUVIAL_CHECK(chain.ok(), "no certificate could be issued");
  return identity::Credentials{key, std::move(*chain), authority->authorities(), 0, authority->trust()};
}

void Cast::show(HostId host, std::optional<identity::Credentials> credentials, const std::string& serial) {
  const Identity& own = identity(host);
  serials_.at(host.value()) = credentials ? credentials->chain.front().serial_hex() : serial;
  identity::PeerIdentity shown{.role = own.role,
                               .node = own.node,
                               .name = own.name,
                               .serial_hex = serials_.at(host.value()),
                               .not_after = kCertificatesEnd,
                               .key = keys_.at(host.value()).second};
  if (credentials) {
    const auto certified = identity::identity_of(credentials->chain.front());
    FLUVIAL_CHECK(certified.ok(), "a certificate of our own");
    shown.not_after = certified->not_after;
    shown.issued = certified->issued;
    rollovers_.showed(host, *credentials);
  }
  shown_.at(host.value()) = std::move(shown);
  credentials_.at(host.value()) = std::move(credentials);
}

void Cast::took(HostId host, const identity::Credentials& next) { show(host, next, ""); }

// Of a serial of its own each time.
void Cast::certify_root(WallTime now) {
  show(kRoot, certify(kRoot, identity(kRoot), ++root_certificates_, key(kRoot), now), "");
}

std::optional<Duration> Cast::renewal_takes() {
  const Faults::Certificates& faults = scenario().faults.certificates;
  if (!world_.faults_on()) return Duration(0);
  if (happens(renewals_rng_, faults.lost)) return std::nullopt;
  return happens(renewals_rng_, faults.late) ? between(renewals_rng_, Duration(0), Duration(life_)) : Duration(0);
}

void Cast::shut_out(const identity::PeerIdentity& peer) {
  for (const Host& host : world_.hosts()) {
    if (!ends(host.id) || shown_[host.id.value()] != peer) continue;
    if (revoked_.contains(host.id) || is_dishonest(peer.node) || attempted_.contains(host.id)) continue;
    world_.violate(
        "renewal_keeps_in",
        identity(host.id).name + " is refused with the certificate that it has, and did nothing but renew it");
  }
}

WallTime Cast::certificate_end(NodeId node) const {
  WallTime last = WallTime::min();
  for (const Host& host : world_.hosts()) {
    if (identity(host.id).node == node) last = std::max(last, shown_[host.id.value()].not_after);
  }
  return last;
}

void Cast::looked_at(HostId parent, const std::map<NodeId, tree::Child>& children, Duration interval) {
  for (const auto& [node, child] : children) {
    if (child.session->member().not_after != kThiefsEnd) contributes(parent, node, interval);
  }
}

// Whoever has let it end is nobody's child any more.
void Cast::contributes(HostId parent, NodeId site, Duration interval) {
  if (life_ == std::chrono::seconds(0) || is_malicious(parent)) return;
  const WallTime ended = certificate_end(site);
  if (world_.clock(parent).wall_now() - ended <= past_certificate_max() + 2 * interval) return;
  world_.violate("certificates_end", "node " + std::to_string(site.value()) + " is a child of " +
                                         identity(parent).name + " long after its certificate has ended");
}

}  // namespace fluvial::simulator
