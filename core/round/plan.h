// A plan: what a run asks of the federation. docs/operations/plan.md explains each key for the person who writes one.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/result.h"
#include "core/round/optimizer.h"
#include "core/round/worker_config.h"

namespace fluvial::round {

using Milliseconds = std::chrono::milliseconds;

// What a site does when a worker of it dies, fails or does not answer in time.
enum class MissingWorkers : std::uint8_t {
  kContinue,  // goes on with those that are there, with their weight
  kDecline,   // sits the round out
};
std::string_view missing_workers_name(MissingWorkers missing);
Result<MissingWorkers> missing_workers_from_name(std::string_view name);

struct Plan {
  std::string name;
  std::string mode = "rounds";  // or "async": windows, without a barrier (docs/design/windows.md)
  std::uint64_t rounds = 10;
  std::uint64_t local_steps = 1;  // 1: synchronous SGD

  std::string codec = "fp32";            // of the sites' updates; partials are lossless
  std::string down = "fp32";             // how the model travels to the sites: core/aggregate/down.h
  std::uint64_t chunk_values = 1 << 20;  // coordinates a chunk
  std::uint32_t fraction_bits = 40;      // at most: see scale_bits() in docs/design/fixed-point.md
  double value_abs_max = 1024;           // an update with a larger value is refused
  double update_norm_max = 0;            // 2-norm of a decoded update; 0: no bound

  double participants_fraction = 1;       // of the connected sites, sampled a round
  std::uint64_t participants_min = 1;     // the round waits until so many sites are connected
  std::uint64_t quorum = 1;               // contributions without which nothing is committed
  std::uint64_t weight_min = 1;           // total weight without which nothing is committed
  Milliseconds soft_deadline{30'000};     // from here on a quorum is enough
  bool adaptive_deadlines = true;         // ... or earlier, from what the sites took before (pace.h), but
  Milliseconds soft_deadline_min{5'000};  // not before this
  Milliseconds hard_deadline{60'000};     // here the attempt ends
  std::uint32_t attempts_max = 3;         // then the run pauses

  ServerOptimizer optimizer;

  double residual_norm_max = 0;               // a residual beyond it is dropped and counted; 0: no bound
  std::uint64_t residual_age_max_rounds = 0;  // a residual unspent for more rounds is dropped, too; 0: no bound
  std::uint64_t models_kept = 3;              // committed model files kept on disk, the newest
  std::string models_kept_best;               // ... and the best one by this (best_by.h); empty: none
  std::uint64_t seed = 1;                     // of the sampling
  bool sum_digest = false;                    // record the SHA-256 of each committed integer sum (for audits)
  bool metrics_by_site = true;                // keep and show what each site reported (reported.h)

  MissingWorkers workers_missing = MissingWorkers::kContinue;
  Milliseconds workers_deadline{0};  // for a worker's answer; 0: the agent's own setting

  std::string late = "residual";    // what becomes of an update that misses its round: or "next" (lateness.h)
  std::uint32_t staleness_max = 1;  // how many rounds later it may enter one
  double staleness_power = 0.5;     // it counts (1 + staleness)^-power

  // Of a run with mode = "async".
  std::uint64_t async_goal = 0;       // contributions with which a window commits; 0: 10, at most half the participants
  std::uint32_t async_lead_max = 0;   // a site starts only so many updates ahead of the slowest; 0: no bound
  std::uint32_t async_drift_max = 2;  // how many windows later than it was admitted a contribution may enter
  std::string async_fairness = "none";  // or "rate": who is counted seldom counts for more (fairness.h)

  WorkerTable worker;  // what the workers are given, the same at each site

  bool operator==(const Plan&) const = default;
};

bool late_is_next(const Plan& plan);
bool is_async(const Plan& plan);
bool is_fair(const Plan& plan);  // by rate
// What a plan is that says nothing but its mode: "async" has late = "next" and staleness_max = 10.
void set_mode(std::string_view mode, Plan* plan);

// kInvalidArgument naming the key, its value and what was expected. The codec's text and down's are not checked here:
// core/aggregate does that (plan_codec.h, down.h).
Status check_plan(const Plan& plan);

}  // namespace fluvial::round
