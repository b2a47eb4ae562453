#include "core/round/gather.h"

namespace fluvial::round {

Gather::Gather(const std::vector<Participant>& participants) { update(participants, {}); }

std::set<SiteId> Gather::update(const std::vector<Participant>& participants, const std::set<SiteId>& gone) {
  std::set<SiteId> voided;
  const auto is_in_sum = [](const Slot& slot) { return slot.state == State::kHeld || slot.state == State::kTaking; };
  for (const SiteId site : gone) {
    const auto found = slots_.find(site);
    if (found == slots_.end()) continue;
    if (is_in_sum(found->second)) {
      found->second.gone = true;
      voided.insert(site);
    } else {
      if (found->second.state == State::kAwaited) --awaited_;
      slots_.erase(found);
    }
  }
  for (const Participant& participant : participants) {
    const auto [entry, is_new] = slots_.try_emplace(participant.site, Slot{participant, State::kAwaited, {}});
    Slot& slot = entry->second;
    if (is_new) ++awaited_;
    if (participant.weight_max < slot.participant.weight_max && is_in_sum(slot)) voided.insert(participant.site);
    slot.participant.weight_max = participant.weight_max;
    slot.participant.share = participant.share;
    if (is_new || participant.lease <= slot.participant.lease) continue;
    if (is_in_sum(slot)) voided.insert(participant.site);
    slot.gone = false;
    await_under(slot, participant.lease);
  }
  return voided;
}

std::uint32_t Gather::share(SiteId site) const {
  const auto found = slots_.find(site);
  return found == slots_.end() ? kWholeFactor : found->second.participant.share;
}

void Gather::move_lease(SiteId site, Epoch lease) {
  const auto found = slots_.find(site);
  if (found != slots_.end() && lease > found->second.participant.lease) await_under(found->second, lease);
}

// By the new way it may come after all, unless it is in, or what it sent cannot be used.
void Gather::await_under(Slot& slot, Epoch lease) {
  slot.participant.lease = lease;
  const bool declined = slot.state == State::kRefused && !drops_update(slot.error->code);
  if (slot.state == State::kMissing || declined) move(slot, State::kAwaited);
}

void Gather::next_attempt() {
  for (auto& [site, slot] : slots_) {
    const bool again = slot.state == State::kRefused && slot.error->code != Code::kConflict;
    if (slot.state == State::kMissing || again) move(slot, State::kAwaited);
  }
}

void Gather::move(Slot& slot, State to) {
  if (slot.state == State::kAwaited) --awaited_;
  if (slot.state == State::kTaking) --taking_;
  slot.state = to;
  if (to == State::kAwaited) ++awaited_;
  if (to == State::kTaking) ++taking_;
}

Status Gather::admit(SiteId site, Epoch lease, std::uint64_t weight) const {
  const std::string who = "site " + std::to_string(site.value());
  const auto found = slots_.find(site);
  if (found == slots_.end()) return Error{Code::kFailedPrecondition, who + " does not take part in this round"};
  const Slot& slot = found->second;
  if (lease != slot.participant.lease) {
    return Error{Code::kStale, who + ": lease epoch " + std::to_string(lease.value()) + ", expected " +
                                   std::to_string(slot.participant.lease.value())};
  }
  if (weight == 0 || weight > slot.participant.weight_max || weight >= kWeightLimit) {
    return Error{Code::kInvalidArgument, who + ": weight " + std::to_string(weight) + ", expected 1 to " +
                                             std::to_string(slot.participant.weight_max)};
  }
  switch (slot.state) {
    case State::kTaking:
    case State::kHeld:
    case State::kAbove: return Error{Code::kAlreadyExists, who + " is counted already"};
    case State::kRefused: return Error{Code::kFailedPrecondition, who + " was refused in this round"};
    case State::kAwaited:
    case State::kMissing: return {};
  }
  return {};
}

Status Gather::admit(const ContributorSet& contributors) const {
  for (const auto& [site, entry] : contributors.entries()) {
    FLUVIAL_TRY(admit(site, entry.lease, entry.weight));
    FLUVIAL_TRY(check_mark(entry));
  }
  return {};
}

Status Gather::check_mark(SiteId site, RoundId own) const {
  const auto found = marks_.find(site);
  if (found == marks_.end() || own > found->second) return {};
  return Error{Code::kAlreadyExists, "site " + std::to_string(site.value()) + ": what it made for round " +
                                         std::to_string(own.value()) + " was decided in an earlier round"};
}

// One that says no versions, or was admitted on the first model, is of the open round, which is above every mark.
Status Gather::check_mark(const Contribution& entry) const {
  return entry.admitted == ModelVersion() ? Status{} : check_mark(entry.site, entry.own_round({}));
}

std::vector<SiteId> Gather::without(const ContributorSet& contributors) const {
  std::vector<SiteId> sites;
  for (const auto& [site, entry] : contributors.entries()) {
    if (!admit(site, entry.lease, entry.weight).ok() || !check_mark(entry).ok()) {
      sites.push_back(site);
    }
  }
  return sites;
}

void Gather::begin_take(const ContributorSet& contributors) {
  for (const auto& [site, entry] : contributors.entries()) move(slots_.at(site), State::kTaking);
}

void Gather::finish_take(const ContributorSet& contributors) {
  for (const auto& [site, entry] : contributors.entries()) move(slots_.at(site), State::kHeld);
  const Status merged = held_.merge(contributors);
  FLUVIAL_CHECK(merged.ok(), "a contribution was taken twice");
}

void Gather::abandon_take(const ContributorSet& contributors, const Error& error) {
  for (const auto& [site, entry] : contributors.entries()) {
    Slot& slot = slots_.at(site);
    move(slot, State::kRefused);
    slot.error = error;
    slot.refused_own = entry.own_round({});
  }
}

void Gather::refuse(const Refusal& refusal) {
  const auto found = slots_.find(refusal.site);
  if (found == slots_.end()) return;
  Slot& slot = found->second;
  if (slot.state != State::kAwaited && slot.state != State::kMissing) return;
  move(slot, State::kRefused);
  slot.error = refusal.error;
  slot.refused_own = refusal.own;
}

void Gather::mark_missing(const std::vector<SiteId>& sites) {
  for (const SiteId site : sites) {
    const auto found = slots_.find(site);
    if (found != slots_.end() && found->second.state == State::kAwaited) move(found->second, State::kMissing);
  }
}

void Gather::await(SiteId site) {
  const auto found = slots_.find(site);
  if (found != slots_.end() && found->second.state == State::kMissing) move(found->second, State::kAwaited);
}

void Gather::mark_above(const std::set<SiteId>& sites) {
  for (auto& [site, slot] : slots_) {
    if (sites.contains(site)) {
      if (slot.state != State::kHeld && slot.state != State::kTaking) move(slot, State::kAbove);
    } else if (slot.state == State::kAbove) {
      move(slot, State::kAwaited);
    }
  }
}

void Gather::move_held_above() {
  for (const auto& [site, entry] : held_.entries()) move(slots_.at(site), State::kAbove);
  held_.clear();
}

void Gather::forget_held() {
  for (auto entry = slots_.begin(); entry != slots_.end();) {
    Slot& slot = entry->second;
    if (slot.state == State::kHeld || slot.state == State::kTaking) move(slot, State::kAwaited);
    if (slot.gone) {
      if (slot.state == State::kAwaited) --awaited_;
      entry = slots_.erase(entry);
    } else {
      ++entry;
    }
  }
  held_.clear();
}

std::set<SiteId> Gather::above() const {
  std::set<SiteId> sites;
  for (const auto& [site, slot] : slots_) {
    if (slot.state == State::kAbove) sites.insert(site);
  }
  return sites;
}

std::vector<Participant> Gather::participants() const {
  std::vector<Participant> all;
  for (const auto& [site, slot] : slots_) all.push_back(slot.participant);
  return all;
}

bool Gather::is_counted(SiteId site) const {
  const auto found = slots_.find(site);
  return found != slots_.end() && is_counted(found->second);
}

std::vector<SiteId> Gather::counted() const {
  std::vector<SiteId> sites;
  for (const auto& [site, slot] : slots_) {
    if (is_counted(slot)) sites.push_back(site);
  }
  return sites;
}

std::vector<SiteId> Gather::awaited() const {
  std::vector<SiteId> sites;
  for (const auto& [site, slot] : slots_) {
    if (slot.state == State::kAwaited) sites.push_back(site);
  }
  return sites;
}

std::vector<SiteId> Gather::late() const {
  std::vector<SiteId> sites;
  for (const auto& [site, slot] : slots_) {
    if (slot.state == State::kAwaited || slot.state == State::kMissing) sites.push_back(site);
  }
  return sites;
}

std::vector<Refusal> Gather::refusals() const {
  std::vector<Refusal> refusals;
  for (const auto& [site, slot] : slots_) {
    if (slot.state == State::kRefused) refusals.push_back({site, *slot.error, slot.refused_own});
  }
  return refusals;
}

}  // namespace fluvial::round
