#include "coordinator/service/run_members.h"

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <map>
#include <utility>

namespace fluvial::coordinator {
namespace {

constexpr Duration kLookPause = std::chrono::milliseconds(10);  // each look goes over all sites
constexpr Duration kNotHeard = std::chrono::minutes(1);         // about a site, who accused it and showed nothing

}  // namespace

RunMembers::RunMembers(tree::Runtime& runtime, net::TaskGroup& tasks, Registry& registry, RunObserver& observer,
                       tree::Hub& hub, const tree::ParentSide& side, const Authorship& authorship, RunHost& host)
    : runtime_(runtime),
      tasks_(tasks),
      registry_(registry),
      observer_(observer),
      hub_(hub),
      side_(side),
      authorship_(authorship),
      host_(host),
      look_(runtime.strand, kLookPause, [this] { look(); }),
      home_timer_(runtime.strand) {}

void RunMembers::stop() {
  look_.stop();
  home_timer_.cancel();
}

RunMachine* RunMembers::machine() {
  ActiveRun* const run = host_.current();
  return run == nullptr ? nullptr : &run->machine;
}

// ---- who is here --------------------------------------------------------------------------------------------------

void RunMembers::changed(const std::vector<SiteId>& sites_up) {
  sites_up_.insert(sites_up_.end(), sites_up.begin(), sites_up.end());
  look_.ask();
}

void RunMembers::look() {
  const std::vector<SiteId> sites_up = std::exchange(sites_up_, {});
  std::size_t sites = 0;
  for (const auto& [id, member] : registry_.book().members()) sites += member.role == Role::kSite ? 1 : 0;
  observer_.members_changed(sites, registry_.book().members().size() - sites);
  if (const RunMachine* run = machine(); run != nullptr && run->is_open()) tell_moved(sites_up);
  tell_sites();
  if (!home_at_) send_home();
}

void RunMembers::tell_sites() {
  if (RunMachine* run = machine()) {
    host_.carry_out(run->sites_changed(registry_.book().connected_sites(), now()));
  }
}

// Nodes may have moved since the run's open attempt was recorded: the leases are the authority.
void RunMembers::taken_up() {
  RunMachine& run = *machine();
  std::map<SiteId, Epoch> leases;
  for (const round::Participant& participant : run.attempt().participants) {
    if (const auto* lease = registry_.book().lease_of(participant.site)) leases[participant.site] = lease->epoch;
  }
  host_.carry_out(run.leases_changed(leases));
  host_.carry_out(run.begin(now()));
  tell_sites();
}

// The children that the sites are below now, and those that were told of them before.
void RunMembers::tell_moved(const std::vector<SiteId>& sites) {
  std::set<NodeId> children;
  for (const NodeId child : side_.told_of(sites)) children.insert(child);
  for (const SiteId site : sites) {
    if (machine()->gather().is_participant(site)) children.insert(via(site));
  }
  children.erase(NodeId(0));  // of a site that has gone again
  host_.send_openings(children);
}

void RunMembers::node_moved(NodeId node, Epoch lease) {
  RunMachine* const run = machine();
  if (run == nullptr) return;
  if (run->gather().is_participant(node)) {
    host_.carry_out(run->leases_changed({{node, lease}}));
  } else if (run->is_open()) {  // an aggregator, with everybody below it
    std::vector<SiteId> sites;
    for (const round::Participant& participant : run->attempt().participants) {
      if (via(participant.site) != NodeId(0)) sites.push_back(participant.site);
    }
    tell_moved(sites);
  }
  look_.act_now();  // whoever was here by the way of before is not
}

// ---- who goes -----------------------------------------------------------------------------------------------------

// Between rounds at once; while a round is in progress its commit looks (leave_for_home).
void RunMembers::send_home() {
  home_at_.reset();
  const RunMachine* const run = machine();
  if (run == nullptr || run->is_between_rounds()) {
    const std::vector<NodeId> home = registry_.send_home();
    send(home);
    if (!home.empty()) tell_sites();
  }
  home_at_ = registry_.book().next_home(now());
  if (!home_at_) return;
  home_timer_.after(*home_at_ - now(), [this] { send_home(); });
}

std::vector<NodeId> RunMembers::leave_for_home() {
  std::vector<NodeId> home = registry_.send_home();
  if (!home.empty()) tell_sites();
  return home;
}

void RunMembers::way_of(NodeId node, std::map<NodeId, NodeId>* parents) const {
  while (node != NodeId(0) && !parents->contains(node)) {
    const LeaseEntry* lease = registry_.book().lease_of(node);
    const NodeId parent = lease == nullptr ? NodeId(0) : lease->parent;
    (*parents)[node] = parent;
    node = parent;
  }
}

void RunMembers::dismiss(const std::vector<NodeId>& nodes, const Error& reason) {
  std::map<NodeId, v1::Envelope> deeper;
  for (const NodeId node : nodes) {
    observer_.sent_away(node, reason);
    if (hub_.children().contains(node)) {
      hub_.cut(node, reason);
      continue;
    }
    deeper[registry_.book().branch(node)].mutable_member_change()->add_down(node.value());
  }
  for (auto& [child, message] : deeper) hub_.send(child, std::move(message));
}

void RunMembers::revoked(NodeId node) {
  const round::Refusal refusal = registry_.book().revocation_of(node);
  dismiss({node}, {Code::kPermissionDenied, refusal.error.message});
  if (RunMachine* run = machine()) host_.carry_out(run->shut_out(refusal, now()));
  look_.act_now();
}

void RunMembers::replaced(NodeId node) {
  dismiss({node},
          {Code::kPermissionDenied, registry_.book().name_of(node) + " has enrolled anew: this certificate is void"});
  look_.act_now();
}

// ---- quarantine ---------------------------------------------------------------------------------------------------

// One examination of each accuser at a time: an accusation costs its accuser a message, and the root two signatures.
void RunMembers::accused(NodeId by, RunId run, RoundId round, std::vector<round::Refusal> conflicts) {
  if (examined_.contains(by)) return;
  std::erase_if(not_heard_until_, [this](const auto& one) { return now() >= one.second; });
  std::erase_if(conflicts, [&](const round::Refusal& one) {
    const bool is_signed = one.proof.size() == 2 && one.proof[0].signature && one.proof[1].signature;
    return !is_signed || registry_.book().is_quarantined(one.site) || not_heard_until_.contains({by, one.site});
  });
  if (conflicts.empty()) return;
  examined_.insert(by);
  tasks_.spawn(runtime_.strand, "quarantine", examine(by, run, round, std::move(conflicts)));
}

// Whoever brings it forward may lie: an aggregator could shut out any site of its region for good.
net::Awaitable<void> RunMembers::examine(NodeId by, RunId run, RoundId round, std::vector<round::Refusal> conflicts) {
  struct Lie {
    std::size_t at;
    Error why;
  };
  std::vector<Lie> lies;
  const Status examined = co_await runtime_.pool.run([&]() -> Status {
    for (std::size_t i = 0; i < conflicts.size(); ++i) {
      const round::Refusal& one = conflicts[i];
      const Status is = authorship_.is_contradiction(run, one.own_round(round), one.site, one.proof);
      if (!is.ok()) lies.push_back({i, is.error()});
    }
    return {};
  });
  for (const Lie& lie : lies) not_heard_until_[{by, conflicts[lie.at].site}] = now() + kNotHeard;
  if (!examined.ok()) lies.assign(conflicts.size(), {0, examined.error()});  // none was looked at
  examined_.erase(by);
  if (!lies.empty()) {
    observer_.contradictions_not_shown(by, conflicts[lies.front().at], lies.front().why, lies.size());
  }
  for (std::size_t i = 0; i < conflicts.size() && examined.ok(); ++i) {
    if (std::ranges::find(lies, i, &Lie::at) != lies.end()) continue;
    co_await quarantine(conflicts[i].site, conflicts[i].error.message);
  }
}

net::Awaitable<void> RunMembers::quarantine(SiteId site, std::string reason) {
  if (registry_.book().is_quarantined(site)) co_return;
  observer_.quarantined(site, reason);
  const Status kept = co_await registry_.quarantine(site, std::move(reason));
  if (!kept.ok()) observer_.quarantine_not_recorded(site, kept.error());
  quarantine_changed();
  if (kept.ok()) observer_.quarantine_recorded(site);
}

void RunMembers::quarantine_changed() {
  const auto& nodes = registry_.book().nodes();
  observer_.quarantine_counted(static_cast<std::size_t>(
      std::ranges::count_if(nodes, [](const auto& entry) { return entry.second.quarantined_at.has_value(); })));
  tell_sites();
}

// They are not waited for.
void RunMembers::refuse_barred() {
  RunMachine& run = *machine();
  for (const round::Refusal& refusal : registry_.book().barred_among(run.attempt().participants)) {
    host_.carry_out(run.refused(refusal, now()));
  }
}

}  // namespace fluvial::coordinator
