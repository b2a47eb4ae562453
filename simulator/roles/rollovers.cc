#include "simulator/roles/rollovers.h"

#include <algorithm>
#include <utility>

#include "core/identity/token.h"
#include "core/identity/verify.h"
#include "simulator/roles/authority_disk.h"
#include "simulator/roles/cast.h"
#include "simulator/roles/certificates.h"

namespace fluvial::simulator {
namespace {

using coordinator::RolloverPhase;
using identity::Certificate;
using store::AuthorityState;

constexpr double kUndone = 0.25;  // of the rollovers that have begun, at each step

bool rolls_over(const Scenario& scenario) {
  const Faults& faults = scenario.faults;
  return !scenario.workload.sized && faults.certificates.life_s > 0 &&
         faults.certificates.rollover_steps_per_minute > 0 && faults.upkeep.restores_per_minute <= 0;
}

bool has(const std::vector<Certificate>& authorities, const std::string& pin) {
  return std::ranges::any_of(authorities, [&](const Certificate& one) { return identity::pin_of(one) == pin; });
}

}  // namespace

Rollovers::Rollovers(Cast& cast)
    : cast_(cast),
      world_(cast.world()),
      on_(rolls_over(cast.scenario())),
      rng_(cast.world().chance().stream("rollovers")),
      authority_(simulated_authority()),
      issuing_(authority_->pin()) {}

std::shared_ptr<coordinator::AuthorityFolder> Rollovers::folder(store::FileSystem& files) {
  return std::make_shared<AuthorityDisk>(files, [this] { return ++made_; });
}

// With the last step's --force only those are left behind who can be helped: by the enrolment port before the end, by a
// new token after it.
bool Rollovers::may_force(const coordinator::AuthorityView& view) const {
  const bool ends = view.phase == RolloverPhase::kIssuing;
  const std::vector<std::string>& names = ends ? view.relying : view.without;
  return !names.empty() && std::ranges::all_of(world_.hosts(), [&](const Host& host) {
    if (std::ranges::find(names, cast_.identity(host.id).name) == names.end()) return true;
    return cast_.ends(host.id) && (!ends || cast_.can_enrol_anew(host.id));
  });
}

Rollovers::Wish Rollovers::draw(const coordinator::AuthorityView& view) {
  Wish wish;
  wish.undo = view.phase == RolloverPhase::kBegun && happens(rng_, kUndone);
  const bool force = happens(rng_, cast_.scenario().faults.certificates.forced);
  wish.force = force && !wish.undo && may_force(view);
  return wish;
}

void Rollovers::journal_says(const std::vector<store::AuthorityRow>& rows,
                             std::shared_ptr<const identity::CertificateAuthority> authority) {
  authority_ = std::move(authority);
  Certificates trusted;
  bool drops = false;
  for (const store::AuthorityRow& row : rows) {
    const auto chain = Certificate::chain_from_pem(row.chain);
    FLUVIAL_CHECK(chain.ok(), "an authority of our own");
    const Certificate& root = chain->back();
    if (row.state != AuthorityState::kGone) {
      trusted.push_back(root);
      if (row.state == AuthorityState::kIssuing) issues_now(root);
    } else if (!has(gone_, identity::pin_of(root))) {
      gone_.push_back(root);
      drops = true;
    }
  }
  if (drops) no_more_trusted(trusted);
}

// Everybody has heard of it, unless somebody would not wait.
void Rollovers::issues_now(const Certificate& root) {
  const std::string pin = identity::pin_of(root);
  if (pin == issuing_) return;
  issuing_ = pin;
  issue_forced_ |= forced_;
  if (forced_) return;
  for (const Host& host : world_.hosts()) {
    if (host.id == kRoot || !cast_.is_in_order(host.id) || stranded_.contains(host.id)) continue;
    if (has(cast_.credentials(host.id).authorities, pin)) continue;
    world_.violate("rollover_waits", cast_.identity(host.id).name + " has not heard of the authority that issues now");
  }
}

void Rollovers::no_more_trusted(const Certificates& trusted) {
  for (const Host& host : world_.hosts()) {
    if (host.id == kRoot || !cast_.ends(host.id) || stranded_.contains(host.id)) continue;
    if (identity::root_of(cast_.credentials(host.id).chain, trusted).ok()) continue;
    if (forced_ || !cast_.is_in_order(host.id)) {
      stranded_.insert(host.id);
    } else {
      world_.violate("rollover_waits", cast_.identity(host.id).name + " has a certificate of an authority that is " +
                                           "trusted no more, and nobody forced that");
    }
  }
}

void Rollovers::showed(HostId host, const identity::Credentials& credentials) {
  if (!on_) return;
  chains_[credentials.chain.front().serial_hex()] = credentials.chain;
  if (identity::root_of(credentials.chain, authority_->authorities()).ok()) stranded_.erase(host);
}

// One of the version before is of the first authority.
bool Rollovers::leads_to(const identity::PeerIdentity& peer, const Certificates& authorities) const {
  const auto chain = chains_.find(peer.serial_hex);
  if (chain == chains_.end()) return has(authorities, simulated_authority()->pin());
  return identity::root_of(chain->second, authorities).ok();
}

Rollovers::Certificates Rollovers::trusted_at(HostId host) const {
  if (host != kRoot) {
    return cast_.ends(host) ? cast_.credentials(host).authorities : simulated_authority()->authorities();
  }
  Certificates trusted = authority_->authorities();
  if (cast_.tamper().trusts_the_old_authority()) trusted.insert(trusted.end(), gone_.begin(), gone_.end());
  return trusted;
}

// It did all right, and this is the certificate that it has now.
bool Rollovers::must_get_in(const identity::PeerIdentity& peer) const {
  return std::ranges::any_of(world_.hosts(), [&](const Host& host) {
    return cast_.is_in_order(host.id) && cast_.shows(host.id, peer) && !stranded_.contains(host.id);
  });
}

Status Rollovers::accepts(HostId host, const identity::PeerIdentity& peer) const {
  if (!on_ || leads_to(peer, trusted_at(host))) return {};
  const bool knows_all = host == kRoot || (cast_.is_in_order(host) && !stranded_.contains(host) && !issue_forced_);
  if (knows_all && must_get_in(peer)) {
    world_.violate("rollover_keeps_in", cast_.identity(host).name + " does not trust the certificate of " + peer.name);
  }
  return Error{Code::kUnauthenticated,
               "the certificate is of an authority that " + cast_.identity(host).name + " does not trust"};
}

void Rollovers::let_past(const identity::PeerIdentity& peer) const {
  if (!leads_to(peer, gone_)) return;
  world_.violate("trusted_no_more",
                 "the coordinator let in " + peer.name + " by a certificate of an authority that is trusted no more");
}

std::function<void(SessionId)> Rollovers::enrolment() {
  if (!on_) return {};
  return [this](SessionId session) { at_enrolment_.insert(session); };
}

bool Rollovers::finds_enrolment(HostId member) const {
  if (!on_) return true;
  const Certificates& known = cast_.credentials(member).authorities;
  return has(known, authority_->pin()) || (authority_->before() != nullptr && has(known, authority_->before()->pin()));
}

}  // namespace fluvial::simulator
