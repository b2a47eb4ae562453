#include "kernels/codecs/sparse.h"

#include <algorithm>
#include <cstring>

#include "kernels/ops/bits.h"
#include "kernels/ops/fixed.h"

namespace fluvial::kernels {
namespace {

constexpr std::size_t kBatchEntries = 256;  // prefetched together: the cache has room for as many lines

// Calls visit(indices, values) for the entries in batches; the targets of a batch are on their way into the cache.
template <typename T, typename Visit>
void for_each_batch(SparseEntries entries, const T* targets, Visit visit) {
  std::array<std::uint32_t, kBatchEntries> indices;
  std::array<float, kBatchEntries> values;
  for (std::size_t first = 0; first < entries.count; first += kBatchEntries) {
    const std::size_t length = std::min(kBatchEntries, entries.count - first);
    entries.read_indices(std::span(indices).first(length));
    for (std::size_t i = 0; i < length; ++i) __builtin_prefetch(targets + indices[i], 1);
    std::memcpy(values.data(), entries.values.data() + first * sizeof(float), length * sizeof(float));
    visit(std::span<const std::uint32_t>(indices.data(), length), std::span<const float>(values.data(), length));
  }
}

}  // namespace

Error not_encodable(std::span<const float> values, std::uint64_t first_value) {
  return {Code::kInvalidArgument, not_finite(values, first_value).message};
}

Status SparseCodec::decode_chunk(ByteSpan bytes, std::span<float> out) const {
  FLUVIAL_ASSIGN(const SparseEntries entries, parse(bytes, out.size()));
  std::fill(out.begin(), out.end(), 0.0F);
  for_each_batch(entries, out.data(), [&](std::span<const std::uint32_t> indices, std::span<const float> values) {
    for (std::size_t i = 0; i < indices.size(); ++i) out[indices[i]] = values[i];
  });
  return {};
}

Status SparseCodec::decode_accumulate_chunk(ByteSpan bytes, std::uint32_t weight, int scale_bits,
                                            std::span<std::int64_t> sum) const {
  FLUVIAL_ASSIGN(const double factor, term_factor(weight, scale_bits));
  FLUVIAL_ASSIGN(const SparseEntries entries, parse(bytes, sum.size()));
  std::array<float, kBatchEntries> values;
  for (std::size_t first = 0; first < entries.count; first += kBatchEntries) {
    const std::size_t length = std::min(kBatchEntries, entries.count - first);
    std::memcpy(values.data(), entries.values.data() + first * sizeof(float), length * sizeof(float));
    const float max_abs = ops::bits_float(loops_.max_bits(values.data(), length));
    if (!(ops::fixed_product(max_abs, factor) <= ops::kTermLimit)) return not_screened();  // NaN too
  }
  for_each_batch(entries, sum.data(), [&](std::span<const std::uint32_t> indices, std::span<const float> batch) {
    for (std::size_t i = 0; i < indices.size(); ++i) {
      std::int64_t& target = sum[indices[i]];
      target = ops::wrapping_add(target, ops::to_fixed(ops::fixed_product(batch[i], factor)));
    }
  });
  return {};
}

Result<ScreenReport> SparseCodec::screen_chunk(ByteSpan bytes, std::size_t value_count,
                                               std::uint64_t first_value) const {
  FLUVIAL_ASSIGN(const SparseEntries entries, parse(bytes, value_count));
  std::array<double, cpu::kSquareLanes> lanes{};
  std::uint32_t most = 0;
  Status finite;
  for_each_batch(entries, &most, [&](std::span<const std::uint32_t> indices, std::span<const float> values) {
    for (std::size_t i = 0; i < indices.size(); ++i) {
      const std::uint32_t magnitude = ops::magnitude_bits(values[i]);
      if (magnitude >= ops::kInfinityBits && finite.ok()) {
        finite = not_finite(values.subspan(i, 1), first_value + indices[i]);
      }
      most = std::max(most, magnitude);
      lanes[indices[i] % cpu::kSquareLanes] += static_cast<double>(values[i]) * static_cast<double>(values[i]);
    }
  });
  if (!finite.ok()) return finite.error();
  return ScreenReport{.max_abs = ops::bits_float(most), .norm_squared = sum_lanes(lanes)};
}

Status SparseCodec::decode_add_chunk(ByteSpan bytes, float weight, std::span<float> sum) const {
  FLUVIAL_ASSIGN(const SparseEntries entries, parse(bytes, sum.size()));
  for_each_batch(entries, sum.data(), [&](std::span<const std::uint32_t> indices, std::span<const float> values) {
    for (std::size_t i = 0; i < indices.size(); ++i) sum[indices[i]] += weight * values[i];
  });
  return {};
}

Status SparseCodec::clear_sent(ByteSpan bytes, std::span<float> values) const {
  FLUVIAL_ASSIGN(const SparseEntries entries, parse(bytes, values.size()));
  for_each_batch(entries, values.data(), [&](std::span<const std::uint32_t> indices, std::span<const float>) {
    for (const std::uint32_t index : indices) values[index] = 0.0F;
  });
  return {};
}

Status SparseCodec::residual_chunk(std::span<const float> values, ByteSpan bytes, std::span<float> out) const {
  FLUVIAL_CHECK(out.size() == values.size(), "a residual of another length");
  FLUVIAL_ASSIGN(const SparseEntries entries, parse(bytes, values.size()));
  if (out.data() != values.data()) sparse_loops_.copy(values.data(), values.size(), out.data());
  for_each_batch(entries, out.data(), [&](std::span<const std::uint32_t> indices, std::span<const float> sent) {
    for (std::size_t i = 0; i < indices.size(); ++i) out[indices[i]] -= sent[i];
  });
  return {};
}

}  // namespace fluvial::kernels
