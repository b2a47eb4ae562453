// The result of a site's workers for a model: a function of (seed, site, round, base), so that the oracle knows it too.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/ids.h"
#include "core/round/schema.h"
#include "simulator/scenario/scenario.h"

namespace fluvial::simulator {

// The workload that processes handle: in the sized mode a model of a few values, which stands for the whole one.
WorkloadScenario handled(WorkloadScenario workload);
// The schema that a workload describes.
round::Schema schema_of(const WorkloadScenario& workload);
// The model that a run starts from.
Buffer initial_model(const round::Schema& schema, std::uint64_t seed);
Buffer model_of(const round::Schema& schema, std::span<const float> values);  // of a schema without integers

struct TrainingResult {
  Buffer model;               // the base minus the update, as workers leave it
  std::vector<float> update;  // base - model, in fp32
  std::vector<std::int64_t> integers;
  std::uint32_t weight = 0;
};
// `weight_max` bounds the weight; `scale` the update's values.
TrainingResult train(const round::Schema& schema, ByteSpan base, std::uint64_t seed, SiteId site, RoundId round,
                     const WorkloadScenario& workload, std::uint64_t weight_max);
// The same of a training that left `local`, of a schema without integers.
TrainingResult trained(const round::Schema& schema, ByteSpan base, std::span<const float> local, std::uint32_t weight);
std::vector<float> values_of(const round::Schema& schema, ByteSpan model);

}  // namespace fluvial::simulator
