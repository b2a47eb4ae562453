// Shared by the processes of one world and owned by none: who is on which host, the checks, and the places where a
// process may be wrong on purpose. It outlives every process.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/base/ids.h"
#include "core/identity/credentials.h"
#include "core/identity/key.h"
#include "core/identity/signature.h"
#include "core/round/schema.h"
#include "core/tree/hub.h"
#include "core/wire/protocol.h"
#include "simulator/checks/checks.h"
#include "simulator/node/node.h"
#include "simulator/roles/lessons.h"
#include "simulator/roles/rollovers.h"
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
  // process in the world. world.start_all() begins. `lessons`: what sites train; null: updates are made up.
  Cast(World& world, Tamper& tamper, Lessons* lessons);

  World& world() { return world_; }
  Checks& checks() { return checks_; }
  const Checks& checks() const { return checks_; }
  Tamper& tamper() { return tamper_; }
  Lessons* lessons() { return lessons_; }                                            // null: updates are made up
  std::size_t number_of(HostId site) const;                                          // among the sites
  void committing(const round::CommitRecord& record, std::span<const float> model);  // told to the lessons
  const Scenario& scenario() const { return world_.scenario(); }
  bool sized() const { return world_.scenario().workload.sized; }
  // Openings name a pass: there are several, or one that begins with what the round before has handed down.
  bool has_passes() const { return Factors::of(scenario().plan, schema_) || Onebit::of(scenario().plan); }
  const round::Schema& schema() const { return schema_; }                 // of the model that is handled
  const StandIns& stand_ins() const { return *stand_ins_; }               // in the sized mode
  bool continues_runs() const { return !sized(); }                        // a person continues a run that has ended
  std::uint64_t staging_bytes_max() const { return staging_bytes_max_; }  // for the model that is handled
  RoundLog& round_log() { return round_log_; }
  const RoundLog& round_log() const { return round_log_; }
  Duration time_for_values(double ns_a_value) const;  // over all values of the planned model once
  Duration time_to_pack() const;                      // a sum, for the parent

  const Identity& identity(HostId host) const { return identities_.at(host.value()); }
  // Real ones, and the same in each process, as are their signatures.
  const identity::PrivateKey& key(HostId host) const { return keys_.at(host.value()).first; }
  bool is_older(HostId host) const { return older_.contains(host); }  // of the version before: it signs nothing
  // Knows nothing of updates that enter a later round than their own: an older site, or an aggregator of that version.
  bool knows_no_late(HostId host) const { return older_.contains(host) || older_parents_.contains(host); }
  std::uint64_t weight_max(HostId site) const { return weights_.at(site.value()); }
  std::uint64_t enrolled_before(HostId site) const { return enrolled_before_.at(site.value()); }
  store::FileSystem& model_files() { return model_files_; }  // the coordinator's disk, as ModelStore sees it
  static std::string address_of(HostId host);
  static net::HostPort host_port(HostId host);
  Node::IdentityOf identities() const;
  telemetry::Metrics& site_metrics() { return site_metrics_; }  // of all sites; never read
  WorkCosts work_costs() const;
  HostId host_at(const std::string& address) const;  // the root when there is none

  // ---- certificates (cast_certificates.cc)
  // As parents see who comes: a site that has enrolled anew comes sometimes with the certificate that it had before, as
  // a thief does who has copied its folder.
  Node::IdentityOf callers() const;
  void dials(HostId site);  // draws which of them it shows
  // A parent, who had heard this from the coordinator (null: the coordinator itself), has let somebody in.
  void let_in(HostId parent, const identity::PeerIdentity& peer, const v1::Denials* heard);
  // The coordinator has read its journal: an enrolment of which nobody knew whether it was recorded may be there.
  void journal_read(store::CoordinatorJournal& journal);

  // ---- certificates that end (cast_renewals.cc)
  std::chrono::seconds certificate_life() const { return life_; }                     // zero: none ends
  bool ends(HostId host) const { return credentials_.at(host.value()).has_value(); }  // its certificate
  Duration past_certificate_max() const { return Duration(life_) / 8; }               // as HubOptions'
  // What a member has on its disk, and what it puts there.
  const identity::Credentials& credentials(HostId host) const { return *credentials_.at(host.value()); }
  void took(HostId host, const identity::Credentials& next);
  void certify_root(WallTime now);
  bool forgets_to_renew(HostId host) const { return forgetful_.contains(host) && world_.faults_on(); }
  // What may happen to a renewed certificate on its way to the member: how late it comes; none: it is lost.
  std::optional<Duration> renewal_takes();
  // The coordinator refuses this member: it must not be one that did all right.
  void shut_out(const identity::PeerIdentity& peer);
  // A parent has looked at the ends of its children's certificates, `interval` after the last time.
  void looked_at(HostId parent, const std::map<NodeId, tree::Child>& children, Duration interval);
  void contributes(HostId parent, NodeId site, Duration interval);

  // ---- the authority that certifies them, and the next one
  Rollovers& rollovers() { return rollovers_; }
  bool shows(HostId host, const identity::PeerIdentity& peer) const { return shown_[host.value()] == peer; }
  // Its certificate ends, and nothing is on its way that would keep it from being let in.
  bool is_in_order(HostId host) const;
  bool is_revoked(HostId host) const { return revoked_.contains(host); }
  bool can_enrol_anew(HostId host) const;
  void enrol_anew(HostId host);  // from an empty folder, if the coordinator is up

  // ---- leases (cast_leases.cc)
  // A malicious aggregator sometimes answers at another one's address.
  HostId who_answers_at(HostId child, const std::string& address);
  // A site of the version before shows no lease, and a malicious one sometimes one that it was not given.
  void hello(HostId host, v1::Envelope* message);
  void granted(NodeId node, NodeId parent, Epoch lease) { granted_.emplace(node, parent, lease); }
  // A parent took a child in; a child was taken in by the host that answered.
  void child_joined(HostId parent, const tree::Child& child);
  void parent_up(HostId child, const tree::Lease& lease, HostId answered);
  bool is_malicious(HostId host) const { return malicious_.contains(host); }
  // An aggregator below another one may change what its sites contribute: the root alone finds that out.
  bool lies_come_from_below(HostId aggregator) const;
  bool is_cloned(HostId host) const { return clones_.contains(host); }  // another host has the same identity
  bool has_clones() const { return !clones_.empty(); }
  bool is_dishonest(NodeId node) const;  // malicious, or cloned
  double slowness(HostId site) const;
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
  void attempt_enrolment(HostId host, store::NodeRow row);
  void enrolled_anew(HostId host);
  void draw_certificates();
  // For as long as certificates live; none: they do not end, or not this host's.
  std::optional<identity::Credentials> certify(HostId host, const Identity& member, std::uint64_t enrolment,
                                               const identity::PrivateKey& key, WallTime now) const;
  void show(HostId host, std::optional<identity::Credentials> credentials, const std::string& serial);
  WallTime certificate_end(NodeId node) const;  // of the last one that the member has

  World& world_;
  Tamper& tamper_;
  Lessons* lessons_;
  round::Schema schema_;
  std::optional<StandIns> stand_ins_;
  std::uint64_t staging_bytes_max_;
  RoundLog round_log_;
  Checks checks_;
  std::vector<Identity> identities_;
  std::vector<std::pair<identity::PrivateKey, identity::PublicKey>> keys_;  // by host; clones have one
  std::vector<std::string> serials_;                                        // by host
  struct Former {                                                           // what a thief has of a site
    std::string serial;
    WallTime issued;
    identity::PublicKey key;
    v1::Hello hello;  // the last under it, with its lease
  };
  std::map<HostId, Former> former_;
  std::map<HostId, v1::Hello> hellos_;
  std::set<HostId> thieves_;  // sites whose present session is a thief's
  struct Attempted {
    store::NodeRow row;
    std::pair<identity::PrivateKey, identity::PublicKey> key;
    std::optional<identity::Credentials> credentials;
  };
  std::map<HostId, Attempted> attempted_;  // enrolments, until it is known that they are recorded
  Rollovers rollovers_;
  std::chrono::seconds life_{0};
  std::vector<std::optional<identity::Credentials>> credentials_;  // by host; none: its certificate does not end
  std::vector<identity::PeerIdentity> shown_;                      // by host; of its certificate
  std::set<HostId> forgetful_;
  std::uint64_t root_certificates_ = 0;
  std::vector<std::uint64_t> weights_;
  std::vector<std::uint64_t> enrolled_before_;
  FlakyFiles model_files_;
  Rng enrolment_rng_;
  Rng claims_rng_;
  Rng impostors_rng_;
  Rng inventions_rng_;
  Rng thefts_rng_;
  Rng renewals_rng_;
  std::set<HostId> malicious_;
  std::set<HostId> slow_;
  std::set<HostId> newer_;  // speak the next protocol as well
  std::set<HostId> alien_;  // speak only the next one
  std::set<HostId> older_;  // are of the version before
  std::set<HostId> older_parents_;
  std::set<HostId> revoked_;
  std::set<std::tuple<NodeId, NodeId, Epoch>> granted_;  // node, parent, lease
  std::map<HostId, HostId> clones_;  // the host whose identity it has; the cloned site maps to itself
  std::uint64_t restores_ = 0;
  telemetry::Metrics site_metrics_{Role::kSite, "simulated"};
};

}  // namespace fluvial::simulator
