// The book of the federation's members: nodes and leases as the journal has them, and connected members, directly or
// below an aggregator. It decides who is whose parent, even while an aggregator is away, and which children go home
// when a nearer parent is back. Pure: time is passed in, and what the journal must hold comes out as data, so that
// nothing is promised before it is durable:
//
//   request_lease() -> LeaseWanted -> journal -> lease_granted() -> the answer to the child
//
// Not thread safe: on its owner's strand.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/logic/layout.h"
#include "coordinator/logic/run_machine.h"
#include "core/base/clock.h"
#include "core/base/ids.h"
#include "core/base/result.h"

namespace fluvial::coordinator {

struct NodeEntry {
  NodeId id;
  Role role = Role::kSite;
  std::string name;
  std::string region;
  std::uint64_t weight_max = 0;  // of a site
  std::string advertise;         // of an aggregator: host:port for its children; empty until it first connects
  WallTime enrolled_at;
  std::optional<WallTime> revoked_at;
  std::optional<WallTime> quarantined_at;
  std::string quarantine_reason;
  std::string certificate_serial = {};  // of its last enrolment
  std::optional<WallTime> removed_at = {};
};

struct LeaseEntry {
  NodeId node;
  NodeId parent;  // 0: the coordinator
  Epoch epoch;
  bool operator==(const LeaseEntry&) const = default;
};

struct Member {
  NodeId node;
  Role role = Role::kSite;
  NodeId parent;  // 0: the coordinator
  NodeId via;     // the coordinator's child that it is below; itself if it is that child
  Epoch lease;
  Incarnation incarnation;
};

// A node's request for a lease, as its certificate and its message state it.
struct LeaseAsk {
  NodeId node;
  Role role = Role::kSite;
  std::string name;
  std::string advertise;  // an aggregator's, checked
  NodeId unreachable;     // the parent of its last lease, when it could not be reached; else 0
};
// What the journal must hold before the node is answered.
struct LeaseWanted {
  NodeId node;
  NodeId parent;
  std::optional<std::string> advertise;  // to be recorded first
};
// The answer, once it does.
struct LeaseAnswer {
  Epoch epoch;
  NodeId parent;
  Role parent_role = Role::kCoordinator;
  std::string parent_name;
  std::string address;  // empty for the coordinator
  bool moved = false;   // it had another lease before: an open round must hear of the move
};

struct MemberUp {
  NodeId node;
  NodeId parent;
  Epoch lease;
  Incarnation incarnation;
};
struct MembersChanged {
  std::vector<SiteId> sites_up;
  std::vector<NodeId> not_counted;  // announced under an old lease, or by a former parent
};

struct FailoverSettings {
  Duration failover_after;   // an aggregator that is away for longer loses its children
  Duration unreachable_for;  // how long a child is kept away from a parent that it could not reach
  Duration return_after;     // how long a nearer aggregator must be up before it gets its children back
};

class Federation {
 public:
  explicit Federation(const FailoverSettings& settings) : settings_(settings) {}

  // ---- what the journal holds: when it is read, and after each change that it has recorded
  // An aggregator that does not connect counts as away from then on. Returns whether the node had another certificate
  // before: a session with that certificate belongs to no member any more, and the lease it knows is void.
  bool put(NodeEntry node, TimePoint now);
  void certificate_changed(NodeId node, std::string serial);  // for the same holder: its sessions and lease stand
  void put(const LeaseEntry& lease);
  void revoked(NodeId node, WallTime when, TimePoint now);
  void removed(NodeId node, WallTime when, TimePoint now);
  void quarantined(SiteId site, WallTime when, std::string reason);
  void cleared(SiteId site);

  // ---- leases
  // kUnauthenticated: not enrolled under this name and role, or revoked.
  Result<LeaseWanted> request_lease(const LeaseAsk& ask, TimePoint now);
  // `lease` is what the journal granted. kStale when a newer one was granted meanwhile.
  Result<LeaseAnswer> lease_granted(const LeaseWanted& wanted, const LeaseEntry& lease, TimePoint now);
  Status may_join(NodeId node, Epoch lease) const;  // as a child of the coordinator; kStale: ask for a lease first

