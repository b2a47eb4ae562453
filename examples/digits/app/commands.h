// The subcommands of fluvial-digits; main.cc reads their options.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "core/base/result.h"
#include "examples/digits/split.h"
#include "examples/digits/trainer.h"
#include "examples/digits/worker.h"

namespace fluvial::digits {

struct Options {
  std::string data;  // empty: find_data()
  std::string model = "mlp";
  SplitOptions split;  // its seed is also the initial model's and the training's
  std::uint64_t site = 1;
  std::uint64_t rounds = 40;
  std::uint64_t local_steps = 40;
  SgdSettings sgd;  // for central(); workers have theirs from the plan
  std::string out;
  std::string json;
  std::string socket;
  std::uint64_t patience_s = 60;
  std::uint64_t pace_ms = 0;
  Faults faults;
};

Status init(const Options& options);
Status train_as_worker(const Options& options);
Status evaluate_as_worker(const Options& options);
Status central(const Options& options);
Status show_data(const Options& options);

}  // namespace fluvial::digits
