// From a sealed sum to the next model: mean, server optimizer, integer tensors, digest, files on disk.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/aggregate/server_optimizer.h"
#include "core/round/record.h"
#include "core/store/model_store.h"
#include "core/tree/sum.h"

namespace fluvial::coordinator {

struct NextModel {
  round::ModelRef ref;
  SharedBytes bytes;
  std::vector<float> optimizer_state;
  std::string optimizer_file;  // for the journal; empty: none
  std::optional<Digest> sum_digest;
};

struct FinaliseInput {
  round::CommitRecord record;
  std::shared_ptr<const round::Schema> schema;
  SharedBytes base;
  aggregate::ServerOptimizer optimizer;
  std::vector<float> optimizer_state;
  bool sum_digest = false;
};

// On the sum's lane. Durable when it returns. kDataLoss: the probe or the result is wrong, nothing was written.
net::Awaitable<Result<NextModel>> finalise(tree::Runtime& runtime, tree::Sum& sum, store::ModelStore& models,
                                           FinaliseInput input);

}  // namespace fluvial::coordinator
