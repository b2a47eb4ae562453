#include "core/tree/runtime.h"

#include <algorithm>
#include <chrono>
#include <span>
#include <string>

#include "core/telemetry/node_metrics.h"

namespace fluvial::tree {
namespace {

using std::chrono::milliseconds;

bool is_among(std::span<const std::string_view> reasons, std::string_view reason) {
  return std::ranges::find(reasons, reason) != reasons.end();
}

class ObservingHooks final : public net::NetHooks {
 public:
  ObservingHooks(telemetry::Metrics& metrics, telemetry::Logger log) : counts_(metrics), log_(std::move(log)) {}

  void refused(std::string_view reason, const std::string& remote, const std::string& detail) override {
    counts_.session_refused(reason);
    if (is_among(net::reason::kHandshake, reason)) counts_.handshake(reason);
    if (is_among(net::reason::kFrame, reason)) counts_.frame_refused(reason);
    if (reason == net::reason::kSilent) counts_.heartbeat_timeouts.add();
    log_.warn("connection refused or cut; the peer may connect again",
              {{"code", reason}, {"remote", remote}, {"reason", detail}});
  }
  void session_opened(const std::string& remote) override {
    counts_.accepted.add();
    counts_.handshake("ok");
    counts_.open.add(1);
    log_.debug("session opened", {{"remote", remote}});
  }
  void session_moved(bool accepted, const net::Traffic& traffic) override {
    counts_.moved(accepted ? telemetry::Tier::kChildren : telemetry::Tier::kParent,
                  {traffic.more.frames_in, traffic.more.frames_out, traffic.more.bytes_in, traffic.more.bytes_out,
                   traffic.outbox_bytes_more});
  }
  void session_closed(const std::string& remote, const Error& why, const net::Counters&) override {
    counts_.open.add(-1);
    log_.debug("session closed", {{"remote", remote}, {"reason", why.to_string()}});
  }
  void answer_lost(const std::string& remote, const Error& why) override {
    log_.debug("an HTTP answer did not arrive whole", {{"remote", remote}, {"reason", why.to_string()}});
  }
  void accept_failed(const std::string& detail) override {
    log_.error("accept failed; it is tried again", {{"reason", detail}});
  }
  void handler_failed(const std::string& remote, const std::string& detail) override {
    log_.error("session handler failed; this session ends", {{"remote", remote}, {"reason", detail}});
  }

 private:
  telemetry::SessionMetrics counts_;
  telemetry::Logger log_;
};

}  // namespace

std::size_t io_threads(const config::CommonSettings& settings, Role role, std::size_t cores) {
  constexpr std::size_t kMost = 4;
  if (settings.io_threads != 0) return static_cast<std::size_t>(settings.io_threads);
  return role == Role::kSite ? 1 : std::clamp<std::size_t>(cores / 2, 1, kMost);
}

net::SessionSettings session_settings(const config::SessionLimits& limits) {
  net::SessionSettings settings;
  settings.handshake_deadline = milliseconds(limits.handshake_deadline_ms);
  settings.header_deadline = milliseconds(limits.frame_deadline_ms);
  settings.min_rate_bytes_per_s = limits.min_rate_bytes_per_s;
  settings.heartbeat_interval = milliseconds(limits.heartbeat_interval_ms);
  settings.heartbeat_timeout = milliseconds(limits.heartbeat_timeout_ms);
  settings.drain_deadline = milliseconds(limits.drain_deadline_ms);
  settings.outbox_bytes_max = limits.outbox_bytes_max;
  settings.key_updates_max = static_cast<std::uint32_t>(limits.key_updates_max);
  return settings;
}

net::BackoffSettings backoff_settings(const config::SessionLimits& limits) {
  net::BackoffSettings settings;
  settings.first = milliseconds(limits.reconnect_delay_min_ms);
  settings.cap = milliseconds(limits.reconnect_delay_max_ms);
  return settings;
}

std::shared_ptr<net::NetHooks> observing_hooks(telemetry::Metrics& metrics, telemetry::Logger log) {
  return std::make_shared<ObservingHooks>(metrics, std::move(log));
}

}  // namespace fluvial::tree
