// Accepts sessions on one port.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/identity/live_tls.h"
#include "core/net/awaitable.h"
#include "core/net/hooks.h"
#include "core/net/session.h"
#include "core/net/settings.h"

namespace fluvial::net {

// May this member open a session here? (deny list, role). Called on the connection's strand: thread safe.
using Admission = std::function<Status(const identity::PeerIdentity&)>;

// Thread safe. A connection that is not TLS, has no good certificate, or comes in too many is refused and counted by
// reason (hooks.h), under caps and a deadline of its own, and hurts nobody else.
class Listener {
 public:
  // Runs on the session's executor; when it returns the session is closed (drained). A named function, not a capturing
  // lambda: its parameters live in the coroutine, a lambda's captures do not.
  using Handler = std::function<Awaitable<void>(std::shared_ptr<Session>)>;

  // Binds and listens. `host` is an address or name; port 0 takes a free one. kUnavailable names the address in use.
  static Result<std::shared_ptr<Listener>> open(Executor executor, const std::string& host, std::uint16_t port,
                                                std::shared_ptr<const identity::LiveTls> tls, ListenerSettings settings,
                                                std::shared_ptr<NetHooks> hooks, Admission admission = {});
  ~Listener();

  // Accepts until stop(); returns when every handler has ended. Once.
  Awaitable<void> run(Handler handler);

  // Stops accepting, drains the sessions; handlers that have not ended by stop_deadline are cancelled.
  void stop();

  std::uint16_t port() const;
  std::size_t session_count() const;

 private:
  class Impl;
  explicit Listener(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace fluvial::net
