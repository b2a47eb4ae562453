// What a site trained in a round, as views: the one who calls keeps all of it until the call has returned.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/ids.h"
#include "core/round/contribution.h"
#include "core/round/plan.h"
#include "core/round/schema.h"
#include "kernels/chunks.h"

namespace fluvial::edge {

// One worker's result: a model's bytes in schema order, aligned to 4 bytes.
struct UpdatePart {
  ByteSpan model;
  std::uint32_t weight = 0;
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

  kernels::ChunkLayout layout() const { return {schema.value_count(), plan.chunk_values}; }
};

}  // namespace fluvial::edge
