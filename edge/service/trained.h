// What a site's workers made of a model, before it becomes an update.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/local/device_memory.h"
#include "core/local/shared_model.h"
#include "core/round/byte_ranges.h"
#include "core/round/contribution.h"
#include "core/round/record.h"
#include "core/round/schema.h"
#include "edge/update/job.h"

namespace fluvial::edge {

// A model as this site holds it: its bytes match ref.digest.
struct HeldModel {
  round::ModelRef ref;
  round::Schema schema;
  std::shared_ptr<const local::SharedModel> bytes;
};

// What one process brought, or has in place so far.
struct TrainedShard {
  std::string worker;
  std::shared_ptr<const local::SharedModel> model;  // of it with `device` only the integers count; none without any
  round::ByteRanges ranges;                         // that it answers for
  std::shared_ptr<const local::DeviceMemory> device = {};  // where the averaged values are, if on a GPU
};

// One worker's result, or that of a group's ranks together.
struct TrainedPart {
  std::vector<TrainedShard> shards;  // by rank
  std::uint32_t weight = 0;
  bool update = false;  // instead of a model
};

// The same memory with the same weights: what was reduced of the one can be used for the other.
bool same_results(const std::vector<TrainedPart>& a, const std::vector<TrainedPart>& b);
std::vector<PartView> views_of(const std::vector<TrainedPart>& parts);

struct Trained {
  HeldModel base;                  // what was trained from, held as long as it is needed
  std::vector<TrainedPart> parts;  // in the order of the workers; at least one
  std::uint32_t weight = 0;        // of all parts together: 1 to 2^29 - 1
  round::Metrics metrics;          // weighted mean

  std::vector<std::string> workers() const;  // all of them, by name
};

}  // namespace fluvial::edge
