// A backend's part of PowerSGD on a device: the loops of cpu/lowrank_loops.h, with the same sums in the same order, and
// the warm start. Internal; callers use device_powersgd.h.
#pragma once

#include <array>
#include <span>

#include "kernels/device_codec.h"

namespace fluvial::kernels {

// A matrix that is cut: P is `rank` columns of `rows` values, Q of `cols`.
struct LowrankShape {
  std::size_t rows = 0;
  std::size_t cols = 0;
  std::size_t rank = 0;
};

// Columns of a matrix to be made orthonormal: the mean's, into `p`; `scratch` holds rank * (rows + 1) numbers.
struct LowrankBasis {
  LowrankShape shape;
  const float* mean = nullptr;
  double* scratch = nullptr;
  float* p = nullptr;
};

// A matrix's part of a state: columns from `mean` (or, when it is null or a column of it zero, as drawn for the
// coordinates from first_value on), scaled to unit_scale().
struct LowrankColumns {
  LowrankShape shape;
  const float* mean = nullptr;
  std::uint64_t first_value = 0;
  float* q = nullptr;
};

// The header of a state, as four words: version and rank, run, round, fingerprint. All zero: a new state.
using LowrankHeader = std::array<std::uint64_t, 4>;
// The result of begin_state().
enum class StateVerdict : std::uint32_t { kOther, kKnown, kNew };

class DeviceLowrankOps {
 public:
  virtual ~DeviceLowrankOps() = default;
  // Is the state new, or is its header this one, the round aside? If neither, the outcome says so, too.
  virtual Status begin_state(const LowrankHeader& header, DeviceSpan<const std::byte> state, StateVerdict* verdict,
                             ChunkOutcome* outcome, Stream& stream) = 0;
  // These write when the verdict is `least` or better.
  virtual Status write_columns(std::span<const LowrankColumns> matrices, std::uint64_t run, const StateVerdict* verdict,
                               StateVerdict least, Stream& stream) = 0;
  virtual Status write_header(const LowrankHeader& header, DeviceSpan<std::byte> state, const StateVerdict* verdict,
                              StateVerdict least, Stream& stream) = 0;

  virtual Status project(const float* m, const LowrankShape& shape, const float* q, float* p, Stream& stream) = 0;
  virtual Status orthonormalise(std::span<const LowrankBasis> matrices, Stream& stream) = 0;
  virtual Status project_back(const float* m, const LowrankShape& shape, const float* p, float* q, Stream& stream) = 0;
  // Values first to first + count - 1 of the matrix, counted along its rows; pointers to value `first`.
  virtual Status leave(const float* m, std::size_t first, std::size_t count, const LowrankShape& shape, const float* p,
                       const float* q, float* out, Stream& stream) = 0;
  virtual Status expand(std::size_t first, std::size_t count, const LowrankShape& shape, const float* p, const float* q,
                        float* out, Stream& stream) = 0;
};

}  // namespace fluvial::kernels
