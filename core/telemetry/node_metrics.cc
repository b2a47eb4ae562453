#include "core/telemetry/node_metrics.h"

namespace fluvial::telemetry {
namespace {

Labels labels_of(Tier tier) { return {{"tier", tier == Tier::kParent ? "parent" : "children"}}; }

bool has(Role role, Tier tier) { return tier == Tier::kParent ? role != Role::kCoordinator : role != Role::kSite; }

}  // namespace

SessionMetrics::Edge::Edge(Metrics& metrics, Tier tier)
    : frames_in(metrics.counter("frames_received_total", labels_of(tier))),
      frames_out(metrics.counter("frames_sent_total", labels_of(tier))),
      bytes_in(metrics.counter("received_bytes_total", labels_of(tier))),
      bytes_out(metrics.counter("sent_bytes_total", labels_of(tier))),
      outbox_bytes(metrics.gauge("outbox_bytes", labels_of(tier))) {}

SessionMetrics::SessionMetrics(Metrics& metrics)
    : open(metrics.gauge("sessions_open")),
      accepted(metrics.counter("sessions_accepted_total")),
      heartbeat_timeouts(metrics.counter("heartbeat_timeouts_total")),
      metrics_(&metrics) {
  for (const Tier tier : {Tier::kParent, Tier::kChildren}) {
    if (has(metrics.role(), tier)) edges_[static_cast<std::size_t>(tier)].emplace(metrics, tier);
  }
}

void SessionMetrics::moved(Tier tier, const Moved& moved) const {
  const std::optional<Edge>& edge = edges_[static_cast<std::size_t>(tier)];
  if (!edge) return;
  edge->frames_in.add(static_cast<double>(moved.frames_in));
  edge->frames_out.add(static_cast<double>(moved.frames_out));
  edge->bytes_in.add(static_cast<double>(moved.bytes_in));
  edge->bytes_out.add(static_cast<double>(moved.bytes_out));
  edge->outbox_bytes.add(static_cast<double>(moved.outbox_bytes));
}

void SessionMetrics::handshake(std::string_view result) const {
  metrics_->counter("handshakes_total", {{"result", std::string(result)}}).add();
}

void SessionMetrics::session_refused(std::string_view reason) const {
  metrics_->counter("sessions_refused_total", {{"reason", std::string(reason)}}).add();
}

void SessionMetrics::frame_refused(std::string_view reason) const {
  metrics_->counter("frames_refused_total", {{"reason", std::string(reason)}}).add();
}

ParentMetrics::ParentMetrics(Metrics& metrics)
    : connected(metrics.gauge("connected")),
      reconnects(metrics.counter("reconnects_total")),
      distrusted(metrics.counter("parents_distrusted_total")),
      metrics_(&metrics) {}

void ParentMetrics::connect(std::string_view result) const {
  metrics_->counter("parent_connects_total", {{"result", std::string(result)}}).add();
}

EdgeBytes::EdgeBytes(Metrics& metrics, Tier tier)
    : model_bytes(metrics.counter("model_bytes_total", labels_of(tier))), metrics_(&metrics), tier_(tier) {}

void EdgeBytes::update(std::string_view codec, std::uint64_t bytes, std::uint64_t values) const {
  Labels labels = labels_of(tier_);
  labels["codec"] = codec.substr(0, codec.find(':'));
  metrics_->counter("update_bytes_total", labels).add(static_cast<double>(bytes));
  metrics_->counter("update_fp32_bytes_total", labels).add(static_cast<double>(values) * sizeof(float));
}

}  // namespace fluvial::telemetry
