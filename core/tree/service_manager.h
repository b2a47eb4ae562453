// Tells the service manager that started this process how the process stands, by systemd's notification protocol
// (sd_notify(3)): datagrams of KEY=value lines to the socket that NOTIFY_SOCKET names.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/base/clock.h"
#include "core/config/reader.h"

namespace fluvial::tree {

// Immutable; thread safe.
class ServiceManager {
 public:
  // Of NOTIFY_SOCKET (an absolute path, or a name in the abstract namespace behind '@'), WATCHDOG_USEC and
  // WATCHDOG_PID. Without them, or where they cannot be right, nobody is told anything.
  explicit ServiceManager(const config::Environment& environment);

  // "READY=1", "STOPPING=1", "WATCHDOG=1", "STATUS=..."; several lines are one message. Never blocks and never fails:
  // a manager that does not listen is its own affair.
  void tell(std::string_view lines) const;

  // How often it wants to hear WATCHDOG=1: half the time after which it would kill this process. None: never.
  std::optional<Duration> heartbeat() const { return heartbeat_; }

 private:
  std::string socket_;  // empty: nobody listens
  std::optional<Duration> heartbeat_;
};

}  // namespace fluvial::tree
