#include "core/net/payload_gate.h"

#include <algorithm>
#include <utility>

namespace fluvial::net {

std::shared_ptr<void> PayloadGate::try_take(std::size_t bytes, std::function<void()> again) {
  const std::lock_guard lock(mutex_);
  if (used_ > 0 && bytes > bytes_max_ - std::min(used_, bytes_max_)) {
    waiting_.push_back(std::move(again));
    return nullptr;
  }
  used_ += bytes;
  return {this, [gate = shared_from_this(), bytes](void*) { gate->give_back(bytes); }};
}

std::size_t PayloadGate::bytes_used() const {
  const std::lock_guard lock(mutex_);
  return used_;
}

void PayloadGate::give_back(std::size_t bytes) {
  std::vector<std::function<void()>> waiting;
  {
    const std::lock_guard lock(mutex_);
    used_ -= bytes;
    // All of them: one that is closing will not take its turn, and must not keep it from the others.
    waiting.swap(waiting_);
  }
  for (const std::function<void()>& again : waiting) again();
}

}  // namespace fluvial::net
