#include "core/base/in_turn.h"

#include <utility>

#include "core/base/check.h"

namespace fluvial {

InTurn::InTurn(std::size_t count, std::function<Status(std::size_t)> follow)
    : follow_(std::move(follow)), done_(count) {}

Status InTurn::done(std::size_t index) {
  std::unique_lock lock(mutex_);
  FLUVIAL_CHECK(!done_.at(index), "a piece that is there twice");
  done_[index] = true;
  if (follows_) return {};
  follows_ = true;
  while (next_ < done_.size() && done_[next_]) {
    lock.unlock();
    FLUVIAL_TRY(follow_(next_));
    lock.lock();
    ++next_;
  }
  follows_ = false;
  return {};
}

}  // namespace fluvial
