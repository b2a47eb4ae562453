#include "simulator/world/scheduler.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"

namespace fluvial::simulator {

EventId Scheduler::at(TimePoint when, Action action, std::uint32_t owner) {
  std::uint32_t index = 0;
  if (free_.empty()) {
    index = static_cast<std::uint32_t>(slots_.size());
    slots_.emplace_back();
  } else {
    index = free_.back();
    free_.pop_back();
  }
  Slot& slot = slots_[index];
  slot.action = std::move(action);
  slot.owner = owner;
  if (owner != kNobody) {
    if (owner >= owner_generations_.size()) owner_generations_.resize(owner + 1);
    slot.owner_generation = owner_generations_[owner];
  }
  slot.live = true;
  ++live_;
  heap_.push_back({std::max(when, now_), ++sequence_, index, slot.generation});
  std::push_heap(heap_.begin(), heap_.end());
  return EventId((std::uint64_t{slot.generation} << 32) | index);
}

EventId Scheduler::after(Duration delay, Action action, std::uint32_t owner) {
  return at(now_ + std::max(delay, Duration::zero()), std::move(action), owner);
}

void Scheduler::release(std::uint32_t index) {
  Slot& slot = slots_[index];
  slot.live = false;
  ++slot.generation;
  --live_;
  free_.push_back(index);
}

bool Scheduler::cancel(EventId id) {
  const auto index = static_cast<std::uint32_t>(id.value());
  if (index >= slots_.size() || !slots_[index].live || slots_[index].generation != id.value() >> 32) return false;
  const Action gone = std::move(slots_[index].action);  // destroyed last: its destructor may call back
  release(index);
  return true;
}

void Scheduler::forget(std::uint32_t owner) {
  if (owner >= owner_generations_.size()) owner_generations_.resize(owner + 1);
  ++owner_generations_[owner];
}

bool Scheduler::is_due(const Entry& entry) const {
  const Slot& slot = slots_[entry.slot];
  if (!slot.live || slot.generation != entry.generation) return false;
  return slot.owner == kNobody || owner_generations_[slot.owner] == slot.owner_generation;
}

bool Scheduler::step(TimePoint until) {
  while (!heap_.empty()) {
    const Entry entry = heap_.front();
    const bool due = is_due(entry);
    if (due && entry.when > until) break;
    std::pop_heap(heap_.begin(), heap_.end());
    heap_.pop_back();
    Slot& slot = slots_[entry.slot];
    if (!slot.live || slot.generation != entry.generation) continue;  // cancelled
    Action action = std::move(slot.action);
    release(entry.slot);
    if (!due) continue;  // its owner is gone
    FLUVIAL_CHECK(entry.when >= now_, "virtual time went back");
    now_ = entry.when;
    ++executed_;
    action();
    return true;
  }
  now_ = std::max(now_, until);
  return false;
}

}  // namespace fluvial::simulator
