// The kernels without a codec.
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

// What a step of an optimizer with two vectors of state reads and writes.
struct Model {
  kernels::ChunkLayout chunks;
  std::span<const float> mean;
  std::span<float> moment, variance, model;
};

Model model_of(const Setup& setup) {
  const std::span<float> state = setup.memory.of<float>("state", 2 * setup.values);
  std::ranges::fill(state, 1e-6F);
  return {.chunks = chunks_of(setup.values),
          .mean = setup.memory.normals(setup.values),
          .moment = state.first(setup.values),
          .variance = state.subspan(setup.values),
          .model = setup.memory.of<float>("floats", setup.values)};
}

// One step: model, moment and variance read and written, the mean read.
Result<Timed> adaptive(const Setup& setup, kernels::AdaptiveRule rule) {
  const Model it = model_of(setup);
  return on_cpu(setup,
                {{.serial = {},
                  .parts = it.chunks.chunk_count(),
                  .part =
                      [it, rule, target = setup.target](std::size_t i) {
                        kernels::apply_adaptive(rule, {}, it.chunks.of(it.mean, i), it.chunks.of(it.moment, i),
                                                it.chunks.of(it.variance, i), it.chunks.of(it.model, i), target);
                      }}},
                7 * sizeof(float) * as_double(setup.values));
}

// A step between two N-th ones: model and buffer read and written, the moment and the mean read.
Result<Timed> delayed_nesterov(const Setup& setup) {
  const Model it = model_of(setup);
  return on_cpu(setup,
                {{.serial = {},
                  .parts = it.chunks.chunk_count(),
                  .part =
                      [it, target = setup.target](std::size_t i) {
                        kernels::apply_delayed_nesterov({}, it.chunks.of(it.mean, i), it.chunks.of(it.moment, i),
                                                        it.chunks.of(it.variance, i), it.chunks.of(it.model, i),
                                                        target);
                      }}},
                6 * sizeof(float) * as_double(setup.values));
}

// The pass for the norms, then the step.
Result<Timed> lamb(const Setup& setup) {
  const Model it = model_of(setup);
  const auto measure = [it, target = setup.target](std::size_t i) {
    kernels::SquareLanes of_model{}, of_step{};
    kernels::add_squares(it.chunks.of(std::span<const float>(it.model), i), of_model, target);
    kernels::add_lamb_squares({}, it.chunks.of(it.mean, i), it.chunks.of(it.moment, i), it.chunks.of(it.variance, i),
                              it.chunks.of(it.model, i), of_step, target);
  };
  const auto step = [it, target = setup.target](std::size_t i) {
    kernels::apply_lamb({}, 1e-3, it.chunks.of(it.mean, i), it.chunks.of(it.moment, i), it.chunks.of(it.variance, i),
                        it.chunks.of(it.model, i), target);
  };
  const std::size_t chunks = it.chunks.chunk_count();
  return on_cpu(setup,
                {{.serial = {}, .parts = chunks, .part = measure}, {.serial = {}, .parts = chunks, .part = step}},
                11 * sizeof(float) * as_double(setup.values));
}

Case optimizer(std::string name, kernels::AdaptiveRule rule, bool in_default_run) {
  return {.kernel = "optimize",
          .codec = std::move(name),
          .rounding = "",
          .in_default_run = in_default_run,
          .make = [rule](const Setup& setup) { return adaptive(setup, rule); }};
}

}  // namespace

std::vector<Case> vector_cases() {
  return {
      {.kernel = "reduce", .codec = "fp32", .rounding = "", .make = reduce},
      optimizer("fedadam", kernels::AdaptiveRule::kAdam, true),
      optimizer("fedyogi", kernels::AdaptiveRule::kYogi, false),
      optimizer("fedadagrad", kernels::AdaptiveRule::kAdagrad, false),
      {.kernel = "optimize",
       .codec = "delayed_nesterov",
       .rounding = "",
       .in_default_run = false,
       .make = delayed_nesterov},
      {.kernel = "optimize", .codec = "lamb", .rounding = "", .in_default_run = false, .make = lamb},
      {.kernel = "screen", .codec = "fp32", .rounding = "", .make = screen},
  };
}

}  // namespace fluvial::bench
