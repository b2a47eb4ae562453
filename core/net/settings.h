// Every bound and deadline of sessions and listeners.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/base/clock.h"
#include "core/net/outbox_budget.h"
#include "core/net/payload_gate.h"

namespace fluvial::net {

class ProxyRules;

struct SessionSettings {
  std::shared_ptr<const ProxyRules> proxy;  // of connect(); none: every peer is dialled directly
  Duration resolve_deadline = std::chrono::seconds(5);
  Duration connect_deadline = std::chrono::seconds(5);
  Duration tunnel_deadline = std::chrono::seconds(10);  // for a proxy to reach the peer and to say so
  Duration handshake_deadline = std::chrono::seconds(5);

  // A frame that has begun: its header must be complete in time, and over each window its bytes must come at this rate
  // at least. Time in which we ourselves do not read (backpressure) does not count.
  Duration header_deadline = std::chrono::seconds(30);
  Duration rate_window = std::chrono::seconds(10);
  std::uint64_t min_rate_bytes_per_s = 16 * 1024;

  Duration heartbeat_interval = std::chrono::seconds(5);  // we say something at least so often
  Duration heartbeat_timeout = std::chrono::seconds(20);  // a peer that says nothing for so long is gone
  Duration write_deadline = std::chrono::seconds(60);     // a peer that takes not one byte for so long is gone
  Duration drain_deadline = std::chrono::seconds(5);      // to flush the outbox and say goodbye

  // New keys after so much plaintext in a direction: AES-GCM should not go beyond some 388 GB (RFC 8446, section 5.5).
  std::uint64_t rekey_bytes = std::uint64_t{64} << 30;

  // Key updates that the peer may send beyond one for each MiB of data.
  std::uint32_t key_updates_max = 32;

  // All that a peer may send before it is admitted (Session::admitted), with no payload among it; 0: it is admitted
  // from the start. The end of such a session is not drained for longer than its deadline.
  std::uint32_t stranger_bytes_max = 0;
  Duration stranger_drain_deadline = std::chrono::seconds(1);

  const Clock* clock = nullptr;  // told to the peer in each Pong, and what its own is held to; none: neither

  std::uint32_t header_bytes_max = 4u << 20;
  std::uint32_t payload_bytes_max = 8u << 20;
  std::shared_ptr<PayloadGate> payload_gate;  // shared by the sessions of a listener; none: no bound over all
  std::size_t outbox_bytes_max = 16u << 20;   // send() waits above it; post() closes the session above four times it
  std::shared_ptr<OutboxBudget> outboxes;     // likewise shared; open() makes one of sixteen times the bound of one
};

struct ListenerSettings {
  SessionSettings session;
  std::size_t sessions_max = 10'000;  // further connections are refused
  // Connections that have not proved to be a member's: in their handshake, or of a client without a certificate.
  std::size_t strangers_max = 1'024;
  std::size_t strangers_per_address_max = 256;  // of an IPv4 address or an IPv6 /64
  std::size_t sessions_per_member_max = 64;
  std::size_t payload_bytes_in_flight_max = 32u << 20;  // received and not yet staged, all sessions together
  std::size_t payload_bytes_per_member_max = 16u << 20;
  double accepts_per_s = 1'000;                       // faster arrivals wait in the kernel's backlog
  double accepts_burst = 256;                         //
  int backlog = 1'024;                                //
  Duration stop_deadline = std::chrono::seconds(10);  // for handlers to end after stop(); then they are cancelled
};

}  // namespace fluvial::net
