// Who takes part in the run as members come, move, go home and misbehave. On the node's strand.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/service/authorship.h"
#include "coordinator/service/registry.h"
#include "coordinator/service/run_host.h"
#include "coordinator/service/run_observer.h"
#include "core/net/task_group.h"
#include "core/net/throttle.h"
#include "core/net/timer.h"
#include "core/tree/parent_side.h"

namespace fluvial::coordinator {

class RunMembers {
 public:
  RunMembers(tree::Runtime& runtime, net::TaskGroup& tasks, Registry& registry, RunObserver& observer, tree::Hub& hub,
             const tree::ParentSide& side, const Authorship& authorship, RunHost& host);

  void stop();

  // ---- what happens to members
  void changed(const std::vector<SiteId>& sites_up);  // looked at soon, with others'
  void node_moved(NodeId node, Epoch lease);          // granted, durably
  void revoked(NodeId node);                          // durably
  void replaced(NodeId node);  // it has enrolled anew: whoever came with its old certificate goes
  // Sites are said to contradict themselves in this round (kConflict). They go into quarantine if the contents that
  // `by` brings forward are their own. Whoever says of a site what is not shown is not heard about it for a while:
  // about others it is, since the site itself may have sent it the false content.
  void accused(NodeId by, RunId run, RoundId round, std::vector<round::Refusal> conflicts);
  void quarantine_changed();  // a quarantine was lifted

  // ---- what the run asks for
  void taken_up();       // the run learns who is here, and under which lease
  void refuse_barred();  // an attempt has all participants of the ones before it, also who was shut out since
  void tell_moved(const std::vector<SiteId>& sites);
  // Between its rounds: who goes to a nearer parent. They are to be told of the round's commit before they go.
  std::vector<NodeId> leave_for_home();
  // Adds the node's parent by its lease, and theirs, up to the coordinator.
  void way_of(NodeId node, std::map<NodeId, NodeId>* parents) const;
  void send(const std::vector<NodeId>& home) { dismiss(home, {Code::kStale, "a nearer parent serves"}); }

 private:
  // Ends their sessions with us, or with whoever is their parent below us.
  void dismiss(const std::vector<NodeId>& nodes, const Error& reason);
  void look();
  void send_home();
  void tell_sites();
  net::Awaitable<void> examine(NodeId by, RunId run, RoundId round, std::vector<round::Refusal> conflicts);
  net::Awaitable<void> quarantine(SiteId site, std::string reason);
  RunMachine* machine();
  NodeId via(SiteId site) const { return registry_.book().branch(site); }
  TimePoint now() const { return runtime_.clock.now(); }

  tree::Runtime& runtime_;
  net::TaskGroup& tasks_;
  Registry& registry_;
  RunObserver& observer_;
  tree::Hub& hub_;
  const tree::ParentSide& side_;
  const Authorship& authorship_;
  RunHost& host_;
  std::vector<SiteId> sites_up_;                                    // since the last look
  std::set<NodeId> examined_;                                       // whose accusations are being examined
  std::map<std::pair<NodeId, SiteId>, TimePoint> not_heard_until_;  // about this site
  net::Throttle look_;
  net::Timer home_timer_;
  std::optional<TimePoint> home_at_;  // when it fires
};

}  // namespace fluvial::coordinator
