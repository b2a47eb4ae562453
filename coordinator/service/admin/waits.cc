#include "coordinator/service/admin/waits.h"

#include <algorithm>
#include <boost/json.hpp>
#include <utility>

#include "coordinator/logic/pause_cause.h"
#include "coordinator/logic/tiers.h"
#include "coordinator/service/json.h"
#include "core/round/window_goal.h"

namespace fluvial::coordinator::admin {
namespace {

namespace json = boost::json;

Absence reason(std::string words, std::string advice = "") {
  Absence absence;
  absence.reason = std::move(words);
  absence.advice = std::move(advice);
  return absence;
}

std::string update_of(const RunMachine& machine) {
  if (round::is_async(machine.plan())) return "an update of it";
  return "its update of round " + std::to_string(machine.attempt().round.value());
}

// Of a window those alone who need somebody: it commits at its goal, whoever the contributions are from.
void wait_for_round(const Context& admin, const RunMachine& machine, std::vector<Wait>& waits) {
  bool may_any_come = false;
  const round::Gather& gather = machine.gather();
  const bool lacks_quorum = gather.counted().size() + gather.awaited_count() < machine.plan().quorum;
  for (RollCall::Entry& entry : admin.root.runs().roll_call().of(machine)) {
    const AbsenceState state = entry.absence.state;
    const bool is_needed = state == AbsenceState::kAsked && lacks_quorum;
    if (state != AbsenceState::kAwaited && state != AbsenceState::kAway && !is_needed) continue;
    may_any_come = true;
    if (round::is_async(machine.plan()) && entry.absence.is_usual()) continue;
    waits.push_back({admin.name_of(entry.site), update_of(machine), std::move(entry.absence)});
  }
  if (may_any_come) return;
  const std::size_t in = gather.counted().size();
  if (in >= machine.plan().quorum) return;
  waits.push_back({"", "the deadline of the attempt",
                   reason("nobody else will be in, and " + std::to_string(in) + " of " +
                              std::to_string(machine.plan().quorum) + " are",
                          "`fluvial rounds show open` says why each of the others is not")});
}

void wait_for_sites(const Context& admin, const RunMachine& machine, std::vector<Wait>& waits) {
  const std::string wanted = "`fluvial nodes list` shows who there is; the plan's participants say how many it needs";
  std::string missing = machine.reason();
  if (missing.starts_with(kSitesPhrase)) missing.erase(0, kSitesPhrase.size());  // `what` says so
  waits.push_back({"", "sites", reason(std::move(missing), wanted)});
  const Federation& book = admin.book();
  for (const auto& [id, node] : book.nodes()) {
    if (node.role != Role::kSite || node.revoked_at || node.removed_at) continue;
    Absence absence = admin.root.runs().roll_call().outside(id);
    if (absence.state != AbsenceState::kIn) waits.push_back({node.name, "its session", std::move(absence)});
  }
}

json::object wait_object(const Wait& wait) {
  return {{"node", wait.node},
          {"what", wait.what},
          {"since", time_json(wait.absence.since)},
          {"reason", wait.absence.reason},
          {"do", wait.absence.advice},
          {"severity", wait.absence.is_usual() ? "info" : "warning"},
          {"doing", doing_json(wait.absence.activity)},
          {"progress", progress_json(wait.absence.activity)}};
}

MemberFacts member_facts(const Context& admin, const NodeEntry& node) {
  const Federation& book = admin.book();
  const RollCall& calls = admin.root.runs().roll_call();
  MemberFacts facts;
  facts.name = node.name;
  facts.role = node.role;
  facts.stay = calls.stay_of(node.id);
  if (node.quarantined_at) facts.quarantine = node.quarantine_reason;
  facts.quarantined_at = node.quarantined_at;
  const auto& ahead = admin.root.registry().ahead();
  if (const auto found = ahead.find(node.id); found != ahead.end()) facts.ahead = found->second;
  facts.held_twice = admin.root.registry().holders().are_two(node.id, admin.runtime.clock.now());
  if (facts.stay.here) {
    if (const auto detour = book.detour_of(node.id, admin.runtime.clock.now())) {
      facts.past = book.name_of(detour->past);
      facts.past_reason = detour->reason;
    }
  }
  if (const auto activity = calls.activity_of(node.id)) {
    if (node.role == Role::kSite) facts.workers = activity->workers;
    facts.certificate_ends = activity->certificate_ends;
    facts.wall_offset = activity->wall_offset;
  }
  const ActiveRun* active = admin.root.runs().active();
  facts.too_heavy = active != nullptr && active->machine.is_too_heavy(node.id);
  const round::SitePace* pace = active != nullptr ? active->machine.pace().find(node.id) : nullptr;
  if (active != nullptr && facts.stay.here) {
    const round::Attendance& attendance = active->machine.attendance();
    facts.silent = attendance.of(node.id) == round::Expected::kSilent;
    if (attendance.of(node.id) == round::Expected::kYes) {
      facts.uncounted = uncounted(active->machine.plan(), attendance.missed(node.id));
    }
  }
  const bool is_waited_for = active != nullptr && !round::is_async(active->machine.plan());  // windows wait for nobody
  if (is_waited_for && pace != nullptr && pace->straggler) facts.straggler_score = pace->score;
  return facts;
}

RunFacts run_facts(const Context& admin, const RunMachine& machine) {
  RunFacts facts;
  facts.run = machine.run();
  facts.paused = machine.status() == RunStatus::kPaused;
  facts.by_person = facts.paused && is_by_person(machine.reason());
  if (facts.paused) facts.reason = machine.reason();
  if (!facts.paused && machine.is_between_rounds()) facts.waits = machine.reason();
  facts.quorum = machine.plan().quorum;
  if (!machine.is_open()) return facts;
  facts.round = machine.attempt().round;
  facts.attempt = machine.attempt().attempt.value();
  facts.in = machine.gather().counted().size();
  const auto& members = admin.book().members();
  facts.may_come = static_cast<std::uint64_t>(
      std::ranges::count_if(machine.gather().awaited(), [&](SiteId site) { return members.contains(site); }));
  return facts;
}

}  // namespace

std::vector<Wait> waits_of(const Context& admin) {
  std::vector<Wait> waits;
  const ActiveRun* active = admin.root.runs().active();
  if (active == nullptr || is_over(active->machine.status())) return waits;
  const RunMachine& machine = active->machine;
  if (machine.status() == RunStatus::kPaused) {
    waits.push_back({"", "a person", reason(machine.reason(), "`fluvial run resume`, once the cause is removed")});
  } else if (machine.is_open()) {
    wait_for_round(admin, machine, waits);
  } else if (machine.is_between_rounds() && !machine.reason().empty()) {
    wait_for_sites(admin, machine, waits);
  } else {
    waits.push_back(
        {"coordinator", "its disk", reason("writing round " + std::to_string(machine.attempt().round.value()))});
  }
  return waits;
}

json::array waits_json(const Context& admin) {
  const std::vector<Wait> waits = waits_of(admin);
  json::array told;
  for (std::size_t i = 0; i < std::min(waits.size(), kToldMax); ++i) told.push_back(wait_object(waits[i]));
  if (waits.size() > kToldMax) {
    const std::string more = "and " + std::to_string(waits.size() - kToldMax) + " more";
    told.push_back(wait_object({"", "others", reason(more)}));
  }
  return told;
}

json::array tiers_json(const Context& admin) {
  std::vector<Transfer> transfers;
  for (const auto& [id, member] : admin.book().members()) {
    auto activity = admin.root.runs().roll_call().activity_of(id);
    const Role parent = member.parent == NodeId(0) ? Role::kCoordinator : Role::kAggregator;
    if (activity) transfers.push_back({member.role, parent, std::move(*activity)});
  }
  json::array told;
  for (const TierProgress& tier : tiers(transfers)) {
    json::object one{{"child", role_name(tier.child)},
                     {"parent", role_name(tier.parent)},
                     {"doing", doing_name(tier.doing)},
                     {"nodes", tier.nodes},
                     {"done_bytes", tier.done_bytes},
                     {"total_bytes", tier.total_bytes},
                     {"eta_s", nullptr}};
    if (tier.left_s) one["eta_s"] = *tier.left_s;
    told.push_back(std::move(one));
  }
  return told;
}

void add_pass(const RunMachine& machine, json::object& open) {
  const std::optional<round::Pass> pass = machine.pass();
  if (pass && pass->count > 1) open["pass"] = {{"index", pass->index}, {"count", pass->count}};
}

void add_mode(const RunMachine& machine, json::object& open) {
  const round::Plan& plan = machine.plan();
  open["mode"] = plan.mode;
  if (!round::is_async(plan)) return;
  open["goal"] = round::window_goal_told(plan.async_goal, machine.attempt().participants.size());
}

json::value open_json(const Context& admin, const RunMachine& machine) {
  if (!machine.is_open()) return nullptr;
  const TimePoint now = admin.runtime.clock.now();
  json::array awaited;
  for (const SiteId site : machine.gather().awaited()) awaited.emplace_back(admin.name_of(site));
  json::object open{{"round", machine.attempt().round.value()},
                    {"attempt", machine.attempt().attempt.value()},
                    {"participants", machine.attempt().participants.size()},
                    {"quorum", machine.plan().quorum},
                    {"open_s", std::chrono::duration<double>(now - machine.opened_at()).count()},
                    {"in", machine.gather().counted().size()},
                    {"awaited", std::move(awaited)},
                    {"soft_left_s", seconds_until(machine.soft_deadline(), now)},
                    {"hard_left_s", seconds_until(machine.hard_deadline(), now)},
                    {"tiers", tiers_json(admin)}};
  add_mode(machine, open);
  add_pass(machine, open);
  return open;
}

std::string waits_line(const Context& admin, const RunMachine& machine) {
  json::object line{{"event", "waits"},
                    {"run", machine.run().value()},
                    {"committed", machine.last_committed().value()},
                    {"open", nullptr},
                    {"waits", waits_json(admin)}};
  if (machine.is_open()) {
    json::object open{{"round", machine.attempt().round.value()},
                      {"attempt", machine.attempt().attempt.value()},
                      {"participants", machine.attempt().participants.size()},
                      {"quorum", machine.plan().quorum},
                      {"in", machine.gather().counted().size()}};
    add_mode(machine, open);
    add_pass(machine, open);
    line["open"] = std::move(open);
  }
  return json::serialize(line);
}

Situation facts_of(const Context& admin) {
  Situation facts;
  facts.now = admin.runtime.clock.wall_now();
  const auto validity = admin.root.registry().renewal_terms().validity;
  if (validity > Duration(0)) facts.certificate_validity = validity;
  if (admin.authorities != nullptr) {
    const auto authority = admin.authorities->live()->current();
    facts.authority_began = authority->certificate().not_before();
    facts.authority_ends = authority->end();
  }
  facts.storage_fault = admin.root.runs().fault();
  const ActiveRun* active = admin.root.runs().active();
  if (active != nullptr && !is_over(active->machine.status())) facts.run = run_facts(admin, active->machine);
  facts.staging_bytes = admin.root.hub().budget().bytes_used();
  facts.staging_bytes_max = admin.root.hub().budget().bytes_max();
  for (const auto& [id, node] : admin.book().nodes()) {
    if (!node.revoked_at && !node.removed_at) facts.members.push_back(member_facts(admin, node));
  }
  return facts;
}

json::array problems_json(const Context& admin) {
  std::vector<Problem> found = problems(facts_of(admin));
  if (found.size() > kToldMax) {
    const std::string more = "and " + std::to_string(found.size() - kToldMax) + " more";
    found.resize(kToldMax);
    found.push_back({Severity::kWarning, more, "", {}, "`fluvial nodes list` shows every member", ""});
  }
  json::array told;
  for (const Problem& problem : found) {
    told.push_back({{"severity", problem.severity == Severity::kError ? "error" : "warning"},
                    {"what", problem.what},
                    {"node", problem.node},
                    {"since", time_json(problem.since)},
                    {"do", problem.advice},
                    {"runbook", problem.runbook.empty() ? "" : "docs/operations/" + problem.runbook}});
  }
  return told;
}

json::value progress_json(const std::optional<Activity>& activity) {
  if (!activity || activity->total_bytes == 0) return nullptr;
  json::object progress{
      {"done_bytes", activity->done_bytes}, {"total_bytes", activity->total_bytes}, {"eta_s", nullptr}};
  if (activity->left_s) progress["eta_s"] = *activity->left_s;
  return progress;
}

json::value doing_json(const std::optional<Activity>& activity) {
  if (!activity) return nullptr;
  return json::string(doing_name(activity->doing));
}

double seconds_until(TimePoint then, TimePoint now) {
  return std::chrono::duration<double>(std::max(Duration(0), then - now)).count();
}

json::value time_json(const std::optional<WallTime>& time) {
  if (!time) return nullptr;
  return json::string(utc(*time));
}

}  // namespace fluvial::coordinator::admin
