#include "core/wire/report_mapping.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "core/base/clock_limits.h"
#include "core/wire/mapping.h"

namespace fluvial::wire {
namespace {

constexpr std::int64_t kTimeNsMax = kClockFarthest.count();  // sums of two fit
constexpr std::uint64_t kLastedNsMax = 7 * 86'400'000'000'000ULL;
constexpr std::int64_t kWallMsMax = std::int64_t{1} << 43;  // the year 2248: as nanoseconds it fits a Duration
constexpr std::int64_t kMicroseconds = 1'000;

Error wrong_report(std::string message) { return {Code::kInvalidArgument, "a report " + std::move(message)}; }

bool is_near(std::int64_t nanoseconds) { return nanoseconds >= -kTimeNsMax && nanoseconds <= kTimeNsMax; }
std::int64_t ns_of(TimePoint time) { return time.time_since_epoch().count(); }

std::string note_of(std::string_view text) {
  std::string note = printable(text);
  if (note.size() <= round::kNoteBytesMax) return note;
  std::size_t end = round::kNoteBytesMax;
  while (end > 0 && (static_cast<unsigned char>(note[end]) & 0xc0) == 0x80) --end;  // not within a character
  note.resize(end);
  return note;
}

bool fits(const round::Span& span) {
  const std::int64_t lasted = ns_of(span.ended) - ns_of(span.begun);
  return is_near(ns_of(span.begun)) && lasted >= 0 && static_cast<std::uint64_t>(lasted) <= kLastedNsMax;
}

// Never an empty message: what a header may hold of messages goes by its size (frame.cc).
void to_proto(const round::RoundSpans& spans, v1::NodeReport* out) {
  v1::RoundSpans* message = nullptr;
  for (const round::Span& span : spans.spans) {
    if (!fits(span)) continue;
    if (message == nullptr) message = out->add_rounds();
    message->add_kind(static_cast<std::uint32_t>(span.kind));
    message->add_about(span.about.value());
    message->add_begun_ns(ns_of(span.begun));
    message->add_lasted_ns(static_cast<std::uint64_t>(ns_of(span.ended) - ns_of(span.begun)));
  }
  if (message == nullptr) return;
  message->set_run(spans.run.value());
  message->set_round(spans.round.value());
}

v1::NodeReport to_proto(const round::NodeReport& report) {
  v1::NodeReport out;
  out.set_node(report.node.value());
  out.set_doing(static_cast<v1::Doing>(report.doing));
  out.set_doing_for_us(static_cast<std::uint64_t>(std::max<std::int64_t>(0, report.doing_for.count() / kMicroseconds)));
  out.set_run(report.run.value());
  out.set_round(report.round.value());
  out.set_workers(report.workers);
  out.set_done_bytes(report.done_bytes);
  out.set_total_bytes(report.total_bytes);
  out.set_bytes_up(report.bytes_up);
  out.set_bytes_down(report.bytes_down);
  out.set_note(note_of(report.note));
  if (report.certificate_ends) {
    const std::int64_t ends_ms = report.certificate_ends->time_since_epoch().count();
    if (ends_ms > 0 && ends_ms <= kWallMsMax) out.set_certificate_ends_ms(ends_ms);
  }
  if (report.clock && is_near(report.clock->offset.count()) && is_near(report.clock->uncertainty.count())) {
    out.set_clock_offset_ns(report.clock->offset.count());
    out.set_clock_uncertainty_ns(static_cast<std::uint64_t>(report.clock->uncertainty.count()));
  } else {
    out.set_clock_unknown(true);
  }
  for (const round::RoundSpans& spans : report.rounds) to_proto(spans, &out);
  return out;
}

Result<round::RoundSpans> spans_from_proto(const v1::RoundSpans& message) {
  const int count = message.kind_size();
  if (static_cast<std::size_t>(count) > round::kSpansInRoundMax) return wrong_report("with too many spans of a round");
  if (message.about_size() != count || message.begun_ns_size() != count || message.lasted_ns_size() != count) {
    return wrong_report("whose lists of spans do not fit together");
  }
  round::RoundSpans spans{RunId(message.run()), RoundId(message.round()), {}};
  spans.spans.reserve(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) {
    if (!is_near(message.begun_ns(i)) || message.lasted_ns(i) > kLastedNsMax) {
      return wrong_report("with a time that no clock shows");
    }
    const auto kind = round::span_kind_from_number(message.kind(i));
    if (!kind) continue;
    const TimePoint begun{Duration(message.begun_ns(i))};
    spans.spans.push_back(
        {*kind, NodeId(message.about(i)), begun, begun + Duration(static_cast<std::int64_t>(message.lasted_ns(i)))});
  }
  return spans;
}

Result<round::NodeReport> node_from_proto(const v1::NodeReport& message) {
  if (message.node() == 0) return wrong_report("about nobody");
  if (static_cast<std::size_t>(message.rounds_size()) > round::kReportedRoundsMax)
    return wrong_report("of too many rounds");
  round::NodeReport report;
  report.node = NodeId(message.node());
  if (message.doing() > 0 && message.doing() <= static_cast<int>(round::Doing::kMerging)) {
    report.doing = static_cast<round::Doing>(message.doing());
  }
  report.doing_for = Duration(static_cast<std::int64_t>(
      std::min(message.doing_for_us(), static_cast<std::uint64_t>(kTimeNsMax / kMicroseconds)) * kMicroseconds));
  report.run = RunId(message.run());
  report.round = RoundId(message.round());
  report.workers = message.workers();
  report.done_bytes = message.done_bytes();
  report.total_bytes = message.total_bytes();
  report.bytes_up = message.bytes_up();
  report.bytes_down = message.bytes_down();
  report.note = note_of(message.note());
  const std::int64_t ends = message.certificate_ends_ms();
  if (ends < 0 || ends > kWallMsMax) return wrong_report("with a certificate's end that no calendar has");
  if (ends != 0) report.certificate_ends = WallTime(std::chrono::milliseconds(ends));
  if (!is_near(message.clock_offset_ns()) || message.clock_uncertainty_ns() > static_cast<std::uint64_t>(kTimeNsMax)) {
    return wrong_report("with a clock that is nowhere near");
  }
  report.clock = round::ClockDistance{Duration(message.clock_offset_ns()),
                                      Duration(static_cast<std::int64_t>(message.clock_uncertainty_ns()))};
  if (message.clock_unknown()) report.clock.reset();
  for (const v1::RoundSpans& spans : message.rounds()) {
    FLUVIAL_ASSIGN(round::RoundSpans one, spans_from_proto(spans));
    if (!one.spans.empty()) report.rounds.push_back(std::move(one));
  }
  return report;
}

}  // namespace

std::vector<v1::Envelope> to_envelopes(const std::vector<round::NodeReport>& reports) {
  std::vector<v1::Envelope> out;
  for (const round::NodeReport& report : reports) {
    if (out.empty() || static_cast<std::size_t>(out.back().report().nodes_size()) == kReportedNodesMax) {
      out.emplace_back();
    }
    *out.back().mutable_report()->add_nodes() = to_proto(report);
  }
  return out;
}

Result<std::vector<round::NodeReport>> from_proto(const v1::Report& message) {
  if (static_cast<std::size_t>(message.nodes_size()) > kReportedNodesMax) {
    return wrong_report("about more than " + std::to_string(kReportedNodesMax) + " nodes");
  }
  std::vector<round::NodeReport> reports;
  for (const v1::NodeReport& one : message.nodes()) {
    FLUVIAL_ASSIGN(round::NodeReport report, node_from_proto(one));
    reports.push_back(std::move(report));
  }
  return reports;
}

}  // namespace fluvial::wire
