// What an attacker has: sockets on the loopback, credentials that it stole or none, frames made by hand, and a parent
// that is none. Blocking; whatever waits fails after kPatience, so that no test hangs on a node that says nothing.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "core/base/bytes.h"
#include "core/base/result.h"
#include "core/identity/tls.h"
#include "core/local/fd.h"
#include "fluvial/v1/wire.pb.h"

namespace fluvial::attack {

inline constexpr const char* kMembersAddress = "127.0.0.1";
inline constexpr const char* kStrangersAddress = "127.0.0.66";  // what is charged to an address is charged to this one
inline constexpr std::chrono::seconds kPatience{30};

using Tls = std::shared_ptr<const identity::TlsContext>;

// One connection, from either end. Movable, not thread safe. Writing to a connection that the other side has ended is
// an error (kUnavailable), not a signal.
class Connection {
 public:
  // To a port of 127.0.0.1, from an address of 127.0.0.0/8. Nothing is said on it.
  static Result<Connection> open(std::uint16_t port, const std::string& from = kStrangersAddress);
  // And TLS. In TLS 1.3 a client's certificate may still be refused: by the first receive().
  static Result<Connection> open(std::uint16_t port, const Tls& tls, const std::string& from = kStrangersAddress);
  static Result<Connection> accept(local::UniqueFd socket, const Tls& tls);  // the server's side of TLS

  Status write(ByteSpan bytes);  // through TLS, where it is up
  Status write(std::string_view bytes) { return write(as_byte_span(bytes)); }
  Status send(const v1::Envelope& message, ByteSpan payload = {});
  Status announce(std::uint32_t header_bytes, std::uint32_t payload_bytes);              // a prefix, and nothing more
  Status send_head(const v1::Envelope& message, std::uint32_t payload_bytes_announced);  // its payload does not follow
  Status update_key();  // a KeyUpdate that asks for one in return; what comes back is read, when there is something

  // The next message; Ping, Pong and payloads are passed over. A Goodbye is an error that holds its code and words;
  // kUnavailable: ended without one, kDeadlineExceeded: neither.
  Result<v1::Envelope> receive(std::chrono::milliseconds patience = kPatience);
  // Why the other side ended it; whatever comes before is dropped. None: it has not.
  std::optional<Error> ending(std::chrono::milliseconds patience = kPatience);
  void set_patience(std::chrono::milliseconds patience);  // of each write() from here on
  bool has_ended();                                       // without waiting; what has come is dropped
  int fd() const { return socket_.get(); }

 private:
  explicit Connection(local::UniqueFd socket) : socket_(std::move(socket)) {}
  Status shake_hands(const Tls& tls);
  Status read(MutableByteSpan out);
  Status fault(int result, const char* doing) const;

  local::UniqueFd socket_;
  identity::SslPtr ssl_;  // none: no TLS
};

// A node that children come to and that is not their parent: a thread that accepts, one for each that comes.
class HostileParent {
 public:
  // What it does with a child that has said Hello; the connection ends when this returns.
  using Script = std::function<void(Connection& child, const v1::Hello& hello)>;
  HostileParent(Tls tls, Script script);
  ~HostileParent();
  HostileParent(const HostileParent&) = delete;
  HostileParent& operator=(const HostileParent&) = delete;

  std::uint16_t port() const { return port_; }
  bool wait_visits(std::size_t count);  // until `count` have come and gone; false: not within kPatience
  std::size_t greeted() const;          // how many of them said Hello

 private:
  void run();
  void serve(local::UniqueFd socket);

  const Tls tls_;
  const Script script_;
  local::UniqueFd listener_;
  std::uint16_t port_ = 0;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t visits_ = 0;
  std::size_t greeted_ = 0;
  std::list<int> open_;
  bool stopping_ = false;
  std::list<std::thread> serving_;
  std::thread thread_;
};

// Messages as a member says them.
v1::Envelope hello(std::uint64_t lease_epoch = 0);
v1::Envelope lease_request(const std::string& advertise = "");
v1::Envelope welcome();

}  // namespace fluvial::attack