  // ---- connected members
  void child_joined(NodeId node, Epoch lease, Incarnation incarnation, TimePoint now);  // after may_join()
  void child_left(NodeId child, TimePoint now);  // and with it everybody below it
  MembersChanged members_changed(NodeId child, const std::vector<MemberUp>& up, const std::vector<NodeId>& down,
                                 TimePoint now);

  // ---- going home, between rounds
  // The children whose session should end now because a nearer parent serves. Neither they nor the nodes below them are
  // in connected_sites() until they are back.
  std::vector<NodeId> send_home(TimePoint now);
  std::optional<TimePoint> next_home(TimePoint now) const;  // when to ask again; none: nobody is away from home

  // ---- going past
  // A nearer aggregator than the parent that the node's lease names, and why it is not the parent.
  struct Detour {
    NodeId past;
    std::string reason;
  };
  std::optional<Detour> detour_of(NodeId node, TimePoint now) const;

  // ---- since when
  struct Stay {  // of a member, or of one that is away
    bool here = false;
    bool came = false;  // since the book was opened
    TimePoint since;    // here or away; of one that never came: enrolled, or the book opened
  };
  Stay stay_of(NodeId node) const;
  // The parent that the node would have if every aggregator served. 0: the coordinator.
  NodeId parent_wished(NodeId node) const;

  // ---- queries
  Result<NodeId> find(const std::string& name) const;  // kNotFound
  std::map<SiteId, SiteInfo> connected_sites() const;  // who may take part in a round
  const std::map<NodeId, Member>& members() const { return members_; }
  const std::map<NodeId, NodeEntry>& nodes() const { return nodes_; }
  const LeaseEntry* lease_of(NodeId node) const;
  std::string name_of(NodeId node) const;
  bool is_quarantined(NodeId node) const;
  Status check_quarantine(SiteId site) const;  // kPermissionDenied while it is in one
  // The participants of a round that was open before which need not be waited for.
  std::vector<round::Refusal> barred_among(const std::vector<round::Participant>& participants) const;
  round::Refusal revocation_of(SiteId site) const;
  NodeId via(NodeId node) const;  // the coordinator's child below which it is connected; 0: not connected
  // The coordinator's child above the node by the leases, connected or not; a child itself for a child.
  NodeId branch(NodeId node) const;

 private:
  struct Presence {   // of an aggregator
    TimePoint since;  // up, or away
    bool up = false;
    bool asked = false;  // it has asked for a lease since it went away
  };
  bool serves(NodeId aggregator, TimePoint now) const;
  bool is_settled(NodeId aggregator, TimePoint now) const;
  bool is_avoided(NodeId node, NodeId aggregator, TimePoint now) const;
  void note_asked(const LeaseAsk& ask, TimePoint now);
  template <typename Serves>
  NodeId parent_for(const NodeEntry& node, const Serves& is_serving) const;
  std::string absence_of(NodeId aggregator, NodeId from, TimePoint now) const;
  std::ptrdiff_t nearness(NodeId parent) const;
  void note_displaced(const LeaseEntry& lease);
  bool is_below_leaving(NodeId node) const;
  void came(const Member& member, TimePoint now);
  template <typename Gone>
  void erase_members(TimePoint now, const Gone& is_gone);

  FailoverSettings settings_;
  std::map<NodeId, NodeEntry> nodes_;
  std::map<NodeId, LeaseEntry> leases_;
  std::map<NodeId, std::size_t> children_;  // by lease
  std::map<NodeId, Member> members_;
  std::map<NodeId, Stay> stays_;
  std::map<NodeId, Presence> presence_;                         // of each aggregator
  std::map<std::pair<NodeId, NodeId>, TimePoint> avoid_until_;  // (child, aggregator)
  std::set<NodeId> displaced_;                                  // a nearer parent exists than the lease names
  std::set<NodeId> leaving_;                                    // sent home, still connected
  std::set<NodeId> void_leases_;                                // of members that have enrolled anew since
};

}  // namespace fluvial::coordinator
