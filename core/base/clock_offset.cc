#include "core/base/clock_offset.h"

#include <algorithm>

#include "core/base/clock_limits.h"

namespace fluvial {
namespace {

bool is_near(TimePoint time) {
  return time.time_since_epoch() >= -kClockFarthest && time.time_since_epoch() <= kClockFarthest;
}

bool is_usable(const ClockSample& sample) {
  constexpr WallTime kEarliest{std::chrono::duration_cast<std::chrono::milliseconds>(-2 * kClockFarthest)};
  constexpr WallTime kLatest{std::chrono::duration_cast<std::chrono::milliseconds>(2 * kClockFarthest)};
  for (const TimePoint time : {sample.asked, sample.received, sample.sent, sample.answered}) {
    if (!is_near(time)) return false;
  }
  if (sample.peer_wall < kEarliest || sample.peer_wall > kLatest) return false;
  return sample.sent >= sample.received && sample.answered - sample.asked >= sample.sent - sample.received;
}

}  // namespace

void ClockOffsets::add(const ClockSample& sample) {
  if (!is_usable(sample)) return;
  const Duration round_trip = (sample.answered - sample.asked) - (sample.sent - sample.received);
  // Half of each, not half of the sum: that may be too large.
  const Duration offset = (sample.received - sample.asked) / 2 + (sample.sent - sample.answered) / 2;
  const Duration wall = sample.peer_wall - sample.own_wall;
  // Rounded up, and one further for the two halves.
  const Kept added{{offset, (round_trip + Duration(1)) / 2 + Duration(1), wall + round_trip / 2}, sample.answered};
  if (const Kept* before = best(sample.answered)) {
    const Duration apart = std::max(offset, before->offset.steady) - std::min(offset, before->offset.steady);
    if (apart > added.offset.uncertainty + uncertainty(*before, sample.answered)) count_ = next_ = 0;
  }
  kept_[next_] = added;
  next_ = (next_ + 1) % kLength;
  count_ = std::min(count_ + 1, kLength);
}

Duration ClockOffsets::uncertainty(const Kept& kept, TimePoint now) const {
  const Duration age = std::max(Duration(0), now - kept.at);
  return kept.offset.uncertainty + Duration(static_cast<Duration::rep>(drift_ * static_cast<double>(age.count())));
}

const ClockOffsets::Kept* ClockOffsets::best(TimePoint now) const {
  const Kept* found = nullptr;
  for (std::size_t i = 0; i < count_; ++i) {
    if (found == nullptr || uncertainty(kept_[i], now) < uncertainty(*found, now)) found = &kept_[i];
  }
  return found;
}

std::optional<ClockOffset> ClockOffsets::at(TimePoint now) const {
  const Kept* found = best(now);
  if (found == nullptr) return std::nullopt;
  ClockOffset offset = found->offset;
  offset.uncertainty = uncertainty(*found, now);
  offset.wall = kept_[(next_ + kLength - 1) % kLength].offset.wall;
  return offset;
}

}  // namespace fluvial
