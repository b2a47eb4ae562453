// Mini-batch SGD, deterministic: the same seed, images and model give the same bits on the same machine.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "core/base/result.h"
#include "core/round/worker_config.h"
#include "examples/digits/examples.h"
#include "examples/digits/model.h"

namespace fluvial::digits {

// v = momentum * v + gradient + weight_decay * w; w -= learning_rate * v. v starts at 0 with each call of train().
struct SgdSettings {
  double learning_rate = 0.5;
  std::uint64_t batch_size = 16;
  double momentum = 0.5;
  double weight_decay = 1e-4;
};
// A plan's [worker] table over the defaults. kInvalidArgument names a key that is none of the above, or a value that is
// no number or out of its range.
Result<SgdSettings> sgd_from_config(const round::WorkerConfig& config);

struct Score {
  double loss = 0;      // mean
  double accuracy = 0;  // of 1
};

// Trains for `steps` batches in the order that `seed` gives: every image once before any comes again.
Score train(const ModelSpec& spec, std::span<float> parameters, const Examples& examples, const SgdSettings& settings,
            std::uint64_t steps, std::uint64_t seed);
Score evaluate(const ModelSpec& spec, std::span<const float> parameters, const Examples& examples);

}  // namespace fluvial::digits
