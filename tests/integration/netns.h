// A network for real processes: each node in a namespace of its own, and between them wires of this process, with
// delay, rate, loss and partitions. A namespace has one TUN device; whoever holds the other ends, one thread here, is
// the network. Nothing has a name that lasts: devices and namespaces go with the descriptors and the processes that
// hold them, also when a test dies.
#pragma once

#include <poll.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <queue>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cli/local_federation.h"
#include "core/base/rng.h"
#include "core/local/fd.h"

namespace fluvial::integration {

// Between two places, the same each way.
struct Wire {
  std::chrono::microseconds delay{0};
  std::uint64_t rate_bytes_per_s = 0;  // 0: no limit
  double loss = 0;                     // of packets: 0.01 is one in a hundred
};

// All functions may be called from any thread.
class VirtualNetwork {
 public:
  // kFailedPrecondition: this machine or user may not, and why.
  static Result<std::unique_ptr<VirtualNetwork>> create();
  ~VirtualNetwork();
  VirtualNetwork(const VirtualNetwork&) = delete;
  VirtualNetwork& operator=(const VirtualNetwork&) = delete;

  // A namespace with an address of its own. Its processes must have ended before the network does.
  Result<cli::Place> add(const std::string& place);
  void set_wire(const std::string& one, const std::string& other, const Wire& wire);  // a place has none to itself
  void set_cut_off(const std::string& place, bool cut_off);                           // from every other place

  struct Counts {
    std::uint64_t carried = 0;  // packets
    std::uint64_t lost = 0;     // by the wires' loss; what a full queue drops is not in it
    std::uint64_t cut_off = 0;
  };
  Counts counts() const;

 private:
  using Instant = std::chrono::steady_clock::time_point;
  using Ends = std::pair<std::string, std::string>;  // from, to
  struct Node {
    std::string place;
    local::UniqueFd net;  // its namespace
    local::UniqueFd tun;
  };
  struct WireState {
    Wire wire;
    Instant free_at{};  // when it has sent all that it was given
  };
  struct Packet {
    Instant due;
    std::uint64_t number;  // those of the same instant stay in order
    std::size_t to;
    std::vector<char> bytes;
    bool operator<(const Packet& other) const { return std::pair(other.due, other.number) < std::pair(due, number); }
  };

  VirtualNetwork();
  void run();
  void take_from(std::size_t from, Instant now);
  void route(std::size_t from, std::vector<char> bytes, Instant now);
  void deliver(Instant now);
  void wake() const;

  local::UniqueFd wake_;
  mutable std::mutex mutex_;  // of everything below
  std::vector<Node> nodes_;   // the n-th has the address 10.83.0.n + 1
  std::map<Ends, WireState> wires_;
  std::map<std::string, bool> cut_off_;
  std::priority_queue<Packet> on_the_way_;
  std::uint64_t packets_ = 0;
  Counts counts_;
  Rng rng_{1};
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace fluvial::integration
