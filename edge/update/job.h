// What a site trained in a round, as views: the one who calls keeps all of it until the call has returned.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/ids.h"
#include "core/round/byte_ranges.h"
#include "core/round/contribution.h"
#include "core/round/plan.h"
#include "core/round/schema.h"
#include "edge/reduce/schedule.h"
#include "kernels/chunks.h"

namespace fluvial::edge {

class PartialMean;
class SiteGpus;
class WorkerVector;

// What a rank of a sharded trainer answers for: these ranges of its memory, which is as long as the model.
struct Shard {
  ByteSpan model;
  round::ByteRanges ranges;
  std::shared_ptr<const WorkerVector> gpu = nullptr;  // as in UpdatePart
};

// One worker's result: a model's bytes in schema order, aligned to 4 bytes. The worker may be writing to them: who
// reads a value reads it once.
struct UpdatePart {
  ByteSpan model;
  std::uint32_t weight = 0;
  bool update = false;             // averaged values are the update itself instead of the trained model
  std::vector<Shard> shards = {};  // instead of `model`: together they hold each byte once
  // The averaged values, all of them, on a GPU. Of `model` only the integers are then looked at: it is empty without
  // any.
  std::shared_ptr<const WorkerVector> gpu = nullptr;
};

struct UpdateJob {
  RunId run;
  RoundId round;
  SiteId site;
  const round::Plan& plan;
  const round::Schema& schema;
  Digest base_digest{};           // of what was trained from
  ByteSpan base;                  // its bytes
  std::vector<UpdatePart> parts;  // in the order of the workers; at least one
  std::uint32_t weight = 0;       // of all parts together: 1 to 2^29 - 1
  round::Metrics metrics;
  std::vector<std::string> workers;          // whose results these are
  bool lost = false;                         // the round is of a history before: it can go into the residual alone
  Algorithm reduction = Algorithm::kDirect;  // of the parts
  PartialMean* early = nullptr;              // what was reduced of these very parts already; it is used up
  SiteGpus* gpus = nullptr;                  // null: what lies on a GPU is copied to the host and reduced there
  // Gets how many values of the residual were unusable, and are not in the update; null: nobody asks.
  std::atomic<std::uint64_t>* residual_lost = nullptr;

  kernels::ChunkLayout layout() const { return {schema.value_count(), plan.chunk_values}; }
};

}  // namespace fluvial::edge
