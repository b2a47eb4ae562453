#include "core/tree/runtime.h"

#include <chrono>
#include <string>

namespace fluvial::tree {
namespace {

using std::chrono::milliseconds;

class ObservingHooks final : public net::NetHooks {
 public:
  ObservingHooks(telemetry::Metrics& metrics, telemetry::Logger log) : counts_(metrics), log_(std::move(log)) {}

  void refused(std::string_view reason, const std::string& remote, const std::string& detail) override {
    counts_.session_refused(reason);
    if (reason == net::reason::kSilent) counts_.heartbeat_timeouts.add();
    log_.warn("connection refused or cut; the peer may connect again",
              {{"code", reason}, {"remote", remote}, {"reason", detail}});
  }
  void session_opened(const std::string& remote) override {
    counts_.sessions_accepted.add();
    counts_.sessions_open.add(1);
    log_.debug("session opened", {{"remote", remote}});
  }
  void session_closed(const std::string& remote, const Error& why, const net::Counters& counters) override {
    counts_.sessions_open.add(-1);
    counts_.bytes_in.add(static_cast<double>(counters.bytes_in));
    counts_.bytes_out.add(static_cast<double>(counters.bytes_out));
    counts_.frames_in.add(static_cast<double>(counters.frames_in));
    counts_.frames_out.add(static_cast<double>(counters.frames_out));
    log_.debug("session closed", {{"remote", remote}, {"reason", why.to_string()}});
  }
  void accept_failed(const std::string& detail) override {
    log_.error("accept failed; it is tried again", {{"reason", detail}});
  }
  void handler_failed(const std::string& remote, const std::string& detail) override {
    log_.error("session handler failed; this session ends", {{"remote", remote}, {"reason", detail}});
  }

 private:
  telemetry::NodeMetrics counts_;
  telemetry::Logger log_;
};

}  // namespace

net::SessionSettings session_settings(const config::SessionLimits& limits) {
  net::SessionSettings settings;
  settings.handshake_deadline = milliseconds(limits.handshake_deadline_ms);
  settings.header_deadline = milliseconds(limits.frame_deadline_ms);
  settings.min_rate_bytes_per_s = limits.min_rate_bytes_per_s;
  settings.heartbeat_interval = milliseconds(limits.heartbeat_interval_ms);
  settings.heartbeat_timeout = milliseconds(limits.heartbeat_timeout_ms);
  settings.drain_deadline = milliseconds(limits.drain_deadline_ms);
  settings.outbox_bytes_max = limits.outbox_bytes_max;
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
