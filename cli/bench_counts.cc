#include "cli/bench_counts.h"

#include <algorithm>
#include <utility>

namespace fluvial::cli {
namespace {

std::vector<pid_t> pids_of(const std::vector<RunningProcess>& processes) {
  std::vector<pid_t> pids;
  for (const RunningProcess& process : processes) pids.push_back(process.pid);
  return pids;
}

double between(std::uint64_t first, std::uint64_t last, double rounds) {
  return last < first ? 0
                      : static_cast<double>(last - first) / rounds;  // a thread that has ended takes its count along
}

}  // namespace

std::vector<RoleCounts> counts_by_role(const std::vector<CountedProcess>& processes, std::uint64_t rounds) {
  std::vector<RoleCounts> roles;
  const auto of = static_cast<double>(std::max<std::uint64_t>(1, rounds));
  for (const CountedProcess& process : processes) {
    auto role = std::ranges::find(roles, process.role, &RoleCounts::role);
    if (role == roles.end()) role = roles.insert(roles.end(), {.role = process.role});
    const ProcessCounts& first = process.first;
    const ProcessCounts& last = process.last;
    ++role->processes;
    role->cpu_seconds += (last.cpu_seconds - first.cpu_seconds) / of;
    role->minor_faults += between(first.minor_faults, last.minor_faults, of);
    role->voluntary_switches += between(first.voluntary_switches, last.voluntary_switches, of);
    role->involuntary_switches += between(first.involuntary_switches, last.involuntary_switches, of);
    role->peak_own_bytes = std::max(role->peak_own_bytes, process.peak_own_bytes);
  }
  return roles;
}

RoundCounts::RoundCounts(std::vector<RunningProcess> processes, Reader reader)
    : processes_(std::move(processes)), reader_(std::move(reader)), peaks_(pids_of(processes_)) {}

std::vector<ProcessCounts> RoundCounts::read() const {
  std::vector<ProcessCounts> counts = committed_ > 2 ? last_ : first_;
  counts.resize(processes_.size());
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    const Result<ProcessCounts> now = reader_(processes_[i].pid);
    if (now.ok()) counts[i] = *now;
  }
  return counts;
}

void RoundCounts::on_event(const json::value& event) {
  if (text_member(event, "event") != "committed") return;
  ++committed_;
  (committed_ == 1 ? first_ : last_) = read();
}

std::vector<RoleCounts> RoundCounts::finish() {
  const std::vector<std::uint64_t> peaks = peaks_.stop();
  if (committed_ < 2) first_ = last_ = std::vector<ProcessCounts>(processes_.size());
  std::vector<CountedProcess> counted;
  for (std::size_t i = 0; i < processes_.size(); ++i) {
    counted.push_back({processes_[i].role, first_[i], last_[i], peaks[i]});
  }
  return counts_by_role(counted, committed_ < 2 ? 0 : committed_ - 1);
}

json::array to_json(const std::vector<RoleCounts>& roles) {
  json::array array;
  for (const RoleCounts& role : roles) {
    array.push_back(json::object{{"role", role.role},
                                 {"processes", role.processes},
                                 {"cpu_seconds", role.cpu_seconds},
                                 {"minor_faults", role.minor_faults},
                                 {"voluntary_switches", role.voluntary_switches},
                                 {"involuntary_switches", role.involuntary_switches},
                                 {"peak_own_bytes", role.peak_own_bytes}});
  }
  return array;
}

}  // namespace fluvial::cli
