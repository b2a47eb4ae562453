#include "kernels/codecs/powersgd_shapes.h"

#include <algorithm>
#include <optional>
#include <span>

#include "core/base/check.h"
#include "core/base/format.h"
#include "kernels/ops/philox.h"

namespace fluvial::kernels::powersgd {
namespace {

constexpr std::uint64_t kPartValues = std::uint64_t{1} << 20;
constexpr std::uint64_t kPartCols = 512;

// The product of dimensions; nothing when it is beyond `most`.
std::optional<std::uint64_t> product_of(std::span<const std::uint64_t> dims, std::uint64_t most) {
  if (std::ranges::find(dims, std::uint64_t{0}) != dims.end()) return 0;
  std::uint64_t product = 1;
  for (const std::uint64_t dim : dims) {
    if (dim > most / product) return std::nullopt;
    product *= dim;
  }
  return product;
}

std::size_t step_of(const Segment& segment, std::uint32_t pass) {
  if (segment.rank == 0) return static_cast<std::size_t>(kPartValues);
  if (pass == 1) return static_cast<std::size_t>(kPartCols);
  return static_cast<std::size_t>(std::max<std::uint64_t>(8, kPartValues / segment.cols / 8 * 8));
}

std::size_t whole_of(const Segment& segment, std::uint32_t pass) {
  if (segment.rank == 0) return static_cast<std::size_t>(segment.count);
  return pass == 1 ? segment.cols : segment.rows;
}

std::size_t parts_of(const Segment& segment, std::uint32_t pass) {
  const std::size_t step = step_of(segment, pass);
  return whole_of(segment, pass) / step + (whole_of(segment, pass) % step != 0 ? 1 : 0);
}

}  // namespace

Status check_tensors(const VectorSchema& schema) {
  std::uint64_t end = 0;
  for (std::size_t i = 0; i < schema.tensors.size(); ++i) {
    const TensorShape& tensor = schema.tensors[i];
    if (tensor.offset_values < end) {
      return Error{Code::kInvalidArgument, format_text("tensor {} begins at value {}, expected {} or later: in order, "
                                                       "without overlap",
                                                       i, tensor.offset_values, end)};
    }
    const std::uint64_t room = schema.layout.value_count - std::min(tensor.offset_values, schema.layout.value_count);
    const std::optional<std::uint64_t> count = product_of(tensor.dims, std::max<std::uint64_t>(room, 1));
    if (tensor.offset_values > schema.layout.value_count || !count || *count > room) {
      return Error{Code::kInvalidArgument, format_text("tensor {} begins at value {} and ends beyond the vector's {}",
                                                       i, tensor.offset_values, schema.layout.value_count)};
    }
    end = tensor.offset_values + *count;
  }
  return {};
}

Segments::Segments(const VectorSchema& schema, std::uint32_t rank) : schema_(schema), rank_(rank) {
  if (!check_tensors(schema).ok()) schema_.tensors = {};
}

bool Segments::take(std::uint64_t count, std::size_t rows, std::size_t cols, std::size_t rank, Segment* segment) {
  ahead_.count = count;
  ahead_.rows = rows;
  ahead_.cols = cols;
  ahead_.rank = rank;
  *segment = ahead_;
  ahead_.first += count;
  ahead_.p_first += rank * rows;
  ahead_.q_first += rank * cols;
  ahead_.plain_first += rank == 0 ? count : 0;
  return true;
}

bool Segments::next(Segment* segment) {
  // Values that are not cut join one run, up to the next matrix that is cut.
  for (; tensor_ < schema_.tensors.size(); ++tensor_) {
    const TensorShape& tensor = schema_.tensors[tensor_];
    if (tensor.dims.size() < 2) continue;
    const std::uint64_t n = tensor.dims[0];
    const std::uint64_t m = product_of(tensor.dims.subspan(1), schema_.layout.value_count).value_or(0);
    const std::uint64_t r = std::min<std::uint64_t>({rank_, n, m});
    if (n == 0 || m == 0 || n * m <= kRateMin * r * (n + m)) continue;
    if (tensor.offset_values > ahead_.first) return take(tensor.offset_values - ahead_.first, 0, 0, 0, segment);
    ++tensor_;
    return take(n * m, static_cast<std::size_t>(n), static_cast<std::size_t>(m), static_cast<std::size_t>(r), segment);
  }
  const std::uint64_t end = schema_.layout.value_count;
  return end > ahead_.first && take(end - ahead_.first, 0, 0, 0, segment);
}

Totals totals_of(const VectorSchema& schema, std::uint32_t rank) {
  Totals totals;
  Segments segments(schema, rank);
  for (Segment segment; segments.next(&segment);) {
    totals.p += segment.rank * segment.rows;
    totals.q += segment.rank * segment.cols;
    totals.plain += segment.rank == 0 ? segment.count : 0;
    totals.p_columns += segment.rank;
    totals.p_most = std::max<std::uint64_t>(totals.p_most, segment.rank * segment.rows);
    for (const std::uint32_t pass : {0U, 1U}) totals.parts[pass] += parts_of(segment, pass);
  }
  return totals;
}

Part part_of(const VectorSchema& schema, std::uint32_t rank, std::uint32_t pass, std::size_t part) {
  Segments segments(schema, rank);
  Segment segment;
  while (segments.next(&segment)) {
    const std::size_t parts = parts_of(segment, pass);
    if (part < parts) {
      const std::size_t step = step_of(segment, pass);
      return {segment, part * step, std::min(step, whole_of(segment, pass) - part * step)};
    }
    part -= parts;
  }
  FLUVIAL_CHECK(false, "a part beyond the last");
  return {};
}

std::uint64_t fingerprint(const VectorSchema& schema, std::uint32_t rank) {
  std::uint64_t hash = schema.layout.value_count;
  Segments segments(schema, rank);
  for (Segment segment; segments.next(&segment);) {
    for (const std::uint64_t number : {segment.first, std::uint64_t{segment.rows}, std::uint64_t{segment.cols}}) {
      hash = ops::mix64(hash + 0x9e3779b97f4a7c15ULL) ^ number;
    }
  }
  return ops::mix64(hash);
}

}  // namespace fluvial::kernels::powersgd
