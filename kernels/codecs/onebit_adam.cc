// onebit_adam: the sites' part of 1-bit Adam (onebit_adam.h). While it warms up an update travels as fp32, afterwards
// as sign, with what the site is lent of the momentum in it; a chunk's length says which. The state is what was lent,
// one fp32 a coordinate: an update that counts used it up, one that is late gives it back.
#include "kernels/onebit_adam.h"

#include <algorithm>

#include "core/base/format.h"
#include "kernels/codecs/common.h"
#include "kernels/codecs/options.h"
#include "kernels/cpu/onebit_adam_loops.h"

namespace fluvial::kernels {
namespace {

std::span<float> values_of(MutableByteSpan state) {
  return {reinterpret_cast<float*>(state.data()), state.size() / sizeof(float)};  // NOLINT: the state as numbers
}

class OnebitAdamCodec final : public Codec {
 public:
  OnebitAdamCodec(const CodecSpec& spec, cpu::Target target)
      : spec_(spec),
        loops_(cpu::onebit_adam_loops(target)),
        fp32_(kFp32Entry.make({.kind = CodecKind::kFp32}, target)),
        sign_(kSignEntry.make({.kind = CodecKind::kSign, .block_values = spec.block_values}, target)) {}

  const CodecSpec& spec() const override { return spec_; }
  bool lossless() const override { return false; }
  std::uint32_t passes() const override { return 1; }
  std::size_t encoded_bytes_max(std::size_t value_count) const override {
    return std::max(fp32_->encoded_bytes_max(value_count), sign_->encoded_bytes_max(value_count));
  }
  std::size_t workspace_bytes(const VectorSchema&) const override { return 0; }
  std::size_t state_bytes(const VectorSchema& schema) const override {
    return static_cast<std::size_t>(schema.layout.value_count) * sizeof(float);
  }
  bool hands_down() const override { return true; }
  std::size_t handed_bytes(const VectorSchema& schema, std::uint64_t round) const override {
    return hands_momentum_down(round, spec_.freeze_rounds) ? momentum(schema).bytes() : 0;
  }

  Status lend_chunk(const VectorSchema& schema, const StreamKey& key, std::size_t chunk_index, ByteSpan handed,
                    std::span<float> residual, MutableByteSpan state) const override {
    const std::size_t expected = key.round == 0 ? 0 : handed_bytes(schema, key.round - 1);
    if (handed.size() != expected) {
      return bad(
          format_text("round {} begins with a momentum of {} bytes, expected {}", key.round, handed.size(), expected));
    }
    if (chunk_index >= schema.layout.chunk_count() || residual.size() != schema.layout.size(chunk_index) ||
        state.size() != state_bytes(schema)) {
      return bad(format_text("chunk {}, a residual of {} values and a codec state of {} bytes, expected {}",
                             chunk_index, residual.size(), state.size(), state_bytes(schema)));
    }
    Values<float> memory(residual.size());
    if (handed.empty()) {
      std::ranges::fill(memory.span(), 0.0F);
    } else {
      const MomentumLayout layout = momentum(schema);
      const ByteSpan chunk = layout.chunk(handed, chunk_index).first(layout.encoded(chunk_index));
      FLUVIAL_TRY(sign_->screen_chunk(chunk, residual.size(), schema.layout.first_value(chunk_index)));
      FLUVIAL_TRY(sign_->decode_chunk(chunk, memory.span()));
    }
    loops_.exchange(spec_.beta1 / (1 - spec_.beta1), memory.span().data(), residual.size(),
                    schema.layout.of(values_of(state), chunk_index).data(), residual.data());
    return {};
  }

  Status continue_state(const VectorSchema& schema, const StreamKey&, ByteSpan last,
                        MutableByteSpan state) const override {
    const MomentumLayout layout = momentum(schema);
    if (last.size() != layout.bytes() || state.size() != last.size()) {
      return bad(format_text("momenta of {} and {} bytes, expected {}", last.size(), state.size(), layout.bytes()));
    }
    for (std::size_t i = 0; i < schema.layout.chunk_count(); ++i) {
      FLUVIAL_TRY(sign_->screen_chunk(layout.chunk(last, i).first(layout.encoded(i)), schema.layout.size(i),
                                      schema.layout.first_value(i)));
    }
    std::ranges::copy(last, state.begin());
    return {};
  }

