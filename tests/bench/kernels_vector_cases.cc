// The kernels that know no codec.
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

}  // namespace

std::vector<Case> vector_cases() {
  return {
      {.kernel = "screen", .codec = "fp32", .rounding = "", .make = screen},
  };
}

}  // namespace fluvial::bench
