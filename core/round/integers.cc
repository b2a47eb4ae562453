#include "core/round/integers.h"

#include <limits>
#include <string>

namespace fluvial::round {
namespace {

struct Range {
  std::int64_t least = 0;
  std::int64_t most = 0;
};

template <typename T>
constexpr Range kRangeOf{std::numeric_limits<T>::min(), std::numeric_limits<T>::max()};

Range range_of(DType dtype) {
  switch (dtype) {
    case DType::kI8: return kRangeOf<std::int8_t>;
    case DType::kI16: return kRangeOf<std::int16_t>;
    case DType::kI32: return kRangeOf<std::int32_t>;
    case DType::kI64: return kRangeOf<std::int64_t>;
    case DType::kU8: return kRangeOf<std::uint8_t>;
    case DType::kBool: return {0, 1};
    case DType::kF32: break;
  }
  FLUVIAL_CHECK(false, "not an integer dtype");
}

// What stands in the base may stay, whoever put it there.
std::int64_t most_after(const Range& range, std::int64_t base) {
  if (base >= range.most) return base;
  const bool reaches = range.most - kIntegerStepMax <= base;
  return reaches ? range.most : base + kIntegerStepMax;
}

}  // namespace

Status check_integers(const Schema& schema, std::span<const std::int64_t> base,
                      std::span<const std::int64_t> integers) {
  FLUVIAL_CHECK(base.size() == schema.integer_count() && integers.size() == schema.integer_count(),
                "sizes that do not fit the schema");
  std::size_t first = 0;
  for (std::size_t t = 0; t < schema.tensors().size(); ++t) {
    const Tensor& tensor = schema.tensors()[t];
    if (is_averaged(tensor.dtype)) continue;
    const Range range = range_of(tensor.dtype);
    for (std::size_t i = 0; i < schema.tensor_values(t); ++i) {
      const std::int64_t value = integers[first + i];
      const std::int64_t most = most_after(range, base[first + i]);
      if (value >= range.least && value <= most) continue;
      return Error{Code::kDataLoss, "tensor '" + tensor.name + "', value " + std::to_string(i) + " is " +
                                        std::to_string(value) + ", expected " + std::to_string(range.least) + " to " +
                                        std::to_string(most)};
    }
    first += schema.tensor_values(t);
  }
  return {};
}

}  // namespace fluvial::round
