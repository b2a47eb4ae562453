#include "core/net/payload_lanes.h"

#include <algorithm>
#include <array>

namespace fluvial::net {
namespace {

constexpr Duration kAlwaysAllowed = std::chrono::milliseconds(250);  // the smallest payload may take that long
constexpr std::array<double, PayloadLanes::kLanes - 1> kBytesPerSecond = {8 << 20, 1 << 20};  // least of each lane

}  // namespace

std::size_t PayloadLanes::lane_for(std::size_t payload_bytes, Duration in_the_way) {
  const double seconds = std::chrono::duration<double>(in_the_way - kAlwaysAllowed).count();
  std::size_t lane = 0;
  while (lane < kBytesPerSecond.size() && seconds * kBytesPerSecond[lane] > static_cast<double>(payload_bytes)) ++lane;
  return lane;
}

std::size_t PayloadLanes::lane_now(const Slow& slow, TimePoint now) {
  return slow.lane - std::min(slow.lane, static_cast<std::size_t>((now - slow.since) / kForgivenAfter));
}

std::size_t PayloadLanes::lane_of(std::uint64_t member, TimePoint now) const {
  const auto found = slow_.find(member);
  return found == slow_.end() ? 0 : lane_now(found->second, now);
}

void PayloadLanes::ended(std::uint64_t member, std::size_t payload_bytes, Duration in_the_way, TimePoint now) {
  const std::size_t lane = lane_for(payload_bytes, in_the_way);
  if (lane == 0 || lane < lane_of(member, now)) return;
  std::erase_if(slow_, [now](const auto& known) { return lane_now(known.second, now) == 0; });
  slow_[member] = {lane, now};
}

}  // namespace fluvial::net
