// A gate between a child and its parent on the loopback: forwards TCP byte for byte, until it is told to disturb it.
// TLS passes through it untouched. A parent is behind a gate when its children are given the gate's port: `--advertise`
// of an aggregator, `--coordinator` of whoever comes to the coordinator.
#pragma once

#include <poll.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/base/rng.h"
#include "core/local/fd.h"

namespace fluvial::integration {

enum class Way { kUp, kDown };  // to the parent; to the child

// How one way forwards, on every connection.
struct Traffic {
  std::chrono::milliseconds delay{0};
  std::size_t slice_bytes_max = 0;     // when set: in writes of 1 to this many bytes
  std::uint64_t rate_bytes_per_s = 0;  // of all connections together; 0: no limit
  bool forwards = true;                // false: a black hole; what comes is kept until it forwards again
};

// A thread of its own does the work; all functions may be called from any other. Bytes are counted as they are
// forwarded, a way at a time over all connections; "after" is from the call on.
class TcpGate {
 public:
  TcpGate();
  ~TcpGate();
  TcpGate(const TcpGate&) = delete;
  TcpGate& operator=(const TcpGate&) = delete;

  std::uint16_t port() const { return port_; }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  void set_target(std::uint16_t port);  // the parent's; a connection before that is closed
  std::uint16_t target() const;

  void set(Way way, const Traffic& traffic);
  void set(const Traffic& traffic);  // both ways
  void refuse(bool refuses);         // new connections are closed at once

  // One of these is under arms a way; a later one replaces it.
  void cut_after(Way way, std::uint64_t bytes);      // ends the connection: whoever was sent something has it all
  void hold_after(Way way, std::uint64_t bytes);     // from there on a black hole
  void corrupt_after(Way way, std::uint64_t bytes);  // changes one bit of the next byte
  void cut_all(Way way);                             // every connection, now

  void wait_done(Way way);  // until what is under arms there has happened
  std::uint64_t forwarded(Way way) const;

 private:
  using Instant = std::chrono::steady_clock::time_point;
  enum class Action { kCut, kHold, kCorrupt };
  struct Armed {
    Action action;
    std::uint64_t at = 0;
  };
  struct WayState {
    Traffic traffic;
    std::optional<Armed> armed;
    std::uint64_t forwarded = 0;
    Instant may_write{};  // by the rate
  };
  struct Piece {
    Instant due;
    std::vector<char> bytes;
    std::size_t written = 0;
  };
  struct Pipe {  // one way of a connection
    int from = -1;
    int to = -1;
    std::deque<Piece> waiting;
    std::size_t waiting_bytes = 0;
    bool ended = false;          // nothing more comes
    bool end_forwarded = false;  // and the other side knows
  };
  struct Connection {
    local::UniqueFd child;
    local::UniqueFd parent;
    std::array<Pipe, 2> pipes;
    std::optional<Way> cut;  // whoever receives that way reads to its end; then both sides are closed
  };

  void arm(Way way, Action action, std::uint64_t bytes);
  void run();
  int interests(std::vector<pollfd>& fds, Instant now);
  static std::optional<Instant> may_write(const Pipe& pipe, const WayState& state);
  void step(const std::vector<pollfd>& fds);
  void accept_one();
  static void read(Pipe& pipe, Instant due);
  void write(Connection& connection, Way way, Instant now);
  std::size_t allowed(std::size_t size, const WayState& state);
  void strike(Connection& connection, Way way);
  static void cut(Connection& connection, Way way);
  static bool is_drained(Connection& connection);
  void wake() const;

  local::UniqueFd listener_;
  local::UniqueFd wake_;
  std::uint16_t port_ = 0;

  mutable std::mutex mutex_;  // of everything below
  std::condition_variable changed_;
  std::array<WayState, 2> ways_;
  std::list<Connection> connections_;
  std::uint16_t target_ = 0;
  bool refuses_ = false;
  bool stopping_ = false;
  Rng rng_{1};
  std::thread thread_;
};

}  // namespace fluvial::integration
