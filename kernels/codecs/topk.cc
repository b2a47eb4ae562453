// topk: the k values of the whole vector that are greatest in magnitude. Layout of a chunk: a 12-byte header, the
// values (fp32), the indices within the chunk (sparse_indices.h).
#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/base/format.h"
#include "kernels/codecs/common.h"
#include "kernels/codecs/options.h"
#include "kernels/codecs/topk_threshold.h"
#include "kernels/ops/bits.h"
#include "kernels/ops/fixed.h"
#include "kernels/sparse_indices.h"

namespace fluvial::kernels {
namespace {

constexpr std::byte kVersion{1};
constexpr std::size_t kHeaderBytes = 12;

struct Entries {
  std::size_t count = 0;
  ByteSpan values;
  ByteSpan indices;

  float value(std::size_t entry) const {
    float value;
    std::memcpy(&value, values.data() + entry * sizeof(float), sizeof(float));
    return value;
  }
};

Error bad(std::string message) { return {Code::kDataLoss, "topk chunk: " + std::move(message)}; }

Result<Entries> parse(ByteSpan bytes, std::size_t value_count) {
  if (bytes.size() < kHeaderBytes) return bad(format_text("{} bytes, shorter than its header", bytes.size()));
  if (bytes[0] != kVersion || bytes[1] != std::byte{0} || bytes[2] != std::byte{0} || bytes[3] != std::byte{0}) {
    return bad("a header of another version, expected 1");
  }
  Entries entries;
  entries.count = load_le<std::uint32_t>(bytes.data() + 4);
  const std::size_t index_bytes = load_le<std::uint32_t>(bytes.data() + 8);
  if (entries.count > value_count) return bad(format_text("{} entries for {} values", entries.count, value_count));
  if (bytes.size() - kHeaderBytes != entries.count * sizeof(float) + index_bytes) {
    return bad(
        format_text("{} bytes do not fit {} entries with {} index bytes", bytes.size(), entries.count, index_bytes));
  }
  entries.values = bytes.subspan(kHeaderBytes, entries.count * sizeof(float));
  entries.indices = bytes.subspan(kHeaderBytes + entries.values.size());
  if (const Status indices = check_indices(entries.indices, entries.count, value_count); !indices.ok()) {
    return bad(indices.error().message);
  }
  return entries;
}

class TopkCodec final : public Codec {
 public:
  TopkCodec(const CodecSpec& spec, const cpu::Loops& loops) : spec_(spec), loops_(loops) {}

  const CodecSpec& spec() const override { return spec_; }
  bool lossless() const override { return false; }
  std::uint32_t passes() const override { return 1; }
  std::size_t encoded_bytes_max(std::size_t value_count) const override {
    return kHeaderBytes + value_count * (sizeof(float) + 1);
  }
  std::size_t workspace_bytes(const VectorSchema&) const override { return kThresholdWorkspaceBytes; }
  std::size_t state_bytes(const VectorSchema&) const override { return 0; }

  Result<EncodePlan> prepare(const VectorSchema& schema, std::span<const float> vector, const StreamKey& key,
                             const PassInput& input, MutableByteSpan state, MutableByteSpan workspace) const override {
    FLUVIAL_TRY(check_prepare(*this, schema, vector, input, state, workspace));
    const double wanted = std::ceil(spec_.ratio * static_cast<double>(vector.size()));
    const std::uint64_t k =
        std::clamp<std::uint64_t>(static_cast<std::uint64_t>(wanted), 1, std::max<std::uint64_t>(vector.size(), 1));
    const Threshold threshold = find_threshold(vector, k, workspace, loops_);
    return EncodePlan{.layout = schema.layout,
                      .key = key,
                      .pass = input.pass,
                      .values = vector,
                      .threshold_bits = threshold.bits,
                      .ties_end = threshold.ties_end};
  }

