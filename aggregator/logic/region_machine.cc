#include "aggregator/logic/region_machine.h"

#include <algorithm>
#include <utility>

namespace fluvial::aggregator {

Effects RegionMachine::opened(Opening opening, TimePoint now) {
  Effects out;
  const bool same_round = open_ && open_->run == opening.run && open_->round == opening.round;
  if (!same_round) {
    out = closed();
    gather_ = round::Gather(opening.participants);
    out.push_back(ResetSum{opening.scale_bits});
  } else {
    gather_.extend(opening.participants);
  }
  open_ = std::move(opening);
  reported_ = false;
  reconcile(open_->counted, out);
  out.push_back(OpenRound{});
  out.push_back(SetTimer{open_->deadline});
  if (sent_) {
    send(out);  // it was lost on its way, or the attempt is a new one
  } else {
    try_close(now, out);
  }
  return out;
}

// Brings what this node holds in line with what the parent's side holds.
void RegionMachine::reconcile(const std::set<SiteId>& counted, Effects& out) {
  const auto& held = gather_.held().entries();
  const auto in_counted =
      std::count_if(held.begin(), held.end(), [&](const auto& e) { return counted.contains(e.first); });
  if (sent_ && !held.empty() && in_counted == static_cast<std::ptrdiff_t>(held.size())) {
    gather_.move_held_above();  // the receipt was lost, not the partial
    out.push_back(ResetSum{open_->scale_bits});
    release(out);
  } else if (in_counted > 0) {
    // A sum cannot be taken apart: give it up; its sites that are not counted send again.
    gather_.forget_held();
    for (const auto& [arrival, contributors] : taking_)
      out.push_back(Drop{arrival, {Code::kUnavailable, "send again"}});
    taking_.clear();
    queued_.clear();
    sent_.reset();
    out.push_back(ResetSum{open_->scale_bits});
  }
  gather_.mark_above(counted);
}

// The partial on its way was answered: what waited behind it goes into the sum.
void RegionMachine::release(Effects& out) {
  sent_.reset();
  for (const ArrivalId arrival : queued_) out.push_back(Take{arrival});
  queued_.clear();
}

Status RegionMachine::admit(SiteId site, Epoch lease, std::uint64_t weight) const {
  if (!open_) return Error{Code::kStale, "no round is open"};
  return gather_.admit(site, lease, weight);
}

Status RegionMachine::admit(AttemptId attempt, Epoch epoch, const round::ContributorSet& partial) const {
  if (!open_ || attempt != open_->attempt || epoch != open_->epoch) {
    return Error{Code::kStale, "attempt " + std::to_string(attempt.value()) + " of epoch " +
                                   std::to_string(epoch.value()) + " is not the open one"};
  }
  return gather_.admit(partial);
}

Effects RegionMachine::arrived(ArrivalId arrival, const round::Arrival& what, TimePoint now) {
  Effects out;
  const Status admitted = open_ ? gather_.admit(what.contributors) : Error{Code::kStale, "the round is closed"};
  if (!admitted.ok()) {
    out.push_back(Drop{arrival, admitted.error()});
    return out;
  }
  for (const round::Refusal& refusal : what.refusals) {
    gather_.refuse(refusal);
    unreported_.push_back(refusal);
  }
  gather_.mark_missing(what.missing);
  gather_.begin_take(what.contributors);
  taking_.emplace(arrival, what.contributors);
  if (sent_) {
    queued_.push_back(arrival);
  } else {
    out.push_back(Take{arrival});
  }
  try_close(now, out);
  return out;
}

Effects RegionMachine::taken(ArrivalId arrival, const round::ContributorSet& with_probes, TimePoint now) {
  Effects out;
  if (taking_.erase(arrival) == 0) return out;
  gather_.finish_take(with_probes);
  try_close(now, out);
  return out;
}

Effects RegionMachine::take_failed(ArrivalId arrival, const Error& error, TimePoint now) {
  Effects out;
  const auto found = taking_.find(arrival);
  if (found == taking_.end()) return out;
  gather_.abandon_take(found->second, error);
  for (const auto& [site, entry] : found->second.entries()) unreported_.push_back({site, error});
  taking_.erase(found);
  out.push_back(Drop{arrival, error});
  try_close(now, out);
  return out;
}

Effects RegionMachine::refused(const round::Refusal& refusal, TimePoint now) {
  Effects out;
  if (!open_ || !gather_.is_participant(refusal.site)) return out;
  gather_.refuse(refusal);
  unreported_.push_back(refusal);
  try_close(now, out);
  return out;
}

Effects RegionMachine::tick(TimePoint now) {
  Effects out;
  try_close(now, out);
  return out;
}

void RegionMachine::try_close(TimePoint now, Effects& out) {
  if (!open_ || sent_ || !gather_.quiet()) return;
  if (!gather_.settled() && now < open_->deadline) return;
  if (gather_.held().empty() && unreported_.empty() && reported_) return;
  sent_ = SendPartial{0, gather_.held(), std::exchange(unreported_, {}), {}};
  send(out);
}

void RegionMachine::send(Effects& out) {
  sent_->sequence = ++sequence_;
  sent_->missing = gather_.awaited();
  reported_ = true;
  out.push_back(*sent_);
}

Effects RegionMachine::receipt(std::uint64_t sequence, const Status& status, const std::vector<SiteId>& overlap,
                               TimePoint now) {
  Effects out;
  if (!open_ || !sent_ || sent_->sequence != sequence) return out;
  if (status.ok()) {
    gather_.move_held_above();
    out.push_back(ResetSum{open_->scale_bits});
    release(out);
    try_close(now, out);
    return out;
  }
  if (status.error().code == Code::kStale || status.error().code == Code::kUnavailable)
    return out;  // an Opening follows
  // Refused for what it holds: give the sum up. Whom the parent holds is done; the others send again.
  std::set<SiteId> above = gather_.above();
  above.insert(overlap.begin(), overlap.end());
  const std::deque<ArrivalId> waiting = std::exchange(queued_, {});
  std::map<ArrivalId, round::ContributorSet> again = std::exchange(taking_, {});
  gather_.forget_held();
  gather_.mark_above(above);
  sent_.reset();
  out.push_back(ResetSum{open_->scale_bits});
  for (const ArrivalId arrival : waiting) {
    if (const Status admitted = gather_.admit(again.at(arrival)); !admitted.ok()) {
      out.push_back(Drop{arrival, admitted.error()});
      continue;
    }
    gather_.begin_take(again.at(arrival));
    taking_.emplace(arrival, std::move(again.at(arrival)));
    out.push_back(Take{arrival});
  }
  if (!overlap.empty()) out.push_back(OpenRound{});
  return out;
}

Effects RegionMachine::closed() {
  Effects out;
  for (const auto& [arrival, contributors] : taking_)
    out.push_back(Drop{arrival, {Code::kStale, "the round is closed"}});
  taking_.clear();
  queued_.clear();
  unreported_.clear();
  sent_.reset();
  open_.reset();
  gather_ = {};
  reported_ = false;
  return out;
}

}  // namespace fluvial::aggregator
