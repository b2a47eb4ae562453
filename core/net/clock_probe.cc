#include "core/net/clock_probe.h"

namespace fluvial::net {
namespace {

TimePoint at(std::int64_t nanoseconds) { return TimePoint(Duration(nanoseconds)); }

}  // namespace

v1::Pong ClockProbe::answer(std::uint64_t token, TimePoint received) const {
  v1::Pong pong;
  pong.set_token(token);
  pong.set_received_ns(received.time_since_epoch().count());
  pong.set_sent_ns(clock_.now().time_since_epoch().count());
  pong.set_wall_ms(clock_.wall_now().time_since_epoch().count());
  return pong;
}

void ClockProbe::asked(std::uint64_t token) { asked_ = Asked{token, clock_.now()}; }

bool ClockProbe::answered(const v1::Pong& pong) {
  const bool tells = pong.received_ns() != 0 || pong.sent_ns() != 0;
  if (!tells || !asked_ || asked_->token != pong.token()) return false;
  offsets_.add({.asked = asked_->at,
                .received = at(pong.received_ns()),
                .sent = at(pong.sent_ns()),
                .answered = clock_.now(),
                .peer_wall = WallTime(std::chrono::milliseconds(pong.wall_ms())),
                .own_wall = clock_.wall_now()});
  asked_.reset();
  ++samples_;
  return true;
}

}  // namespace fluvial::net
