// Server optimizers: from the mean pseudo-gradient (base model minus local model, so it is subtracted) to the next
// model. Pure and chunk-wise; the state is the caller's and belongs into the same commit as the model.
//
//   fedavg   model' = model - lr * mean                                        (McMahan et al. 2017; lr 1 averages)
//   fedavgm  m' = momentum * m + mean;  model' = model - lr * m'               (Hsu, Qi, Brown 2019)
//
// Every operation is in fp64 and m' and model' round once to fp32 (kernels/vector.h): the same bits on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/base/result.h"

namespace fluvial::aggregate {

enum class ServerOptimizerKind : std::uint8_t { kFedAvg, kFedAvgM };

struct ServerOptimizer {
  ServerOptimizerKind kind = ServerOptimizerKind::kFedAvg;
  double lr = 1.0;        // > 0
  double momentum = 0.9;  // fedavgm: in [0, 1)
  bool operator==(const ServerOptimizer&) const = default;

  // How many fp32 vectors of the model's length the state holds (fedavgm: the moment). Zero-filled before the first
  // round.
  std::size_t state_vectors() const { return kind == ServerOptimizerKind::kFedAvgM ? 1 : 0; }

  // Applies one chunk in place. `state` is this chunk's part of the state: state_vectors() * mean.size() values, vector
  // after vector. Chunks are independent. kInvalidArgument when the lengths do not fit; nothing is changed then.
  Status apply(std::span<const float> mean, std::span<float> state, std::span<float> model) const;
};

// "fedavg", "fedavg:lr=0.5", "fedavgm:lr=1,momentum=0.9". kInvalidArgument says what was expected.
Result<ServerOptimizer> parse_server_optimizer(std::string_view text);
std::string to_string(const ServerOptimizer& optimizer);  // canonical; parses back to the same

}  // namespace fluvial::aggregate
