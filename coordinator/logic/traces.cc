#include "coordinator/logic/traces.h"

#include <algorithm>
#include <ranges>
#include <utility>

namespace fluvial::coordinator {
namespace {

constexpr Duration kAround = std::chrono::hours(1);  // a model may be on its way for long before a round opens

std::size_t span_count(const RoundTrace& trace) {
  std::size_t count = 0;
  for (const auto& [id, node] : trace.nodes) count += node.spans.size();
  return count;
}

}  // namespace

void Traces::committed(Committed round) {
  RoundTrace trace{round.run, round.round, round.attempt, round.opened, round.opened_at, round.committed, {}};
  for (const auto& [node, parent] : round.parents) trace.nodes[node].parent = parent;
  TracedNode& own = trace.nodes[NodeId(0)];
  own.told = true;
  own.spans = std::move(round.spans);
  spans_ += own.spans.size();
  rounds_.push_back(std::move(trace));
  make_room();
}

void Traces::told(const round::NodeReport& report) {
  if (!report.clock || report.node == NodeId(0)) return;
  for (const round::RoundSpans& spans : report.rounds) {
    const auto found = std::ranges::find_if(
        rounds_, [&](const RoundTrace& trace) { return trace.run == spans.run && trace.round == spans.round; });
    if (found != rounds_.end()) spans_ += add(*found, report, spans);
  }
  make_room();
}

std::size_t Traces::add(RoundTrace& trace, const round::NodeReport& report, const round::RoundSpans& spans) const {
  const auto found = trace.nodes.find(report.node);
  if (found == trace.nodes.end()) return 0;
  TracedNode& node = found->second;
  const std::size_t before = node.spans.size();
  TimePoint first = report.heard;
  for (round::Span span : spans.spans) {
    span.begun -= report.clock->offset;
    span.ended -= report.clock->offset;
    if (span.ended < trace.opened - kAround || span.begun > trace.committed + kAround) continue;
    if (node.spans.size() == round::kSpansInRoundMax) break;
    first = std::min(first, span.begun);
    node.spans.push_back(span);
  }
  // Its clock may have run apart from ours between the first of them and the measurement.
  const Duration drifted(static_cast<Duration::rep>(drift_ * static_cast<double>((report.heard - first).count())));
  node.told = true;
  node.offset = report.clock->offset;
  node.uncertainty = std::max(node.uncertainty, report.clock->uncertainty + drifted);
  return node.spans.size() - before;
}

void Traces::make_room() {
  while (rounds_.size() > kRoundsMax || (spans_ > kSpansMax && rounds_.size() > 1)) {
    spans_ -= span_count(rounds_.front());
    rounds_.pop_front();
  }
}

const RoundTrace* Traces::find(RunId run, RoundId round) const {
  for (const RoundTrace& trace : std::views::reverse(rounds_)) {
    if (trace.run == run && trace.round == round) return &trace;
  }
  return nullptr;
}

std::optional<RoundId> Traces::newest(RunId run) const {
  for (const RoundTrace& trace : std::views::reverse(rounds_)) {
    if (trace.run == run) return trace.round;
  }
  return std::nullopt;
}

std::size_t Traces::kept(RunId run) const {
  return static_cast<std::size_t>(std::ranges::count(rounds_, run, &RoundTrace::run));
}

}  // namespace fluvial::coordinator
