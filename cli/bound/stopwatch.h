// Seconds of doing something, the best of several turns. Inside cli/bound/ only.
#pragma once

#include <algorithm>
#include <ctime>
#include <limits>

namespace fluvial::cli::bound {

inline constexpr int kTurns = 3;

enum class Clock : clockid_t {
  kWall = CLOCK_MONOTONIC,
  kThread = CLOCK_THREAD_CPUTIME_ID,
  kProcess = CLOCK_PROCESS_CPUTIME_ID
};

inline double seconds_on(Clock clock) {
  timespec now = {};
  clock_gettime(static_cast<clockid_t>(clock), &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

template <typename Work>
double best_seconds(Clock clock, const Work& work) {
  double best = std::numeric_limits<double>::infinity();
  for (int turn = 0; turn < kTurns; ++turn) {
    const double began = seconds_on(clock);
    work();
    best = std::min(best, seconds_on(clock) - began);
  }
  return best;
}

}  // namespace fluvial::cli::bound
