// What every node counts about its sessions, a child about its parent, and both about what crosses an edge of the tree.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "core/telemetry/metrics.h"

namespace fluvial::telemetry {

// Which edge something crosses, from where the node stands.
enum class Tier { kParent, kChildren };

class SessionMetrics {
 public:
  explicit SessionMetrics(Metrics& metrics);

  // What a session has moved since it said so last.
  struct Moved {
    std::uint64_t frames_in = 0;
    std::uint64_t frames_out = 0;
    std::uint64_t bytes_in = 0;
    std::uint64_t bytes_out = 0;
    std::int64_t outbox_bytes = 0;  // by how many there are more
  };
  void moved(Tier tier, const Moved& moved) const;

  Gauge open;
  Counter accepted;
  Counter heartbeat_timeouts;
  // Words of our own code, each from a closed list (declared.h).
  void handshake(std::string_view result) const;
  void session_refused(std::string_view reason) const;
  void frame_refused(std::string_view reason) const;

 private:
  struct Edge {
    Edge(Metrics& metrics, Tier tier);
    Counter frames_in, frames_out, bytes_in, bytes_out;
    Gauge outbox_bytes;
  };
  Metrics* metrics_;
  std::array<std::optional<Edge>, 2> edges_;  // by tier: those that this role has
};

class ParentMetrics {
 public:
  explicit ParentMetrics(Metrics& metrics);

  Gauge connected;
  Counter reconnects;
  Counter distrusted;
  void connect(std::string_view result) const;  // "ok", or a Code's name

 private:
  Metrics* metrics_;
};

class EdgeBytes {
 public:
  EdgeBytes(Metrics& metrics, Tier tier);

  Counter model_bytes;
  // `codec` as plans write it ("topk:ratio=0.01": the name counts), or "partial"; `values` as many as the vector has
  // that was encoded.
  void update(std::string_view codec, std::uint64_t bytes, std::uint64_t values) const;

 private:
  Metrics* metrics_;
  Tier tier_;
};

}  // namespace fluvial::telemetry
