// What a site's workers made of a model, before it becomes an update.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/local/shared_model.h"
#include "core/round/contribution.h"
#include "core/round/record.h"
#include "core/round/schema.h"

namespace fluvial::edge {

// A model as this site holds it: its bytes match ref.digest.
struct HeldModel {
  round::ModelRef ref;
  round::Schema schema;
  std::shared_ptr<const local::SharedModel> bytes;
};

// One worker's result.
struct TrainedPart {
  std::shared_ptr<const local::SharedModel> model;
  std::uint32_t weight = 0;
};

struct Trained {
  HeldModel base;                  // what was trained from, held as long as it is needed
  std::vector<TrainedPart> parts;  // in the order of the workers; at least one
  std::uint32_t weight = 0;        // of all parts together: 1 to 2^29 - 1
  round::Metrics metrics;          // weighted mean
};

}  // namespace fluvial::edge
