// Two measurements of what asynchrony gains and costs, in virtual time: how long a federation with some slow sites
// takes to the same loss, and where a model ends whose optimum is known. The federation is the simulator's: shipped
// code, all its invariants checked, no faults. A function of the seed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/base/result.h"
#include "simulator/study/course.h"

namespace fluvial::simulator {

using PlanLines = std::vector<std::string>;  // "key = value", as TOML

struct StudyFederation {
  std::uint64_t sites = 10;
  std::uint64_t aggregators = 2;  // sites are divided among them; what is left over, or with 0 all, are at the root
  Speeds speeds;
  Duration training = std::chrono::seconds(10);  // of a fast site, on average: uniform, a fifth less to a fifth more
  Duration lasts = std::chrono::minutes(60);     // virtual time
  // Keys of every mode's plan, in place of the mode's own; one of `async.` is for the modes with windows alone.
  PlanLines plan;
};

// A way to synchronise: keys of a plan.
struct Mode {
  std::string name;
  bool has_windows = false;
  bool waits_for_all = false;
  PlanLines plan;
};
std::vector<Mode> modes_of(const StudyFederation& federation);
Status check_plans(const StudyFederation& federation);  // of all modes; kInvalidArgument says what is wrong with a key

// One world, until `federation.lasts`. kInvalidArgument: the plan; kFailedPrecondition: nothing was committed;
// kInternal: an invariant is violated.
Status train(const StudyFederation& federation, const Mode& mode, std::uint64_t seed, Course& course);

struct TrainingFigures {
  std::uint64_t seed = 0;
  std::optional<double> reached_s;  // the first commit with the target loss; none: there was none
  std::optional<std::uint64_t> reached_commits;
  std::uint64_t commits = 0;   // all of them
  double staleness = 0;        // of what was counted, on average
  double slow_part = 0;        // of all updates that were counted, those of slow sites
  double end_loss = 0;         // over the last quarter of the time, on average
  double end_loss_slow = 0;    // likewise, over the points of slow sites alone
  double least_loss = 0;       // of any model
  double least_loss_slow = 0;  // of that model, over the points of slow sites alone
};
// The target is reached when `closed` of the way from the first loss to the least is behind.
Result<TrainingFigures> measure_training(const StudyFederation& federation, const Mode& mode, std::uint64_t seed,
                                         double closed);

// Distances from the model's average over the last half of the time, on the quadratic.
struct BiasFigures {
  std::uint64_t seed = 0;
  double to_optimum = 0;  // the mean of the centres by weight
  double to_rates = 0;    // the same, each weight times the site's speed
  double to_shares = 0;   // the mean by the parts that the sites had of the windows' means in that time
  double apart = 0;       // optimum and mean by speeds
  double pull = 0;        // how far the model is from the optimum towards the mean by speeds, as a part of `apart`
  std::uint64_t commits = 0;
  double staleness = 0;
  double slow_part = 0;
};
Result<BiasFigures> measure_bias(const StudyFederation& federation, const Mode& mode, std::uint64_t seed);

// Over seeds.
struct Spread {
  double median = 0;
  double least = 0;
  double greatest = 0;
};
Spread spread_of(std::vector<double> values);  // of one at least

}  // namespace fluvial::simulator
