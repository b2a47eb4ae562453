// What a member does before it is one child among others, by hand: it enrols, comes for a lease, joins its parent.
#pragma once

#include <string>
#include <vector>

#include "core/tree/enrol_client.h"
#include "tests/attack/attacker.h"

namespace fluvial::attack {

// What the coordinator gave; `leases` are shown to the parents, in their order.
struct Leased {
  std::uint64_t epoch = 0;
  std::vector<v1::Parent> parents;
  std::vector<v1::Signed> leases;
};

Tls as_child(const identity::Credentials& credentials);
Tls as_parent(const identity::Credentials& credentials);

// With a key of its own, from the members' address.
Result<tree::Enrolment> enrol(const std::string& token);
// On a session of its own.
Result<Leased> ask_lease(const identity::Credentials& credentials, std::uint16_t coordinator_port,
                         const std::string& advertise = "", const std::string& from = kStrangersAddress);
// A session with the n-th of the lease's parents, which listens at `port`: welcome.
Result<Connection> join(const identity::Credentials& credentials, const Leased& lease, std::uint16_t port,
                        std::size_t parent);
// Both, with the coordinator as parent.
Result<Connection> join_coordinator(const identity::Credentials& credentials, std::uint16_t coordinator_port,
                                    const std::string& advertise = "");

}  // namespace fluvial::attack
