#include "coordinator/service/member_gauges.h"

namespace fluvial::coordinator {
namespace {

using Values = std::map<telemetry::Labels, double>;

telemetry::Labels labels_of(const NodeEntry& node) {
  return {{"role", std::string(role_name(node.role))}, {"member", node.name}};
}

double seconds(std::chrono::duration<double> time) { return time.count(); }

// Those that there is room for.
void put(Values& values, telemetry::Labels labels, double value) {
  if (values.size() < telemetry::NamedGauges::kSeriesMax) values[std::move(labels)] = value;
}

}  // namespace

MemberGauges::MemberGauges(tree::Runtime& runtime, const Registry& registry, const tree::Hub& hub,
                           const RollCall& roll_call)
    : runtime_(runtime),
      registry_(registry),
      hub_(hub),
      roll_call_(roll_call),
      sites_enrolled_(runtime.metrics.gauge("members_enrolled", {{"role", "site"}})),
      aggregators_enrolled_(runtime.metrics.gauge("members_enrolled", {{"role", "aggregator"}})),
      sites_available_(runtime.metrics.gauge("sites_available")),
      sites_without_workers_(runtime.metrics.gauge("sites_without_workers")),
      past_aggregator_count_(runtime.metrics.gauge("members_past_aggregator")),
      held_twice_(runtime.metrics.gauge("identities_held_twice")),
      connected_(runtime.metrics, "member_connected"),
      certificate_ends_(runtime.metrics, "member_certificate_expiry_timestamp_seconds"),
      clock_offsets_(runtime.metrics, "clock_offset_seconds"),
      past_aggregator_(runtime.metrics, "member_past_aggregator"),
      quarantined_(runtime.metrics, "site_quarantined") {
  measuring_ = runtime.metrics.before_render([this] { measure(); });
}

void MemberGauges::measure() {
  measure_nodes();
  measure_reports();
  measure_detours();
  held_twice_.set(static_cast<double>(registry_.holders().held_twice(runtime_.clock.now()).size()));
  sites_available_.set(static_cast<double>(registry_.book().connected_sites().size()));
}

void MemberGauges::measure_nodes() {
  const Federation& book = registry_.book();
  std::size_t sites = 0;
  std::size_t aggregators = 0;
  Values connected, certificate_ends, quarantined;
  for (const auto& [id, node] : book.nodes()) {
    if (node.revoked_at || node.removed_at) continue;
    ++(node.role == Role::kSite ? sites : aggregators);
    put(connected, labels_of(node), book.members().contains(id) ? 1 : 0);
    if (node.quarantined_at) put(quarantined, {{"site", node.name}}, 1);
    if (const auto end = certificate_end(id)) put(certificate_ends, labels_of(node), seconds(end->time_since_epoch()));
  }
  sites_enrolled_.set(static_cast<double>(sites));
  aggregators_enrolled_.set(static_cast<double>(aggregators));
  connected_.replace(connected);
  certificate_ends_.replace(certificate_ends);
  quarantined_.replace(quarantined);
}

// Our own children's we have seen; of the others, what they say.
std::optional<WallTime> MemberGauges::certificate_end(NodeId node) const {
  const auto child = hub_.children().find(node);
  if (child != hub_.children().end() && child->second.session->peer()) return child->second.session->member().not_after;
  const auto activity = roll_call_.activity_of(node);
  return activity ? activity->certificate_ends : std::nullopt;
}

void MemberGauges::measure_reports() {
  const Federation& book = registry_.book();
  std::size_t without_workers = 0;
  Values offsets;
  for (const auto& [id, member] : book.members()) {
    const std::optional<Activity> activity = roll_call_.activity_of(id);
    if (!activity) continue;
    if (member.role == Role::kSite && activity->workers == 0) ++without_workers;
    if (activity->wall_offset) put(offsets, {{"member", book.name_of(id)}}, seconds(*activity->wall_offset));
  }
  sites_without_workers_.set(static_cast<double>(without_workers));
  clock_offsets_.replace(offsets);
}

void MemberGauges::measure_detours() {
  const Federation& book = registry_.book();
  Values past;
  std::size_t count = 0;
  for (const auto& [id, member] : book.members()) {
    const auto detour = book.detour_of(id, runtime_.clock.now());
    if (!detour) continue;
    ++count;
    put(past, {{"member", book.name_of(id)}, {"aggregator", book.name_of(detour->past)}}, 1);
  }
  past_aggregator_count_.set(static_cast<double>(count));
  past_aggregator_.replace(past);
}

std::string_view phase_of(bool is_here, const std::optional<Activity>& activity) {
  if (!is_here) return "away";
  if (!activity) return "unknown";
  switch (activity->doing) {
    case Doing::kUnknown: return "unknown";
    case Doing::kIdle:
    case Doing::kWaiting: return activity->workers == 0 ? "no_worker" : "waiting";
    case Doing::kFetching: return "fetching";
    case Doing::kTraining: return activity->workers == 0 ? "no_worker" : "training";
    case Doing::kEncoding:
    case Doing::kFolding:
    case Doing::kResolving: return "encoding";
    case Doing::kSending: return "sending";
    case Doing::kMerging: return "merging";
  }
  return "unknown";
}

}  // namespace fluvial::coordinator
