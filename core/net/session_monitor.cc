// Deadlines by a coarse tick a session: a timer for each frame would cost more than the frame. A tick that comes late,
// because this process was held up, counts as two at most, so that peers do not pay for our own stops.
#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <utility>

#include "core/net/session_impl.h"

namespace fluvial::net {
namespace {

constexpr Duration kHoldsOthersUpMax = std::chrono::minutes(1);  // with the memory of a payload that others wait for

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

Awaitable<void> SessionImpl::watch(std::shared_ptr<SessionImpl> self) {
  using Steady = std::chrono::steady_clock;
  asio::steady_timer& timer = self->monitor_timer_;
  const Duration length = self->tick_length();
  auto last = Steady::now();
  while (!self->closing_) {
    timer.expires_after(length);
    co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
    if (self->closing_) break;
    const auto now = Steady::now();
    self->tick(std::min<Duration>(now - last, 2 * length));
    last = now;
  }
  const auto end = Steady::now() + self->time_to_drain();
  while (!self->cut_ && Steady::now() < end) {
    timer.expires_at(end);
    co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
  }
  self->cut();
}

Duration SessionImpl::time_to_drain() const {
  return admitted_ ? settings_.drain_deadline : std::min(settings_.drain_deadline, settings_.stranger_drain_deadline);
}

Duration SessionImpl::tick_length() const {
  const Duration shortest = std::min({settings_.heartbeat_interval, settings_.heartbeat_timeout, settings_.rate_window,
                                      settings_.header_deadline, settings_.write_deadline});
  return std::clamp<Duration>(shortest / 2, std::chrono::milliseconds(1), std::chrono::seconds(5));
}

void Stillness::look(std::uint64_t bytes_now, Duration elapsed) {
  time = bytes_now == bytes ? time + elapsed : Duration{};
  bytes = bytes_now;
}

void SessionImpl::tell_traffic(std::size_t outbox_bytes) {
  const Counters now = counters();
  Traffic traffic{.more = now - told_};
  traffic.outbox_bytes_more = static_cast<std::int64_t>(outbox_bytes) - static_cast<std::int64_t>(told_outbox_bytes_);
  hooks_->session_moved(stream_->is_server(), traffic);
  told_ = now;
  told_outbox_bytes_ = outbox_bytes;
}

void SessionImpl::tick(Duration elapsed) {
  tell_traffic(outbox_bytes_);
  if (frame_progress_ && !reading_paused_) check_frame(elapsed);

  out_quiet_.look(stream_->bytes_out(), elapsed);
  since_ping_ += elapsed;
  const Duration silence = measures_clock_ ? std::max(since_ping_, out_quiet_.time) : out_quiet_.time;
  if (silence >= settings_.heartbeat_interval) ping();

  stuck_.look(stream_->bytes_out(), stream_->waits_to_write() ? elapsed : Duration{});
  if (!stream_->waits_to_write()) stuck_.time = {};
  if (stuck_.time >= settings_.write_deadline) {
    lost(reason::kStuck, fmt::format("the peer took no byte for {:.3g} s", seconds(settings_.write_deadline)));
  }

  in_quiet_.look(stream_->bytes_in(), stream_->waits_to_read() ? elapsed : Duration{});
  if (in_quiet_.time >= settings_.heartbeat_timeout) {
    lost(reason::kSilent, fmt::format("the peer was silent for {:.3g} s", seconds(settings_.heartbeat_timeout)));
  }
}

void SessionImpl::ping() {
  out_quiet_.time = {};
  since_ping_ = {};
  ping_due_ = ++pings_;
  work_.notify_all();
}

void SessionImpl::check_frame(Duration elapsed) {
  FrameProgress& frame = *frame_progress_;
  if (!frame.header_done) {
    frame.header_time += elapsed;
    if (frame.header_time >= settings_.header_deadline) {
      violation(reason::kSlow, {Code::kDeadlineExceeded, fmt::format("a frame's header was not complete after {:.3g} s",
                                                                     seconds(settings_.header_deadline))});
      return;
    }
  }
  frame.window_time += elapsed;
  if (frame.window_time < settings_.rate_window) return;
  const auto bytes = static_cast<double>(stream_->plaintext_in() - frame.window_start_bytes);
  const double rate = bytes / seconds(frame.window_time);
  double least = static_cast<double>(settings_.min_rate_bytes_per_s);
  if (frame.payload != nullptr && frame.payload->is_in_the_way()) {
    least = std::max(least, static_cast<double>(frame.payload_bytes) / seconds(kHoldsOthersUpMax));
  }
  if (rate < least) {
    violation(reason::kSlow,
              {Code::kDeadlineExceeded,
               fmt::format("a frame came in at {:.0f} bytes/s; at least {:.0f} are required", rate, least)});
    return;
  }
  frame.restart_window(stream_->plaintext_in());
}

void SessionImpl::lost(std::string_view label, std::string message) {
  if (closing_) return;
  message = remote() + ": " + message;
  hooks_->refused(label, remote(), message);
  begin_close({Code::kDeadlineExceeded, std::move(message)}, false);
}

}  // namespace fluvial::net
