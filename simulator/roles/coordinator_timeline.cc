// What is held to the truth of what nodes report: their clocks, and the timeline of a round.
#include <algorithm>
#include <string>
#include <vector>

#include "coordinator/logic/timeline.h"
#include "core/base/format.h"
#include "simulator/roles/coordinator.h"

namespace fluvial::simulator {
namespace {

// By how much two clocks run apart here in the time that a report may wait on its way.
Duration drifted(const Scenario& scenario) {
  constexpr Duration kOnItsWay = std::chrono::minutes(2);
  return Duration(static_cast<Duration::rep>(2.2e-6 * scenario.faults.clock.drift_ppm_max *
                                             static_cast<double>(kOnItsWay.count())));
}

std::string ms(Duration time) {
  return std::to_string(std::chrono::duration<double, std::milli>(time).count()) + " ms";
}

}  // namespace

// The sum of what was measured on each edge of the way is within the sum of the uncertainties.
void CoordinatorRole::check_clock(const round::NodeReport& report) {
  constexpr Duration kBootIsTold = std::chrono::minutes(1);  // nothing from before is on its way any more
  if (is_dead() || !report.clock || cast_.has_clones()) return;
  const auto& hosts = world().hosts();
  const auto host =
      std::ranges::find_if(hosts, [&](const Host& one) { return cast_.identity(one.id).node == report.node; });
  if (host == hosts.end()) return;
  for (const Host& one : hosts) {
    const TimePoint booted = world().clock(one.id).booted();
    if (booted > TimePoint() && world().scheduler().now() < booted + kBootIsTold) return;
  }
  const Duration truth = world().clock(host->id).now() - world().clock(this->host()).now();
  const Duration wrong = std::chrono::abs(report.clock->offset - truth);
  if (wrong <= report.clock->uncertainty + drifted(cast_.scenario())) return;
  world().violate("timeline", host->name + "'s clock is " + ms(wrong) + " from where it is said to be, within " +
                                  ms(report.clock->uncertainty));
}

void CoordinatorRole::check_timeline(RunId run, RoundId round) {
  const coordinator::RoundTrace* trace = traces().find(run, round);
  if (trace == nullptr) return;
  const auto violated = [&](const std::string& what) {
    world().violate("timeline", format_text("round {}: {}", round.value(), what));
  };
  Duration sum{};
  for (const coordinator::CriticalStep& step : coordinator::critical_path(*trace)) {
    if (step.time <= Duration(0)) violated("a step of its critical path takes " + ms(step.time));
    sum += step.time;
  }
  if (sum != trace->committed - trace->opened) {
    violated("its critical path takes " + ms(sum) + ", it took " + ms(trace->committed - trace->opened));
  }
  // A round of a process before this one, or of a history that is lost, may have begun at its sites long ago.
  const bool is_first =
      trace->attempt == AttemptId(1) && !cast_.has_clones() && cast_.scenario().faults.upkeep.restores_per_minute == 0;
  for (const auto& [id, node] : trace->nodes) {
    const Duration right_to = node.uncertainty + drifted(cast_.scenario());
    TimePoint made_until = TimePoint::min(), trained_until = TimePoint::min();  // another clock may be behind ours
    // What a site trained before it was asked anew goes into the residual beside what it trains now.
    const auto trained = std::ranges::count(node.spans, round::SpanKind::kTrain, &round::Span::kind);
    for (const round::Span& span : node.spans) {
      const std::string name = format_text("{} at node {}", round::span_name(span.kind), std::uint64_t{id.value()});
      if (span.ended < span.begun) violated(name + " ends before it begins");
      if (is_first && span.kind != round::SpanKind::kFetch && span.begun < trace->opened - right_to) {
        violated(name + " begins " + ms(trace->opened - span.begun) + " before its round, right to " + ms(right_to));
      }
      const bool makes = span.kind == round::SpanKind::kTrain || span.kind == round::SpanKind::kReduce ||
                         span.kind == round::SpanKind::kEncode || span.kind == round::SpanKind::kPersist;
      if (!makes || trained > 1) continue;
      // A codec that looks at a chunk alone encodes p as it is made.
      const TimePoint until = span.kind == round::SpanKind::kEncode ? trained_until : made_until;
      if (span.begun < until && !cast_.has_clones()) violated(name + " overlaps with what was made before it");
      made_until = std::max(made_until, span.ended);
      if (span.kind == round::SpanKind::kTrain) trained_until = span.ended;
    }
  }
}

}  // namespace fluvial::simulator
