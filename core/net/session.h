// A session: frames both ways between two nodes over one TLS connection.
//
// Ownership: the handle is shared; when the last one is dropped the session drains and closes. Each session has a
// strand of its own, which owns its socket, TLS state and timers. Functions not marked "thread safe" must be called
// (and are checked to be called) on executor(): spawn the coroutine that talks to the peer there.
//
// Heartbeats are answered inside; so are deadlines and minimum rates (settings.h). A peer that breaks the format or
// a bound is cut with a Goodbye that says why, and counted (hooks.h).
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "core/base/bytes.h"
#include "core/base/result.h"
#include "core/identity/certificate.h"
#include "core/net/awaitable.h"
#include "core/net/hooks.h"
#include "core/net/settings.h"
#include "fluvial/v1/wire.pb.h"

namespace fluvial::net {

struct Frame {
  v1::Envelope header;
  Buffer payload;
  std::shared_ptr<void> held = {};  // the payload counts against the listener's bound until this is dropped
};

struct OutFrame {
  v1::Envelope header;
  SharedBytes payload;  // sent from where it lies
};

class TlsStream;

class Session {
 public:
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Thread safe: fixed at the handshake.
  const std::optional<identity::PeerIdentity>& peer() const;  // empty for the client of an enrolment session
  const identity::PeerIdentity& member() const;               // *peer(); the session must be a member's
  const std::string& remote() const;                          // "192.0.2.7:51234", for logs
  Executor executor() const;
  Counters counters() const;

  // The next frame, whatever it is but Ping and Pong. The payload is read only once somebody waits here. One receiver
  // at a time. After the end: the reason, again and again.
  Awaitable<Result<Frame>> receive();

  // Queues the frame; waits before that while the outbox is over its bound. Several coroutines may wait. Errors: the
  // session's end, or kInvalidArgument for a frame over the size limits.
  Awaitable<Status> send(OutFrame frame);

  // Thread safe, never waits: for control messages. A session whose outbox is over four times its bound is closed with
  // kResourceExhausted; a frame over the size limits likewise closes it (kInternal: it is our own mistake).
  void post(OutFrame frame);

  // Thread safe. The first reason stays. With `drain` what is queued and a Goodbye go out first, in bounded time;
  // without, the connection is cut.
  void close(Error reason, bool drain);

  Awaitable<void> closed();    // until the connection is gone
  bool is_open() const;        // thread safe; false from the first close(), error or Goodbye on
  Error close_reason() const;  // thread safe; kInternal "still open" while it is

  // For the listener and connect(): starts the coroutines of a session whose handshake is finished.
  static std::shared_ptr<Session> start(std::unique_ptr<TlsStream> stream, std::optional<identity::PeerIdentity> peer,
                                        const SessionSettings& settings, std::shared_ptr<NetHooks> hooks);

 private:
  class Impl;
  explicit Session(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace fluvial::net
