// Who takes part as members come, move and misbehave, and what a failing disk means for the run.
#include <algorithm>
#include <set>
#include <utility>

#include "coordinator/service/run_service.h"

namespace fluvial::coordinator {

void RunService::members_changed(const std::vector<SiteId>& sites_up) {
  sites_up_.insert(sites_up_.end(), sites_up.begin(), sites_up.end());
  look_.ask();
}

void RunService::look_at_members() {
  const std::vector<SiteId> sites_up = std::exchange(sites_up_, {});
  std::size_t sites = 0;
  for (const auto& [id, member] : registry_.book().members()) sites += member.role == Role::kSite ? 1 : 0;
  observer_.members_changed(sites, registry_.book().members().size() - sites);
  if (active_) {
    if (active_->machine.is_open()) tell_moved(sites_up);
    carry_out(active_->machine.sites_changed(registry_.book().connected_sites(), now()));
  }
  if (!home_at_) send_home();
}

// The children that the sites are below now, and those that were told of them before.
void RunService::tell_moved(const std::vector<SiteId>& sites) {
  std::set<NodeId> children;
  for (const NodeId child : side_.told_of(sites)) children.insert(child);
  for (const SiteId site : sites) {
    if (active_->machine.gather().is_participant(site)) children.insert(via(site));
  }
  children.erase(NodeId(0));  // of a site that has gone again
  send_openings(children);
}

void RunService::node_moved(NodeId node, Epoch lease) {
  if (!active_) return;
  if (active_->machine.gather().is_participant(node)) {
    carry_out(active_->machine.leases_changed({{node, lease}}));
  } else if (active_->machine.is_open()) {  // an aggregator, with everybody below it
    std::vector<SiteId> sites;
    for (const round::Participant& participant : active_->machine.attempt().participants) {
      if (via(participant.site) != NodeId(0)) sites.push_back(participant.site);
    }
    tell_moved(sites);
  }
  look_.act_now();  // whoever was here by the way of before is not
}

// Between rounds at once; while a round is in progress its commit looks (record_commit).
void RunService::send_home() {
  home_at_.reset();
  if (!active_ || active_->machine.is_between_rounds()) {
    const std::vector<NodeId> home = registry_.send_home();
    dismiss(home, {Code::kStale, "a nearer parent serves"});
    if (active_ && !home.empty()) {
      carry_out(active_->machine.sites_changed(registry_.book().connected_sites(), now()));
    }
  }
  home_at_ = registry_.book().next_home(now());
  if (!home_at_) return;
  home_timer_.after(*home_at_ - now(), [this] { send_home(); });
}

void RunService::dismiss(const std::vector<NodeId>& nodes, const Error& reason) {
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

void RunService::revoked(NodeId node) {
  const round::Refusal refusal = registry_.book().revocation_of(node);
  dismiss({node}, {Code::kPermissionDenied, refusal.error.message});
  if (active_) carry_out(active_->machine.shut_out(refusal, now()));
  look_.act_now();
}

void RunService::replaced(NodeId node) {
  dismiss({node},
          {Code::kPermissionDenied, registry_.book().name_of(node) + " has enrolled anew: this certificate is void"});
  look_.act_now();
}

// ---- quarantine ---------------------------------------------------------------------------------------------------

void RunService::note_conflict(const round::Refusal& refusal) {
  if (refusal.error.code != Code::kConflict) return;
  tasks_.spawn(runtime_.strand, "quarantine", quarantine(refusal.site, refusal.error.message));
}

net::Awaitable<void> RunService::quarantine(SiteId site, std::string reason) {
  if (registry_.book().is_quarantined(site)) co_return;
  observer_.quarantined(site, reason);
  const Status kept = co_await registry_.quarantine(site, std::move(reason));
  if (!kept.ok()) observer_.quarantine_not_recorded(site, kept.error());
  quarantine_changed();
  if (kept.ok()) observer_.quarantine_recorded(site);
}

void RunService::quarantine_changed() {
  const auto& nodes = registry_.book().nodes();
  observer_.quarantine_counted(static_cast<std::size_t>(
      std::ranges::count_if(nodes, [](const auto& entry) { return entry.second.quarantined_at.has_value(); })));
  if (active_) carry_out(active_->machine.sites_changed(registry_.book().connected_sites(), now()));
}

// An attempt has all participants of the ones before it; those that were revoked or quarantined are not waited for.
void RunService::refuse_barred() {
  for (const round::Refusal& refusal : registry_.book().barred_among(active_->machine.attempt().participants)) {
    carry_out(active_->machine.refused(refusal, now()));
  }
}

// ---- a disk that fails --------------------------------------------------------------------------------------------

void RunService::step_failed(Step step, DiskPart part, Error error) {
  if (part == DiskPart::kJournal) {
    error = health_.with_advice(std::move(error));
  } else {
    health_.models_failed(error.to_string());
  }
  observer_.step_failed(active_->machine.attempt(), part, error);
  carry_out(active_->machine.step_failed(step, error));
}

}  // namespace fluvial::coordinator
