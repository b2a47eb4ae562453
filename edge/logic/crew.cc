#include "edge/logic/crew.h"

#include <algorithm>
#include <utility>

namespace fluvial::edge {

void Crew::attached(MemberId id, CrewMember member) {
  members_[id] = State{std::move(member)};
  refresh();
}

void Crew::detached(MemberId id) { members_.erase(id); }

void Crew::took(MemberId id) {
  if (const auto found = members_.find(id); found != members_.end()) found->second.busy = true;
}

void Crew::answered(MemberId id) {
  if (const auto found = members_.find(id); found != members_.end()) found->second.busy = found->second.overdue = false;
  refresh();
}

void Crew::gave_up() {
  for (auto& [id, state] : members_) state.overdue = state.busy;
}

void Crew::went_short() { short_handed_ = responsive() < workers_; }

void Crew::refresh() {
  if (responsive() >= workers_) short_handed_ = false;
}

template <typename Keep>
std::vector<Unit> Crew::units(Keep keep) const {
  struct Gathered {
    Unit unit;
    std::map<std::uint32_t, MemberId> by_rank;
    std::uint32_t ranks = 1;
  };
  std::map<std::pair<std::string, std::uint64_t>, Gathered> gathered;  // by name, then by who came first
  for (const auto& [id, state] : members_) {
    if (!keep(state)) continue;
    const CrewMember& member = state.member;
    const bool alone = member.group.empty();
    Gathered& one = gathered[{alone ? member.name : member.group, alone ? id.value() : 0}];
    one.unit.name = alone ? member.name : member.group;
    one.ranks = member.ranks;
    one.by_rank[member.rank] = id;
  }
  std::vector<Unit> complete;
  for (auto& [key, one] : gathered) {
    if (one.by_rank.size() != one.ranks) continue;
    for (const auto& [rank, id] : one.by_rank) one.unit.members.push_back(id);
    complete.push_back(std::move(one.unit));
  }
  return complete;
}

std::vector<Unit> Crew::free_units() const {
  return units([](const State& state) { return !state.busy; });
}

std::size_t Crew::responsive() const {
  return units([](const State& state) { return !state.overdue; }).size();
}

bool Crew::may_start(round::MissingWorkers missing, bool waited) const {
  const std::size_t free = free_units().size();
  if (free >= workers_) return true;
  if (missing == round::MissingWorkers::kDecline || free == 0) return false;
  return waited || (short_handed_ && free == responsive());
}

Ruling judge(std::span<const SlotState> slots, round::MissingWorkers missing, bool spare) {
  const auto count = [&](SlotState wanted) { return std::ranges::count(slots, wanted); };
  if (count(SlotState::kDone) == std::ssize(slots)) return Ruling::kGo;
  if (missing == round::MissingWorkers::kDecline) {
    return count(SlotState::kFailed) > 0 || (count(SlotState::kOpen) > 0 && !spare) ? Ruling::kFail : Ruling::kWait;
  }
  if (count(SlotState::kWorking) > 0 || (count(SlotState::kOpen) > 0 && spare)) return Ruling::kWait;
  if (count(SlotState::kDone) > 0) return Ruling::kGo;
  return count(SlotState::kFailed) > 0 ? Ruling::kFail : Ruling::kWait;  // somebody may still attach
}

}  // namespace fluvial::edge