  Result<std::size_t> encode_chunk(const EncodePlan& plan, std::size_t chunk_index, std::span<const float> chunk,
                                   MutableByteSpan out) const override {
    FLUVIAL_TRY(check_encode(*this, plan, chunk_index, chunk, out));
    const std::uint64_t first_value = plan.layout.first_value(chunk_index);
    std::byte* values = out.data() + kHeaderBytes;
    std::byte* indices = values + chunk.size() * sizeof(float);  // moved to behind the values when they are counted
    IndexWriter writer(indices);
    std::size_t count = 0;
    std::array<std::uint32_t, kPieceValues> selected;
    for (std::size_t first = 0; first < chunk.size(); first += kPieceValues) {
      const std::span<const float> piece = chunk.subspan(first, std::min(kPieceValues, chunk.size() - first));
      const std::size_t found = loops_.select(piece.data(), piece.size(), plan.threshold_bits, selected.data());
      for (std::size_t i = 0; i < found; ++i) {
        const std::size_t index = first + selected[i];
        if (ops::magnitude_bits(chunk[index]) == plan.threshold_bits && first_value + index >= plan.ties_end) continue;
        std::memcpy(values + count * sizeof(float), &chunk[index], sizeof(float));
        writer.put(static_cast<std::uint32_t>(index));
        ++count;
      }
    }
    std::memmove(values + count * sizeof(float), indices, writer.bytes());
    store_le<std::uint32_t>(out.data(), static_cast<std::uint32_t>(kVersion));
    store_le<std::uint32_t>(out.data() + 4, static_cast<std::uint32_t>(count));
    store_le<std::uint32_t>(out.data() + 8, static_cast<std::uint32_t>(writer.bytes()));
    return kHeaderBytes + count * sizeof(float) + writer.bytes();
  }

  Status decode_chunk(ByteSpan bytes, std::span<float> out) const override {
    FLUVIAL_ASSIGN(const Entries entries, parse(bytes, out.size()));
    std::fill(out.begin(), out.end(), 0.0F);
    IndexReader indices(entries.indices);
    for (std::size_t entry = 0; entry < entries.count; ++entry) out[indices.next()] = entries.value(entry);
    return {};
  }

  Status decode_accumulate_chunk(ByteSpan bytes, std::uint32_t weight, int scale_bits,
                                 std::span<std::int64_t> sum) const override {
    FLUVIAL_ASSIGN(const double factor, term_factor(weight, scale_bits));
    FLUVIAL_ASSIGN(const Entries entries, parse(bytes, sum.size()));
    for (std::size_t entry = 0; entry < entries.count; ++entry) {
      if (!(std::fabs(ops::fixed_product(entries.value(entry), factor)) <= ops::kTermLimit)) return not_screened();
    }
    IndexReader indices(entries.indices);
    for (std::size_t entry = 0; entry < entries.count; ++entry) {
      std::int64_t& target = sum[indices.next()];
      target = ops::wrapping_add(target, ops::to_fixed(ops::fixed_product(entries.value(entry), factor)));
    }
    return {};
  }

  Result<ScreenReport> screen_chunk(ByteSpan bytes, std::size_t value_count, std::uint64_t first_value) const override {
    FLUVIAL_ASSIGN(const Entries entries, parse(bytes, value_count));
    std::array<double, cpu::kSquareLanes> lanes{};
    std::uint32_t most = 0;
    IndexReader indices(entries.indices);
    for (std::size_t entry = 0; entry < entries.count; ++entry) {
      const float value = entries.value(entry);
      const std::uint32_t index = indices.next();
      if (ops::magnitude_bits(value) >= ops::kInfinityBits)
        return not_finite(std::span(&value, 1), first_value + index);
      most = std::max(most, ops::magnitude_bits(value));
      lanes[index % cpu::kSquareLanes] += static_cast<double>(value) * static_cast<double>(value);
    }
    return ScreenReport{.max_abs = ops::bits_float(most), .norm_squared = sum_lanes(lanes)};
  }

  Status decode_add_chunk(ByteSpan bytes, float weight, std::span<float> sum) const override {
    FLUVIAL_ASSIGN(const Entries entries, parse(bytes, sum.size()));
    IndexReader indices(entries.indices);
    for (std::size_t entry = 0; entry < entries.count; ++entry) sum[indices.next()] += weight * entries.value(entry);
    return {};
  }

  Status residual_chunk(std::span<const float> values, ByteSpan bytes, std::span<float> out) const override {
    FLUVIAL_CHECK(out.size() == values.size(), "a residual of another length");
    FLUVIAL_ASSIGN(const Entries entries, parse(bytes, values.size()));
    if (out.data() != values.data() && !out.empty()) std::memmove(out.data(), values.data(), values.size_bytes());
    IndexReader indices(entries.indices);
    for (std::size_t entry = 0; entry < entries.count; ++entry) out[indices.next()] -= entries.value(entry);
    return {};
  }

 private:
  CodecSpec spec_;
  const cpu::Loops& loops_;
};

constexpr CodecOption kOptions[] = {kRatioOption};

std::unique_ptr<Codec> make(const CodecSpec& spec, cpu::Target target) {
  return std::make_unique<TopkCodec>(spec, cpu::loops(target));
}

}  // namespace

const CodecEntry kTopkEntry = {CodecKind::kTopk, "topk", kOptions, check_ratio, make};

}  // namespace fluvial::kernels
