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
#include "core/base/clock_offset.h"
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

// What everybody above this room knows of a session. There are two kinds: over TLS, and the simulator's.
class Session {
 public:
  Session() = default;
  virtual ~Session() = default;
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Thread safe: fixed at the handshake.
  virtual const std::optional<identity::PeerIdentity>& peer() const = 0;  // empty: the client of an enrolment session
  const identity::PeerIdentity& member() const;                           // *peer(); the session must be a member's
  virtual const std::string& remote() const = 0;                          // "192.0.2.7:51234", for logs
  virtual Executor executor() const = 0;
  virtual Counters counters() const = 0;

  // From here on the peer is asked for its clocks now and then, and at once. What is known of them: none at first, and
  // with a peer that tells none.
  virtual void measure_clock() = 0;
  virtual std::optional<ClockOffset> peer_clock() const = 0;

  // Whoever serves the session knows by now who the peer is, and lets it in: the bounds on strangers no longer hold.
  virtual void admitted() {}

  // The next frame, whatever it is but Ping and Pong. The payload is read only once somebody waits here. One receiver
  // at a time. After the end: the reason, again and again.
  virtual Awaitable<Result<Frame>> receive() = 0;

  // Queues the frame; waits before that while the outbox is over its bound. Several coroutines may wait. An error is
  // the session's end, and nothing else: a frame over the size limits (our own mistake) closes the session, and is
  // logged.
  virtual Awaitable<Status> send(OutFrame frame) = 0;

  // Thread safe, never waits: for control messages. A session whose outbox is over four times its bound is closed with
  // kResourceExhausted, one with a frame over the size limits with kInternal; both are told to the hooks.
  virtual void post(OutFrame frame) = 0;

  // Thread safe. The first reason stays. With `drain` what is queued and a Goodbye go out first, in bounded time;
  // without, the connection is cut.
  virtual void close(Error reason, bool drain) = 0;

  virtual Awaitable<void> closed() = 0;    // until the connection is gone
  virtual bool is_open() const = 0;        // thread safe; false from the first close(), error or Goodbye on
  virtual Error close_reason() const = 0;  // thread safe; kInternal "still open" while it is
};

// For the listener and connect(): starts the coroutines of a session over TLS whose handshake is finished.
std::shared_ptr<Session> start_session(std::unique_ptr<TlsStream> stream, std::optional<identity::PeerIdentity> peer,
                                       const SessionSettings& settings, std::shared_ptr<NetHooks> hooks);

}  // namespace fluvial::net
