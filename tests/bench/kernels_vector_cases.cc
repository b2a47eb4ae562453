// The kernels that know no codec.
#include <algorithm>
#include <array>

#include "kernels/optimizer.h"
#include "kernels/reduce.h"
#include "kernels/vector.h"
#include "tests/bench/kernels_case.h"

namespace fluvial::bench {
namespace {

double as_double(std::size_t count) { return static_cast<double>(count); }

// Finite, norm and greatest magnitude of an fp32 vector.
Result<Timed> screen(const Setup& setup) {
  const std::span<const float> values = setup.memory.normals(setup.values);
  const kernels::ChunkLayout chunks = chunks_of(setup.values);
  return on_cpu(setup,
                {{.serial = {},
                  .parts = chunks.chunk_count(),
                  .part =
                      [values, chunks, target = setup.target](std::size_t i) {
                        FLUVIAL_CHECK(kernels::screen(chunks.of(values, i), chunks.first_value(i), target).ok(),
                                      "normal values are finite");
                      }}},
                4 * as_double(setup.values));
}

// Four fp32 buffers into a fifth, a quarter of the values each: the values counted are those read.
Result<Timed> reduce(const Setup& setup) {
  const std::size_t size = setup.values / 4;
  const std::span<const float> values = setup.memory.normals(setup.values);
  const std::span<float> out = setup.memory.of<float>("floats", size);
  const kernels::ChunkLayout chunks = chunks_of(size);
  return on_cpu(setup,
                {{.serial = {},
                  .parts = chunks.chunk_count(),
                  .part =
                      [=, target = setup.target](std::size_t i) {
                        std::array<std::span<const float>, 4> inputs;
                        for (std::size_t k = 0; k < 4; ++k) inputs[k] = chunks.of(values.subspan(k * size, size), i);
                        FLUVIAL_CHECK(
                            kernels::reduce_sum(inputs, kernels::SumIn::kFp32, chunks.of(out, i), target).ok(),
                            "four buffers can be summed");
                      }}},
                5 * sizeof(float) * as_double(size));
}

// One step of FedAdam: model, moment and variance read and written, the mean read.
Result<Timed> fedadam(const Setup& setup) {
  const std::span<const float> mean = setup.memory.normals(setup.values);
  const std::span<float> model = setup.memory.of<float>("floats", setup.values);
  const std::span<float> state = setup.memory.of<float>("state", 2 * setup.values);
  std::ranges::fill(state, 1e-6F);
  const kernels::ChunkLayout chunks = chunks_of(setup.values);
  return on_cpu(setup,
                {{.serial = {},
                  .parts = chunks.chunk_count(),
                  .part =
                      [=, target = setup.target](std::size_t i) {
                        kernels::apply_adaptive(kernels::AdaptiveRule::kAdam, {}, chunks.of(mean, i),
                                                chunks.of(state.first(mean.size()), i),
                                                chunks.of(state.subspan(mean.size()), i), chunks.of(model, i), target);
                      }}},
                7 * sizeof(float) * as_double(setup.values));
}

}  // namespace

std::vector<Case> vector_cases() {
  return {
      {.kernel = "reduce", .codec = "fp32", .rounding = "", .make = reduce},
      {.kernel = "optimize", .codec = "fedadam", .rounding = "", .make = fedadam},
      {.kernel = "screen", .codec = "fp32", .rounding = "", .make = screen},
  };
}

}  // namespace fluvial::bench
