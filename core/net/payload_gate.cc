#include "core/net/payload_gate.h"

#include <algorithm>
#include <utility>

namespace fluvial::net {

PayloadGate::Ticket::~Ticket() { gate_->give_back(*this); }

bool PayloadGate::Ticket::try_take(std::size_t bytes, Again again) {
  std::vector<Again> waiting;
  {
    const std::lock_guard lock(gate_->mutex_);
    const bool was_unfinished = taken_ > 0;  // what comes whole at once was in nobody's way
    if (!gate_->grant(*this, bytes)) {
      gate_->waiting_.push_back(std::move(again));
      return false;
    }
    // What could not all be finished may be able to now.
    if (was_unfinished && missing() == 0) waiting.swap(gate_->waiting_);
  }
  for (const Again& other : waiting) other();
  return true;
}

bool PayloadGate::Ticket::try_take_rest() {
  const std::lock_guard lock(gate_->mutex_);
  const std::size_t rest = missing();
  if (rest > taken_ || gate_->used_ + rest > gate_->limits_.bytes_max / 2 || !gate_->waiting_.empty()) return false;
  gate_->ahead_ += announced_;
  is_ahead_ = gate_->grant(*this, rest);
  if (!is_ahead_) gate_->ahead_ -= announced_;
  return is_ahead_;
}

std::shared_ptr<PayloadGate::Ticket> PayloadGate::try_begin(std::uint64_t member, std::size_t announced, Again again) {
  const std::lock_guard lock(mutex_);
  std::size_t& begun = announced_[member];
  if (begun > 0 && begun + announced > limits_.bytes_per_member_max) {
    waiting_.push_back(std::move(again));
    return nullptr;
  }
  begun += announced;
  return std::make_shared<Ticket>(shared_from_this(), member, announced);
}

std::size_t PayloadGate::bytes_used() const {
  const std::lock_guard lock(mutex_);
  return used_;
}

bool PayloadGate::someone_waits() const {
  const std::lock_guard lock(mutex_);
  return !waiting_.empty();
}

void PayloadGate::count(Ticket& ticket, std::size_t taken) {
  used_ = used_ - ticket.taken_ + taken;
  ticket.taken_ = taken;
  if (taken > 0 && ticket.missing() > 0) {
    unfinished_.insert(&ticket);
  } else {
    unfinished_.erase(&ticket);
  }
}

bool PayloadGate::grant(Ticket& ticket, std::size_t bytes) {
  const bool is_alone = used_ == ticket.taken_;
  if (!is_alone && used_ + bytes > limits_.bytes_max) return false;
  const std::size_t before = ticket.taken_;
  count(ticket, before + bytes);
  if (is_alone || can_all_finish()) return true;
  count(ticket, before);
  return false;
}

// Those of which all has come need no more to be finished, and those that were given their rest are not counted on. Of
// the others the one that lacks least is finished first, and what it gives back is there for the next. (That these go
// on sending is not the gate's: who does not is cut.)
bool PayloadGate::can_all_finish() const {
  std::vector<const Ticket*> rest(unfinished_.begin(), unfinished_.end());
  std::size_t taken = ahead_;
  for (const Ticket* ticket : rest) taken += ticket->taken_;
  std::size_t left = limits_.bytes_max - std::min(taken, limits_.bytes_max);
  std::ranges::sort(rest, {}, [](const Ticket* ticket) { return ticket->missing(); });
  for (const Ticket* ticket : rest) {
    if (ticket->missing() > left) return false;
    left += ticket->taken_;
  }
  return true;
}

void PayloadGate::give_back(Ticket& ticket) {
  std::vector<Again> waiting;
  {
    const std::lock_guard lock(mutex_);
    count(ticket, 0);
    if (ticket.is_ahead_) ahead_ -= ticket.announced_;
    const auto begun = announced_.find(ticket.member_);
    if ((begun->second -= ticket.announced_) == 0) announced_.erase(begun);
    // All of them: one that is closing will not take its turn, and must not keep it from the others.
    waiting.swap(waiting_);
  }
  for (const Again& again : waiting) again();
}

}  // namespace fluvial::net
