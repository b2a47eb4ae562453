#include "core/round/report.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace fluvial::round {

std::string_view doing_name(Doing doing) {
  switch (doing) {
    case Doing::kUnknown: return "unknown";
    case Doing::kIdle: return "idle";
    case Doing::kWaiting: return "waiting";
    case Doing::kFetching: return "fetching";
    case Doing::kTraining: return "training";
    case Doing::kEncoding: return "encoding";
    case Doing::kFolding: return "folding";
    case Doing::kSending: return "sending";
    case Doing::kResolving: return "resolving";
    case Doing::kMerging: return "merging";
  }
  return "unknown";
}

Doing doing_from_name(std::string_view name) {
  const auto* found = std::ranges::find(kDoings, name, doing_name);
  return found == std::end(kDoings) ? Doing::kUnknown : *found;
}

bool shows_work(const NodeReport& report, TimePoint since) {
  const bool waits = report.doing == Doing::kUnknown || report.doing == Doing::kIdle ||
                     report.doing == Doing::kWaiting || (report.doing == Doing::kTraining && report.workers == 0);
  return !waits && report.heard - report.doing_for >= since;
}

void replace(NodeReport& report, NodeReport newer) {
  std::vector<RoundSpans> rounds = std::move(report.rounds);
  std::ranges::move(newer.rounds, std::back_inserter(rounds));
  if (rounds.size() > kReportedRoundsMax) {
    rounds.erase(rounds.begin(), rounds.end() - static_cast<std::ptrdiff_t>(kReportedRoundsMax));
  }
  report = std::move(newer);
  report.rounds = std::move(rounds);
}

void age(NodeReport& report, Duration time) {
  report.doing_for += time;
  if (!report.clock) return;
  report.clock->uncertainty += Duration(static_cast<Duration::rep>(kClockDrift * static_cast<double>(time.count())));
}

void cross(NodeReport& report, const std::optional<ClockOffset>& child) {
  if (!child || !report.clock) {
    report.clock.reset();
    return;
  }
  report.clock->offset += child->steady;
  report.clock->uncertainty += child->uncertainty;
}

}  // namespace fluvial::round