  Result<std::size_t> encode_chunk(const EncodePlan& plan, std::size_t chunk_index, std::span<const float> chunk,
                                   MutableByteSpan out) const override {
    return of_round(plan.key.round).encode_chunk(plan, chunk_index, chunk, out);
  }
  Result<std::size_t> encode_residual_chunk(const EncodePlan& plan, std::size_t chunk_index,
                                            std::span<const float> chunk, MutableByteSpan out,
                                            std::span<float> residual) const override {
    return of_round(plan.key.round).encode_residual_chunk(plan, chunk_index, chunk, out, residual);
  }

  Status decode_chunk(ByteSpan bytes, std::span<float> out) const override {
    return of_bytes(bytes, out.size()).decode_chunk(bytes, out);
  }
  Status decode_accumulate_chunk(ByteSpan bytes, std::uint32_t weight, int scale_bits,
                                 std::span<std::int64_t> sum) const override {
    return of_bytes(bytes, sum.size()).decode_accumulate_chunk(bytes, weight, scale_bits, sum);
  }
  Result<ScreenReport> screen_chunk(ByteSpan bytes, std::size_t value_count, std::uint64_t first_value) const override {
    return of_bytes(bytes, value_count).screen_chunk(bytes, value_count, first_value);
  }
  Status residual_chunk(std::span<const float> values, ByteSpan bytes, std::span<float> out) const override {
    return of_bytes(bytes, values.size()).residual_chunk(values, bytes, out);
  }
  Status decode_add_chunk(ByteSpan bytes, float weight, std::span<float> sum) const override {
    return of_bytes(bytes, sum.size()).decode_add_chunk(bytes, weight, sum);
  }

  Status settle_chunk(const VectorSchema& schema, std::size_t chunk_index, ByteSpan,
                      MutableByteSpan state) const override {
    if (state.size() != state_bytes(schema) || chunk_index >= schema.layout.chunk_count()) {
      return bad(format_text("chunk {} of a codec state of {} bytes, expected {}", chunk_index, state.size(),
                             state_bytes(schema)));
    }
    std::ranges::fill(schema.layout.of(values_of(state), chunk_index), 0.0F);
    return {};
  }

 private:
  static Error bad(std::string message) { return {Code::kInvalidArgument, "onebit_adam: " + std::move(message)}; }
  const Codec& of_round(std::uint64_t round) const { return is_warm_up(round, spec_.freeze_rounds) ? *fp32_ : *sign_; }
  // No length is one of both.
  const Codec& of_bytes(ByteSpan bytes, std::size_t value_count) const {
    return bytes.size() == value_count * sizeof(float) ? *fp32_ : *sign_;
  }
  MomentumLayout momentum(const VectorSchema& schema) const { return {schema.layout, *sign_}; }

  CodecSpec spec_;
  const cpu::OnebitAdamLoops& loops_;
  std::unique_ptr<Codec> fp32_;
  std::unique_ptr<Codec> sign_;
};

constexpr CodecOption kOptions[] = {number_option<&CodecSpec::freeze_rounds>("freeze"),
                                    number_option<&CodecSpec::beta1>("beta1"), kBlockOption};

Status check(const CodecSpec& spec) {
  FLUVIAL_TRY(check_block(spec));
  if (spec.beta1 >= 0 && spec.beta1 < 1) return {};
  return bad_option(format_text("beta1 is {}, expected 0 or more, below 1", spec.beta1));
}

}  // namespace

const CodecEntry kOnebitAdamEntry = {.kind = CodecKind::kOnebitAdam,
                                     .name = "onebit_adam",
                                     .options = kOptions,
                                     .check = check,
                                     .make = make_as<OnebitAdamCodec>};

}  // namespace fluvial::kernels
