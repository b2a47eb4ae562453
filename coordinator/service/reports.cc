#include "coordinator/service/reports.h"

#include <chrono>

namespace fluvial::coordinator {
namespace {

constexpr double kForetoldMax_s = 365.0 * 86'400;

// By the rate so far; nothing where that is beyond all sense.
std::optional<double> left_s(const round::NodeReport& report, Duration doing_for) {
  if (report.done_bytes == 0 || report.done_bytes > report.total_bytes) return std::nullopt;
  const double left = static_cast<double>(report.total_bytes - report.done_bytes);
  const double seconds =
      std::chrono::duration<double>(doing_for).count() * left / static_cast<double>(report.done_bytes);
  return seconds <= kForetoldMax_s ? std::optional(seconds) : std::nullopt;
}

}  // namespace

std::optional<Activity> Reports::activity_of(NodeId node, const Clock& clock) const {
  using std::chrono::duration_cast;
  using std::chrono::milliseconds;
  const round::NodeReport* report = of(node);
  if (report == nullptr) return std::nullopt;
  Activity activity;
  activity.doing = report->doing;
  activity.run = report->run;
  activity.round = report->round;
  activity.workers = report->workers;
  activity.done_bytes = report->done_bytes;
  activity.total_bytes = report->total_bytes;
  activity.left_s = left_s(*report, report->doing_for);
  activity.note = report->note;
  activity.heard_ago = clock.now() - report->heard;
  activity.since = clock.wall_now() - duration_cast<milliseconds>(activity.heard_ago + report->doing_for);
  activity.certificate_ends = report->certificate_ends;
  activity.wall_offset = report->wall_offset;
  return activity;
}

}  // namespace fluvial::coordinator
