// A site's training results of a round, as views: the caller keeps all of them until the call has returned.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/ids.h"
#include "core/digest/submission_digest.h"
#include "core/round/byte_ranges.h"
#include "core/round/contribution.h"
#include "core/round/plan.h"
#include "core/round/schema.h"
#include "core/store/site_store.h"
#include "edge/reduce/schedule.h"
#include "kernels/chunks.h"

namespace fluvial::edge {

class PartialMean;
class SiteGpus;
class WorkerVector;

// A rank's part of a sharded trainer's result: these ranges of its memory, which is as long as the model.
struct ShardView {
  ByteSpan model;
  round::ByteRanges ranges;
  std::shared_ptr<const WorkerVector> gpu = nullptr;  // as in PartView
};

// One worker's result: a model's bytes in schema order, aligned to 4 bytes. The worker may be writing to them: read
// each value only once.
struct PartView {
  ByteSpan model;
  std::uint32_t weight = 0;
  bool update = false;                 // averaged values are the update itself instead of the trained model
  std::vector<ShardView> shards = {};  // instead of `model`: together they hold each byte once
  // All averaged values, on a GPU. Then only the integers of `model` are read, and it is empty if there are
  // none.
  std::shared_ptr<const WorkerVector> gpu = nullptr;
};

struct UpdateJob {
  RunId run;
  RoundId round;
  SiteId site;
  const round::Plan& plan;
  const round::Schema& schema;
  Digest base_digest{};         // of the model that was trained from
  ByteSpan base;                // its bytes
  std::vector<PartView> parts;  // in the order of the workers; at least one
  std::uint32_t weight = 0;     // of all parts together: 1 to 2^29 - 1
  round::Metrics metrics;
  std::vector<std::string> workers;          // whose results these are
  bool lost = false;                         // the round is of an earlier history: it can only go into the residual
  Algorithm reduction = Algorithm::kDirect;  // of the parts
  PartialMean* early = nullptr;              // the early reduction of these very parts; it is used up
  SiteGpus* gpus = nullptr;                  // null: values on a GPU are copied to the host and reduced there
  // Counts the residual's values that were unusable and are not in the update; may be null.
  std::atomic<std::uint64_t>* residual_lost = nullptr;
  // Told when p is there, when the first chunk is to be encoded (it may be the first to be made, too), and when all
  // that was encoded is to be made durable. On the thread that makes the update; empty: nobody asks.
  enum class Step { kReduced, kEncode, kPersist };
  std::function<void(Step)> reached = {};
  std::string site_name = {};  // what a codec draws is drawn by it
  DigestKind digest_kind = DigestKind::kStream;
  ByteSpan handed = {};   // what the round before handed down beside the model, as the opening named it; empty: nothing
  float late_factor = 1;  // of what is left of it if it is late
  // What p was multiplied by, for what the first of several passes sends to be within the plan's bounds; may be null.
  float* pass_factor = nullptr;

  kernels::ChunkLayout layout() const { return {schema.value_count(), plan.chunk_values}; }
};

}  // namespace fluvial::edge
