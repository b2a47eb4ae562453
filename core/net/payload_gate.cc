#include "core/net/payload_gate.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

namespace fluvial::net {

PayloadGate::Ticket::~Ticket() { gate_->give_back(*this); }

bool PayloadGate::Ticket::try_take(std::size_t bytes, Again again) {
  std::vector<Again> waiting;
  {
    const std::lock_guard lock(gate_->mutex_);
    gate_->pass_time();
    const bool was_unfinished = taken_ > 0;  // what comes whole at once was in nobody's way
    if (!gate_->grant(*this, bytes)) {
      end_turn();
      gate_->fastest_waiting_ = std::min(gate_->fastest_waiting_, lane_);
      gate_->waiting_.push_back(std::move(again));
      return false;
    }
    if (!turn_) turn_ = gate_->waited_[lane_];
    // What could not all be finished may be able to now.
    if (was_unfinished && missing() == 0) waiting = gate_->take_waiting();
  }
  for (const Again& other : waiting) other();
  return true;
}

bool PayloadGate::Ticket::try_take_rest() {
  const std::lock_guard lock(gate_->mutex_);
  const std::size_t rest = missing();
  if (rest > taken_ || !gate_->waiting_.empty()) return false;
  if (std::reduce(gate_->used_.begin(), gate_->used_.end()) + rest > gate_->limits_.bytes_max / 2) return false;
  gate_->ahead_[lane_] += announced_;
  is_ahead_ = gate_->grant(*this, rest);
  if (!is_ahead_) gate_->ahead_[lane_] -= announced_;
  return is_ahead_;
}

void PayloadGate::Ticket::arrived() {
  const std::lock_guard lock(gate_->mutex_);
  end();
}

bool PayloadGate::Ticket::is_in_the_way() const {
  const std::lock_guard lock(gate_->mutex_);
  return gate_->fastest_waiting_ <= lane_;
}

void PayloadGate::Ticket::end_turn() {
  if (turn_) in_the_way_ += gate_->waited_[lane_] - *turn_;
  turn_.reset();
}

void PayloadGate::Ticket::end() {
  if (std::exchange(has_ended_, true)) return;
  gate_->pass_time();
  end_turn();
  gate_->lanes_.ended(member_, announced_, in_the_way_, gate_->looked_);
}

std::shared_ptr<PayloadGate::Ticket> PayloadGate::try_begin(std::uint64_t member, std::size_t announced, Again again) {
  const std::lock_guard lock(mutex_);
  std::size_t& begun = announced_[member];
  if (begun > 0 && begun + announced > limits_.bytes_per_member_max) {
    waiting_.push_back(std::move(again));
    return nullptr;
  }
  begun += announced;
  return std::make_shared<Ticket>(shared_from_this(), member, announced, lanes_.lane_of(member, clock_.now()));
}

std::size_t PayloadGate::bytes_used() const {
  const std::lock_guard lock(mutex_);
  return std::reduce(used_.begin(), used_.end());
}

bool PayloadGate::someone_waits() const {
  const std::lock_guard lock(mutex_);
  return fastest_waiting_ < PayloadLanes::kLanes;
}

void PayloadGate::pass_time() {
  const TimePoint now = clock_.now();
  for (std::size_t lane = fastest_waiting_; lane < waited_.size(); ++lane) waited_[lane] += now - looked_;
  looked_ = now;
}

std::vector<PayloadGate::Again> PayloadGate::take_waiting() {
  fastest_waiting_ = PayloadLanes::kLanes;
  return std::exchange(waiting_, {});
}

void PayloadGate::count(Ticket& ticket, std::size_t taken) {
  used_[ticket.lane_] = used_[ticket.lane_] - ticket.taken_ + taken;
  ticket.taken_ = taken;
  if (taken > 0 && ticket.missing() > 0) {
    unfinished_.insert(&ticket);
  } else {
    unfinished_.erase(&ticket);
  }
}

// Each lane but the first is within a bound together with those that are slower.
std::size_t PayloadGate::left_for(std::size_t lane, const ByLane& held) const {
  std::size_t left = limits_.bytes_max;
  for (std::size_t from = 0; from <= lane; ++from) {
    const std::size_t bytes_max = limits_.bytes_max - from * (limits_.bytes_max / 4);
    const std::size_t taken = std::reduce(held.begin() + static_cast<std::ptrdiff_t>(from), held.end());
    left = std::min(left, bytes_max - std::min(bytes_max, taken));
  }
  return left;
}

bool PayloadGate::grant(Ticket& ticket, std::size_t bytes) {
  const bool is_alone = std::reduce(used_.begin(), used_.end()) == ticket.taken_;
  if (!is_alone && bytes > left_for(ticket.lane_, used_)) return false;
  const std::size_t before = ticket.taken_;
  count(ticket, before + bytes);
  if (is_alone || can_all_finish(ticket.lane_)) return true;
  count(ticket, before);
  return false;
}

// Those of which all has come need no more to be finished, and those that were given their rest are not counted on. Of
// the others the one that lacks least is finished first, and what it gives back is there for the next; lane after lane,
// and slower ones than this do not matter: they wait. (That they go on sending is not the gate's: who does not is cut.)
bool PayloadGate::can_all_finish(std::size_t lane) const {
  std::vector<const Ticket*> rest(unfinished_.begin(), unfinished_.end());
  std::ranges::sort(rest, {}, [](const Ticket* ticket) { return std::tuple(ticket->lane_, ticket->missing()); });
  ByLane held = ahead_;
  for (const Ticket* ticket : rest) held[ticket->lane_] += ticket->taken_;
  for (const Ticket* ticket : rest) {
    if (ticket->lane_ > lane) break;
    if (ticket->missing() > left_for(ticket->lane_, held)) return false;
    held[ticket->lane_] -= ticket->taken_;
  }
  return true;
}

void PayloadGate::give_back(Ticket& ticket) {
  std::vector<Again> waiting;
  {
    const std::lock_guard lock(mutex_);
    ticket.end();
    count(ticket, 0);
    if (ticket.is_ahead_) ahead_[ticket.lane_] -= ticket.announced_;
    const auto begun = announced_.find(ticket.member_);
    if ((begun->second -= ticket.announced_) == 0) announced_.erase(begun);
    // All of them: one that is closing will not take its turn, and must not keep it from the others.
    waiting = take_waiting();
  }
  for (const Again& again : waiting) again();
}

}  // namespace fluvial::net
