// randk: one coordinate of each stratum, drawn alike by all sites of a round, so that no indices travel. Layout of a
// chunk: a 16-byte header with the seed, the values (fp32).
#include <algorithm>
#include <cstring>

#include "core/base/format.h"
#include "kernels/codecs/options.h"
#include "kernels/codecs/sparse.h"
#include "kernels/ops/bits.h"
#include "kernels/topk_sample.h"

namespace fluvial::kernels {
namespace {

constexpr std::uint8_t kVersion = 1;
constexpr std::size_t kHeaderBytes = 16;
constexpr std::size_t kBatchEntries = 256;

Error bad(std::string_view message) { return {Code::kDataLoss, format_text("randk chunk: {}", message)}; }

class RandkCodec final : public SparseCodec {
 public:
  using SparseCodec::SparseCodec;

  std::size_t encoded_bytes_max(std::size_t value_count) const override {
    return kHeaderBytes + entries_of(value_count) * sizeof(float);
  }
  std::size_t workspace_bytes(const VectorSchema&) const override { return 0; }
  std::size_t state_bytes(const VectorSchema&) const override { return 0; }

  Result<std::size_t> encode_chunk(const EncodePlan& plan, std::size_t chunk_index, std::span<const float> chunk,
                                   MutableByteSpan out) const override {
    FLUVIAL_TRY(check_encode(*this, plan, chunk_index, chunk, out));
    const std::uint64_t first_value = plan.layout.first_value(chunk_index);
    const std::uint64_t seed = ops::strata_seed(plan.key.run, plan.key.round, first_value);
    const std::size_t count = entries_of(chunk.size());
    store_le<std::uint32_t>(out.data(), kVersion);
    store_le<std::uint32_t>(out.data() + 4, static_cast<std::uint32_t>(count));
    store_le<std::uint64_t>(out.data() + 8, seed);
    Strata strata(seed, count, chunk.size());
    Batch batch;
    for (std::size_t first = 0; first < count; first += kBatchEntries) {
      const std::size_t length = std::min(kBatchEntries, count - first);
      take_values(chunk, strata, batch, length);
      if (loops().max_bits(batch.values.data(), length) >= ops::kInfinityBits) return refusal(batch, first_value);
      if (spec().unbiased) scale_values(batch, length);
      std::memcpy(out.data() + kHeaderBytes + first * sizeof(float), batch.values.data(), length * sizeof(float));
    }
    return kHeaderBytes + count * sizeof(float);
  }

  Status residual_chunk(std::span<const float> values, ByteSpan bytes, std::span<float> out) const override {
    if (!spec().unbiased) return SparseCodec::residual_chunk(values, bytes, out);
    FLUVIAL_CHECK(out.size() == values.size(), "a residual of another length");
    if (const auto entries = parse(bytes, values.size()); !entries.ok()) return entries.error();
    std::fill(out.begin(), out.end(), 0.0F);  // the scaled values stand for the rest as well
    return {};
  }

 protected:
  Result<SparseEntries> parse(ByteSpan bytes, std::size_t value_count) const override {
    if (bytes.size() < kHeaderBytes) return bad(format_text("{} bytes, shorter than its header", bytes.size()));
    const auto version = load_le<std::uint32_t>(bytes.data());
    if (version != kVersion) {
      return bad(format_text("version {}, expected {} and three zero bytes", version, kVersion));
    }
    SparseEntries entries;
    entries.count = load_le<std::uint32_t>(bytes.data() + 4);
    if (entries.count > value_count || (entries.count == 0 && value_count > 0)) {
      return bad(format_text("{} entries for {} values", entries.count, value_count));
    }
    if (bytes.size() - kHeaderBytes != entries.count * sizeof(float)) {
      return bad(format_text("{} bytes do not fit {} entries", bytes.size(), entries.count));
    }
    entries.values = bytes.subspan(kHeaderBytes);
    entries.listed = false;
    const std::uint64_t seed = load_le<std::uint64_t>(bytes.data() + 8);
    if (entries.count > 0) entries.strata = Strata(seed, entries.count, value_count);
    return entries;
  }

 private:
  struct Batch {
    std::array<std::uint32_t, kBatchEntries> indices, sizes;
    std::array<float, kBatchEntries> values;
  };

  std::size_t entries_of(std::size_t value_count) const {
    return value_count == 0 ? 0 : static_cast<std::size_t>(entries_wanted(spec().ratio, value_count));
  }

  void take_values(std::span<const float> chunk, Strata& strata, Batch& batch, std::size_t length) const {
    strata.read(std::span(batch.indices).first(length), std::span(batch.sizes).first(length));
    for (std::size_t i = 0; i < length; ++i) __builtin_prefetch(chunk.data() + batch.indices[i]);
    for (std::size_t i = 0; i < length; ++i) batch.values[i] = chunk[batch.indices[i]];
  }

  static void scale_values(Batch& batch, std::size_t length) {
    for (std::size_t i = 0; i < length; ++i) batch.values[i] = ops::stratum_value(batch.values[i], batch.sizes[i]);
  }

  static Error refusal(const Batch& batch, std::uint64_t first_value) {
    const auto poison = std::ranges::find_if(
        batch.values, [](float value) { return ops::magnitude_bits(value) >= ops::kInfinityBits; });
    return not_encodable(std::span(&*poison, 1),
                         first_value + batch.indices[static_cast<std::size_t>(poison - batch.values.begin())]);
  }
};

struct ModeWords {
  static constexpr std::string_view key = "mode", yes = "unbiased", no = "feedback";
};
constexpr CodecOption kOptions[] = {kRatioOption, choice_option<&CodecSpec::unbiased, ModeWords>()};

}  // namespace

const CodecEntry kRandkEntry = {CodecKind::kRandk, "randk", kOptions, check_ratio, make_as<RandkCodec>};

}  // namespace fluvial::kernels
