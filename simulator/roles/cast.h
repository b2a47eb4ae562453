// What the processes of one world share and none of them owns: who is on which host, what the checks see, and where a
// process may be wrong on purpose. It outlives every process.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/ids.h"
#include "core/round/schema.h"
#include "simulator/checks/checks.h"
#include "simulator/roles/round_log.h"
#include "simulator/roles/tamper.h"
#include "simulator/world/world.h"

namespace fluvial::simulator {

// A certificate, as a session knows its peer by it.
struct Identity {
  NodeId node;
  Role role = Role::kSite;
  std::string name;
};

class Cast {
 public:
  // Enrols everybody and makes the run, on the coordinator's disk, before anything can fail; then installs every host's
  // process in the world. world.start_all() begins.
  Cast(World& world, Tamper& tamper);

  World& world() { return world_; }
  Checks& checks() { return checks_; }
  const Checks& checks() const { return checks_; }
  Tamper& tamper() { return tamper_; }
  const Scenario& scenario() const { return world_.scenario(); }
  bool sized() const { return world_.scenario().workload.sized; }
  const round::Schema& schema() const { return schema_; }
  RoundLog& round_log() { return round_log_; }
  const RoundLog& round_log() const { return round_log_; }
  Duration time_for_values(double ns_a_value) const;  // over all values of the model once

  const Identity& identity(HostId host) const { return identities_.at(host.value()); }
  std::uint64_t weight_max(HostId site) const { return weights_.at(site.value()); }
  static std::string address_of(HostId host);
  HostId host_at(const std::string& address) const;  // the root when there is none
  bool is_malicious(HostId host) const { return malicious_.contains(host); }
  bool is_malicious_node(NodeId node) const;
  double slowness(HostId site) const { return slow_.contains(site) ? scenario().sites.slow_factor : 1; }
  std::size_t sites_left() const;  // that may take part: not revoked, not malicious, of our protocol
  std::pair<std::uint32_t, std::uint32_t> protocols(HostId host) const;  // that its Hello names

 private:
  Status found();
  void draw();
  void install();

  World& world_;
  Tamper& tamper_;
  round::Schema schema_;
  RoundLog round_log_;
  Checks checks_;
  std::vector<Identity> identities_;
  std::vector<std::uint64_t> weights_;
  std::set<HostId> malicious_;
  std::set<HostId> slow_;
  std::set<HostId> newer_;  // speak the next protocol as well
  std::set<HostId> alien_;  // speak only the next one
  std::set<HostId> revoked_;
};

}  // namespace fluvial::simulator
