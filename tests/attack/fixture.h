// A federation that is attacked while it trains.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tests/attack/member.h"
#include "tests/integration/harness.h"

namespace fluvial::attack {

class AttackTest : public integration::FederationTest {
 protected:
  // A run whose first round is committed and whose second waits for its workers until release(). So an attack is under
  // way while rounds 2 to the last are held.
  void start_held_run(std::uint64_t rounds = 5);
  void release() { gate_->open(); }
  // Every round is committed with the update of every site, exactly. Releases them.
  void expect_rounds_go_on();
  // The same, of a federation whose workers are not held, `more` rounds on.
  void expect_more_rounds(std::uint64_t more);

  std::uint16_t coordinator_port(const char* key = "member_port");
  std::uint16_t port_of(const std::string& aggregator);  // where it listens itself
  std::string pin();

  // A copy of what a node of the federation has on its disk; of another folder, by its path.
  identity::Credentials stolen(const std::string& name) { return stolen_from(folder_.file(name)); }
  static identity::Credentials stolen_from(const std::string& folder);
  Tls as_stranger() { return identity::TlsContext::enrol_client(pin()).value(); }  // at the enrolment port

  // A token, made by a person.
  std::string new_token(const std::string& name, const std::string& role = "site", const std::string& region = "");
  identity::Credentials enrolled(const std::string& name, const std::string& role = "site",
                                 const std::string& region = "");
  void revoke(const std::string& name);

  // Comes for a lease, on a session of its own.
  Result<Leased> ask_lease(const identity::Credentials& credentials, const std::string& advertise = "",
                           const std::string& from = kStrangersAddress);
  // A session with the coordinator, of a child of its own: a site takes part from the next round on.
  Result<Connection> join_coordinator(const identity::Credentials& credentials, const std::string& advertise = "");

  // Sums of the series whose line holds `label` (such as reason="silent"); of all of that name when it is empty.
  double metric(const std::string& node, const std::string& name, const std::string& label = "");
  // Of a node's memory: resident now, or "VmHWM:" for the most so far.
  std::uint64_t resident_bytes(const std::string& node, const std::string& which = "VmRSS:");
  std::size_t log_bytes(const std::string& node) { return log_of(node).size(); }

  std::uint64_t run_ = 0;

 private:
  integration::RoundGate* gate_ = nullptr;
  std::uint64_t rounds_ = 0;
  std::map<std::string, std::uint16_t> ports_;
};

constexpr std::uint64_t kMebi = 1 << 20;

}  // namespace fluvial::attack
