// From a sealed sum to the next model: mean, server optimizer, integer tensors, digest, what the sites train from,
// files on disk. Blocking: the threads and the file system are passed in.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/model/passes.h"
#include "coordinator/model/trained.h"
#include "core/aggregate/server_optimizer.h"
#include "core/round/fairness.h"
#include "core/round/record.h"
#include "core/store/model_store.h"
#include "core/transfer/node_sum.h"

namespace fluvial::coordinator {

struct NextModel {
  Digest master{};  // of the model that the server keeps and steps
  SharedBytes bytes;
  TrainedModel trained;  // what the sites go on from: the same, unless the plan's `down` says otherwise
  std::vector<float> optimizer_state;
  std::string optimizer_file;                   // for the journal; empty: none. Also of the codec's state
  std::optional<NamedVector> codec_state = {};  // that the next round begins with, where one hands it down
  std::optional<Digest> sum_digest;
  double step_norm = 0;  // 2-norm of what the round changed in the averaged tensors
};

struct FinaliseInput {
  round::CommitRecord record;
  round::Divisor divisor;  // of the sum
  std::shared_ptr<const round::Schema> schema;
  SharedBytes base;  // the master of the round before
  aggregate::ServerOptimizer optimizer;
  std::shared_ptr<const std::vector<float>> optimizer_state;  // null or empty: before the first round
  bool sum_digest = false;
  kernels::CodecSpec codec = {};           // the plan's
  std::optional<PassesInput> passes = {};  // of a round with several; the sum is the last one's
  DownPlan down = {};
  std::optional<aggregate::BaseModel> trained_before = {};  // of the round before; it outlives the call
  std::function<void()> writing = {};  // told when all that is left is to write the files; empty: nobody asks
  Ahead ahead = {};  // of what the sites will train from; while the rest is digested, and before anything is durable
};

// Blocking; the sum must not change meanwhile. The result is durable when it returns. kDataLoss: the probe or the
// result is wrong, and no file stays. The same sum and input give the same bytes, whatever `parallel` is.
Result<NextModel> finalise(Parallel& parallel, const transfer::NodeSum& sum, store::ModelStore& models,
                           FinaliseInput input);

}  // namespace fluvial::coordinator
