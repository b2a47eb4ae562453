// Predicts the time of each reduction, to choose one. A sum of a step costs alpha to begin, beta for each byte it
// moves, and gamma for each addition. Fitted to measurements on this machine. The clock is passed in.
#pragma once

#include <array>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "edge/reduce/schedule.h"

namespace fluvial::edge {

struct CostModel {
  double alpha = 0;  // seconds a sum
  double beta = 0;   // seconds a byte read or written
  double gamma = 0;  // seconds an addition
};

// The amounts of work that alpha, beta and gamma are multiplied with.
struct Work {
  double sums = 0;
  double bytes = 0;
  double additions = 0;
};
Work work_of(const std::vector<Step>& steps);
double predict(const CostModel& model, const Work& work);

struct Timing {
  Work work;
  double seconds = 0;
};
// Least squares of the relative error; no cost is negative. At least three timings, else all are zero.
CostModel fit(std::span<const Timing> timings);

// Reduces made-up vectors of 2^12 to 2^19 values with two algorithms, the best of three runs each. Takes some 10 ms and
// 2 MiB a rank. `seconds` reads a clock that only goes forward.
std::vector<Timing> measure(std::size_t ranks, const std::function<double()>& seconds);

struct Choice {
  Algorithm algorithm = Algorithm::kDirect;
  std::array<double, kAlgorithms.size()> seconds{};  // predicted, of each
  std::string reason;                                // for the log
};
// The fastest algorithm for a chunk of that many values.
Choice choose(const CostModel& model, std::size_t ranks, std::size_t values);

}  // namespace fluvial::edge
