// dgc: deep gradient compression (Lin, Han, Mao, Wang, Dally, ICLR 2018, algorithm 4). Momentum and the gradients that
// were not sent accumulate at the site; topk's chunks carry the greatest of them. The residual is the paper's v, the
// state its u: one fp32 a coordinate. clip is the greatest 2-norm of one site's gradient: the bound for the sum,
// already divided by the square root of the number of sites.
#include "kernels/ops/dgc.h"

#include <algorithm>

#include "core/base/format.h"
#include "kernels/codecs/options.h"
#include "kernels/codecs/topk.h"
#include "kernels/ops/bits.h"
#include "kernels/reduce.h"

namespace fluvial::kernels {
namespace {

constexpr double kDefaultRatio = 0.001;
std::span<float> momentum_of(MutableByteSpan state) {
  return {reinterpret_cast<float*>(state.data()), state.size() / sizeof(float)};  // NOLINT: the state as numbers
}

class DgcCodec final : public TopkCodec {
 public:
  using TopkCodec::TopkCodec;

  std::size_t workspace_bytes(const VectorSchema& schema) const override {
    std::size_t bytes = TopkCodec::workspace_bytes(schema);
    for (std::uint64_t step = 0; step < ops::kDgcSteps; ++step) {
      const std::uint64_t k = entries_wanted(ratio(1 + step * spec().warmup_rounds), schema.layout.value_count);
      bytes = std::max(bytes, Survey::workspace_bytes(schema.layout, k));
    }
    return bytes;
  }
  std::size_t state_bytes(const VectorSchema& schema) const override {
    return static_cast<std::size_t>(schema.layout.value_count) * sizeof(float);
  }

  // u = momentum * u + clipped update; out = residual + u.
  Status fold(const VectorSchema& schema, std::span<const float> update, std::span<const float> residual,
              MutableByteSpan state, std::span<float> out) const override {
    FLUVIAL_TRY(check_fold(*this, schema, update, residual, state, out));
    float factor = 1;
    if (spec().clip > 0) {
      FLUVIAL_ASSIGN(factor, factor_of(update));
    } else if (loops().max_bits(update.data(), update.size()) >= ops::kInfinityBits) {
      return not_encodable(update, 0);
    }
    dgc_fold(update, residual, factor, momentum_of(state), out);
    return {};
  }

  Status settle_chunk(const VectorSchema& schema, std::size_t chunk_index, ByteSpan bytes,
                      MutableByteSpan state) const override {
    if (state.size() != state_bytes(schema) || chunk_index >= schema.layout.chunk_count()) {
      return Error{Code::kInvalidArgument, format_text("chunk {} of a codec state of {} bytes, expected {}",
                                                       chunk_index, state.size(), state_bytes(schema))};
    }
    return clear_sent(bytes, schema.layout.of(momentum_of(state), chunk_index));
  }

 protected:
  double ratio(std::uint64_t round) const override { return ops::dgc_ratio(spec().ratio, spec().warmup_rounds, round); }
  std::string_view name() const override { return "dgc"; }

 private:
  // min(1, clip / |update|), rounded once; the norm as screen() sums it.
  Result<float> factor_of(std::span<const float> update) const {
    std::array<double, cpu::kSquareLanes> lanes{};
    if (loops().screen(update.data(), update.size(), lanes.data()) >= ops::kInfinityBits) {
      return not_encodable(update, 0);
    }
    FLUVIAL_ASSIGN(const double factor, clip_factor(sum_lanes(lanes), spec().clip));
    return static_cast<float>(factor);
  }

  void dgc_fold(std::span<const float> update, std::span<const float> residual, float factor, std::span<float> momentum,
                std::span<float> out) const {
    sparse_loops().dgc_fold(update.data(), residual.empty() ? nullptr : residual.data(), update.size(), factor,
                            static_cast<float>(spec().momentum), momentum.data(), out.data());
  }
};

constexpr CodecOption kOptions[] = {kRatioOption, number_option<&CodecSpec::momentum>("momentum"),
                                    number_option<&CodecSpec::clip>("clip"),
                                    number_option<&CodecSpec::warmup_rounds>("warmup")};

Status check(const CodecSpec& spec) {
  FLUVIAL_TRY(check_ratio(spec));
  if (!(spec.momentum >= 0 && spec.momentum < 1)) {
    return bad_option(format_text("momentum is {}, expected 0 or more, below 1", spec.momentum));
  }
  if (!(spec.clip >= 0 && spec.clip <= 0x1p127)) {
    return bad_option(format_text("clip is {}, expected 0 (none) to 2^127", spec.clip));
  }
  return {};
}

}  // namespace

const CodecEntry kDgcEntry = {.kind = CodecKind::kDgc,
                              .name = "dgc",
                              .options = kOptions,
                              .check = check,
                              .make = make_as<DgcCodec>,
                              .ratio = kDefaultRatio};

}  // namespace fluvial::kernels
