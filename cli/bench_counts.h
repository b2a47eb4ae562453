// What a warmed-up round costs the processes of each role: every round but the first, which finds cold caches, memory
// that nobody has touched and threads that have not begun.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/json.h"
#include "cli/process_counts.h"
#include "cli/supervisor.h"

namespace fluvial::cli {

// All processes of a role together, for one round; the memory is that of the one that takes most.
struct RoleCounts {
  std::string role;
  std::uint64_t processes = 0;
  double cpu_seconds = 0;
  double minor_faults = 0;
  double voluntary_switches = 0;
  double involuntary_switches = 0;
  std::uint64_t peak_own_bytes = 0;  // anonymous and shared, over the whole run
  bool operator==(const RoleCounts&) const = default;
};

struct CountedProcess {
  std::string role;
  ProcessCounts first;  // when the first round was committed
  ProcessCounts last;   // when the last one was
  std::uint64_t peak_own_bytes = 0;
};

// In the order in which the roles come first. Pure.
std::vector<RoleCounts> counts_by_role(const std::vector<CountedProcess>& processes, std::uint64_t rounds);

// From when it is made, with the processes that run then.
class RoundCounts {
 public:
  using Reader = std::function<Result<ProcessCounts>(pid_t)>;
  explicit RoundCounts(
      std::vector<RunningProcess> processes, Reader reader = [](pid_t pid) { return read_process_counts(pid); });
  void on_event(const json::value& event);  // as the admin API tells of a run
  // Ends the counting. Of the rounds after the first; without counts where there was no second one.
  std::vector<RoleCounts> finish();

 private:
  // Of a process that is gone, what it had when it was seen last.
  std::vector<ProcessCounts> read() const;

  std::vector<RunningProcess> processes_;
  Reader reader_;
  MemoryPeaks peaks_;
  std::uint64_t committed_ = 0;
  std::vector<ProcessCounts> first_;
  std::vector<ProcessCounts> last_;
};

json::array to_json(const std::vector<RoleCounts>& roles);

}  // namespace fluvial::cli
