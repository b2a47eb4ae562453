// What processes take while they run, as /proc has it: from outside, and without their help.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "core/base/result.h"

namespace fluvial::cli {

// Since its start, all threads together. Switches are those of the threads that still live.
struct ProcessCounts {
  double cpu_seconds = 0;  // user and system, in ticks of the kernel (10 ms)
  std::uint64_t minor_faults = 0;
  std::uint64_t voluntary_switches = 0;    // it waited
  std::uint64_t involuntary_switches = 0;  // another thread's turn came
};

// kNotFound when there is no such process, kDataLoss when its files say nothing that is understood. `proc`: /proc, or
// a folder of a test.
Result<ProcessCounts> read_process_counts(pid_t pid, const std::string& proc = "/proc");

// Anonymous and shared memory that is resident: what nothing but swapping takes from it. Pages of files are not in it.
Result<std::uint64_t> read_own_memory(pid_t pid, const std::string& proc = "/proc");

// The most of each process that was seen. A thread of its own looks every 25 ms, less often where a look takes long.
class MemoryPeaks {
 public:
  explicit MemoryPeaks(std::vector<pid_t> pids, std::string proc = "/proc");
  ~MemoryPeaks();
  MemoryPeaks(const MemoryPeaks&) = delete;
  MemoryPeaks& operator=(const MemoryPeaks&) = delete;
  // Ends the watching. In the order of the processes; 0: it was never seen.
  std::vector<std::uint64_t> stop();

 private:
  void look();
  void watch();

  std::vector<pid_t> pids_;
  std::string proc_;
  std::vector<std::uint64_t> peaks_;  // the watcher's until it has ended
  std::atomic<bool> stopping_{false};
  std::thread watcher_;
};

}  // namespace fluvial::cli
