#include "core/tree/overtaken_models.h"

#include <algorithm>
#include <utility>

namespace fluvial::tree {

void OvertakenModels::add(std::shared_ptr<ModelSlot> slot, TimePoint now) {
  forget(now);
  all_.push_back({slot, slot, now + kGiven});
  while (all_.size() > kMost) {
    if (const auto oldest = all_.front().slot.lock()) oldest->give_up();
    all_.pop_front();
  }
}

std::shared_ptr<ModelSlot> OvertakenModels::find(const round::ModelRef& ref, TimePoint now) {
  forget(now);
  const auto found = std::ranges::find_if(all_, [&](const One& one) { return one.given && one.given->is_called(ref); });
  return found == all_.end() ? nullptr : found->given;
}

void OvertakenModels::forget(TimePoint now) {
  for (One& one : all_) {
    if (now >= one.until) one.given.reset();
  }
  std::erase_if(all_, [](const One& one) { return one.slot.expired(); });
}

void OvertakenModels::clear() {
  for (const One& one : all_) {
    if (const auto slot = one.slot.lock()) slot->give_up();
  }
  all_.clear();
}

std::size_t OvertakenModels::alive() const {
  return static_cast<std::size_t>(std::ranges::count_if(all_, [](const One& one) { return !one.slot.expired(); }));
}

}  // namespace fluvial::tree
