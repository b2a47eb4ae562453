// A short visit to a peer's port, for whoever wants to know whether the way is open: connects and shakes hands as a
// member does, says Hello without a lease, and leaves once it is welcome. The peer grants nothing and forgets it; a
// session that the member has is not touched.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "core/identity/tls.h"
#include "core/net/connector.h"
#include "core/net/settings.h"

namespace fluvial::tree {

struct Visit {
  std::string peer;  // "coordinator 1 (coordinator)", by its certificate; empty at an enrolment port
  NodeId node;
  Duration handshake{};                 // until TLS was up
  Duration round_trip{};                // from Hello to Welcome; 0 at an enrolment port
  std::optional<Duration> wall_offset;  // the peer's wall clock minus our own, where it tells
};

// Whom the visitor expects: a member of that role, or none at an enrolment port, where it leaves after the handshake.
struct Host {
  net::HostPort address;
  std::optional<Role> role;
};

// Blocking; each step has its deadline in `settings`. The error is one line that says what happened and at which
// address.
Result<Visit> visit_blocking(const Host& host, std::shared_ptr<const identity::TlsContext> tls,
                             net::SessionSettings settings);

}  // namespace fluvial::tree
