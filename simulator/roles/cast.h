// Shared by the processes of one world and owned by none: who is on which host, the checks, and the places where a
// process may be wrong on purpose. It outlives every process.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/ids.h"
#include "core/round/schema.h"
#include "core/wire/protocol.h"
#include "simulator/checks/checks.h"
#include "simulator/node/node.h"
#include "simulator/roles/round_log.h"
#include "simulator/roles/stand_ins.h"
#include "simulator/roles/tamper.h"
#include "simulator/world/flaky_files.h"
#include "simulator/world/world.h"

namespace fluvial::simulator {

// A certificate's content, by which a session knows its peer.
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
  const round::Schema& schema() const { return schema_; }                 // of the model that is handled
  const StandIns& stand_ins() const { return *stand_ins_; }               // in the sized mode
  bool continues_runs() const { return !sized(); }                        // a person continues a run that has ended
  std::uint64_t staging_bytes_max() const { return staging_bytes_max_; }  // for the model that is handled
  RoundLog& round_log() { return round_log_; }
  const RoundLog& round_log() const { return round_log_; }
  Duration time_for_values(double ns_a_value) const;  // over all values of the planned model once
  Duration time_to_pack() const;                      // a sum, for the parent

  const Identity& identity(HostId host) const { return identities_.at(host.value()); }
  std::uint64_t weight_max(HostId site) const { return weights_.at(site.value()); }
  std::uint64_t enrolled_before(HostId site) const { return enrolled_before_.at(site.value()); }
  store::FileSystem& model_files() { return model_files_; }  // the coordinator's disk, as ModelStore sees it
  static std::string address_of(HostId host);
  static net::HostPort host_port(HostId host);
  Node::IdentityOf identities() const;
  telemetry::Metrics& site_metrics() { return site_metrics_; }  // of all sites; never read
  WorkCosts work_costs() const;
  HostId host_at(const std::string& address) const;  // the root when there is none
  bool is_malicious(HostId host) const { return malicious_.contains(host); }
  bool is_cloned(HostId host) const { return clones_.contains(host); }  // another host has the same identity
  bool has_clones() const { return !clones_.empty(); }
  bool is_dishonest(NodeId node) const;  // malicious, or cloned
  double slowness(HostId site) const { return slow_.contains(site) ? scenario().sites.slow_factor : 1; }
  bool may_take_part(const Host& host) const;          // an honest site that speaks this protocol
  std::size_t sites_left() const;                      // that may take part and are not revoked
  void claim(HostId host, round::Standing* standing);  // a malicious host sometimes shows impossible claims
  wire::Protocols protocols(HostId host) const;        // that its Hello names

 private:
  Status found();
  void plan_for_whole_model();
  Status begin_history();  // as `fluvial coordinator --restored`, and what a person repeats after it
  Status repeat_orders(store::CoordinatorJournal& journal, WallTime now);
  void draw();
  void draw_clones(Rng& rng);
  Status enrol(store::CoordinatorJournal& journal, const Host& host, WallTime now);
  void install();
  void order(Order order, HostId host);
  void enrol_anew(HostId host);

  World& world_;
  Tamper& tamper_;
  round::Schema schema_;
  std::optional<StandIns> stand_ins_;
  std::uint64_t staging_bytes_max_;
  RoundLog round_log_;
  Checks checks_;
  std::vector<Identity> identities_;
  std::vector<std::uint64_t> weights_;
  std::vector<std::uint64_t> enrolled_before_;
  FlakyFiles model_files_;
  Rng enrolment_rng_;
  Rng claims_rng_;
  std::set<HostId> malicious_;
  std::set<HostId> slow_;
  std::set<HostId> newer_;  // speak the next protocol as well
  std::set<HostId> alien_;  // speak only the next one
  std::set<HostId> revoked_;
  std::map<HostId, HostId> clones_;  // the host whose identity it has; the cloned site maps to itself
  std::uint64_t restores_ = 0;
  telemetry::Metrics site_metrics_{Role::kSite, "simulated"};
};

}  // namespace fluvial::simulator
