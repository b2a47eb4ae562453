// Who enrols anew, and who comes with the certificate that a site had before.
#include <algorithm>
#include <mutex>

#include "core/digest/sha256.h"
#include "core/identity/seeded_key.h"
#include "simulator/roles/cast.h"
#include "simulator/roles/certificates.h"
#include "simulator/roles/coordinator.h"

namespace fluvial::simulator {
namespace {

constexpr std::uint64_t kThiefOnceIn = 6;  // sessions of a site that has enrolled anew

}  // namespace

std::pair<identity::PrivateKey, identity::PublicKey> key_number(std::size_t number) {
  static std::mutex mutex;
  static std::vector<std::pair<identity::PrivateKey, identity::PublicKey>> keys;
  const std::lock_guard lock(mutex);
  while (keys.size() <= number) {
    const std::string name = "simulated key " + std::to_string(keys.size());
    const Result<identity::PrivateKey> made = identity::seeded_key(sha256(as_byte_span(name)));
    FLUVIAL_CHECK(made.ok(), "no key could be made");
    keys.emplace_back(*made, identity::PublicKey::of(*made));
  }
  return keys[number];
}

std::string serial_of(HostId host, std::uint64_t enrolment) {
  return std::to_string(host.value()) + "-" + std::to_string(enrolment);
}

void Cast::attempt_enrolment(HostId host, store::NodeRow row) {
  const std::uint64_t enrolment = enrolled_before_[host.value()] + 1;
  const auto own = key_number(host.value() + enrolment * world_.hosts().size());
  const auto credentials = certify(host, identity(host), enrolment, own.first, world_.clock(kRoot).wall_now());
  row.certificate_serial = credentials ? credentials->chain.front().serial_hex() : serial_of(host, enrolment);
  attempted_.insert_or_assign(host, Attempted{row, own, credentials});
  const Buffer key = own.second.der();
  const WallTime ends = credentials ? credentials->chain.front().not_after() : kCertificatesEnd;
  const Digest& issuer = rollovers_.authority()->key_id();
  const ByteSpan authority = rollovers_.on() ? ByteSpan(issuer) : ByteSpan();  // none: of the first one
  if (static_cast<CoordinatorRole*>(world_.process(kRoot))->enrol(row, {key.span(), ends, authority})) {
    enrolled_anew(host);
  }
}

void Cast::enrolled_anew(HostId host) {
  auto attempted = attempted_.extract(host);
  const store::NodeRow& row = attempted.mapped().row;
  former_.insert_or_assign(host, Former{serials_[host.value()], shown_[host.value()].issued, keys_[host.value()].second,
                                        std::move(hellos_[host])});
  hellos_.erase(host);
  keys_[host.value()] = attempted.mapped().key;
  show(host, std::move(attempted.mapped().credentials), row.certificate_serial);
  weights_[host.value()] = row.weight_max;
  ++enrolled_before_[host.value()];
  revoked_.erase(host);
  checks_.folder_lost(host, identity(host).node);
  world_.lose_folder(host);
}

void Cast::journal_read(store::CoordinatorJournal& journal) {
  std::vector<HostId> recorded;
  for (const auto& [host, attempted] : attempted_) {
    const Result<std::optional<store::NodeRow>> row = journal.node(identity(host).node);
    if (row.ok() && *row && (*row)->certificate_serial == attempted.row.certificate_serial) recorded.push_back(host);
  }
  for (const HostId host : recorded) {
    checks_.rounds().enrolled(identity(host).node);
    enrolled_anew(host);
  }
}

Node::IdentityOf Cast::callers() const {
  return [this, honest = identities()](HostId host) {
    identity::PeerIdentity peer = honest(host);
    if (!thieves_.contains(host)) return peer;
    peer.not_after = kThiefsEnd;
    if (tamper_.accepts_revoked_serial()) return peer;
    const Former& former = former_.at(host);
    peer.serial_hex = former.serial;
    peer.issued = former.issued;
    peer.key = former.key;
    return peer;
  };
}

void Cast::dials(HostId site) {
  thieves_.erase(site);
  if (!former_.contains(site) || !world_.faults_on() || thefts_rng_.below(kThiefOnceIn) != 0) return;
  thieves_.insert(site);
}

void Cast::let_in(HostId parent, const identity::PeerIdentity& peer, const v1::Denials* heard) {
  if (peer.not_after != kThiefsEnd || is_malicious(parent)) return;
  bool knew = heard == nullptr;
  if (heard != nullptr) {
    v1::DenialStatement statement;
    FLUVIAL_CHECK(statement.ParseFromString(heard->statement().body()), "denials that were verified");
    knew = std::ranges::find(statement.serials(), peer.serial_hex) != statement.serials().end() ||
           std::ranges::find(statement.keys_sha256(), as_text(peer.key.id())) != statement.keys_sha256().end();
  }
  if (!knew) return;  // the word is on its way
  world_.violate("stays_revoked",
                 identity(parent).name + " let somebody in as " + peer.name + " by a certificate that is refused");
}

}  // namespace fluvial::simulator
