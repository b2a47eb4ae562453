#include "kernels/codecs/zstd.h"

#include <algorithm>
#include <cstring>

#include "core/base/format.h"
#include "kernels/codecs/common.h"

#if defined(FLUVIAL_HAVE_ZSTD)
#include <zstd.h>
#endif

namespace fluvial::kernels {

#if !defined(FLUVIAL_HAVE_ZSTD)

bool zstd_available() { return false; }

Result<std::unique_ptr<Codec>> make_zstd_codec(std::unique_ptr<Codec>, const CodecSpec& spec) {
  return Error{Code::kFailedPrecondition,
               format_text("codec {}: this build has no zstd (libzstd-dev)", to_string(spec))};
}

#else

namespace {

constexpr std::byte kVersion{1};
constexpr std::byte kStored{0};
constexpr std::byte kCompressed{1};
constexpr std::size_t kHeaderBytes = 8;
constexpr std::uint32_t kFrameMagic = 0xFD2FB528U;

struct FreeContext {
  void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
  void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
};

Error bad(std::string message) { return {Code::kDataLoss, "zstd chunk: " + std::move(message)}; }

// The first bytes of all values, then the second ones, ...: the bytes with the exponents compress when they stand
// together, and those of the lower digits are passed over.
template <std::size_t Width>
void split(const std::byte* from, std::size_t values, std::byte* to) {
  for (std::size_t i = 0; i < values; ++i) {
    for (std::size_t plane = 0; plane < Width; ++plane) to[plane * values + i] = from[Width * i + plane];
  }
}
template <std::size_t Width>
void join(const std::byte* from, std::size_t values, std::byte* to) {
  for (std::size_t i = 0; i < values; ++i) {
    for (std::size_t plane = 0; plane < Width; ++plane) to[Width * i + plane] = from[plane * values + i];
  }
}

// How many bytes of an encoded value belong together.
std::size_t width_of(CodecKind kind) {
  if (kind == CodecKind::kFp32 || kind == CodecKind::kPowerSgd || kind == CodecKind::kOnebitAdam) return 4;
  return kind == CodecKind::kFp16 || kind == CodecKind::kBf16 ? 2 : 1;
}

class ZstdCodec final : public Codec {
 public:
  ZstdCodec(std::unique_ptr<Codec> inner, const CodecSpec& spec)
      : inner_(std::move(inner)), spec_(spec), width_(width_of(spec.kind)) {}

  const CodecSpec& spec() const override { return spec_; }
  bool lossless() const override { return inner_->lossless(); }
  std::uint32_t passes() const override { return inner_->passes(); }
  ChunkLayout pass_layout(const VectorSchema& schema, std::uint32_t pass) const override {
    return inner_->pass_layout(schema, pass);
  }
  std::size_t encoded_bytes_max(std::size_t value_count) const override {
    return kHeaderBytes + inner_->encoded_bytes_max(value_count);
  }
  std::size_t workspace_bytes(const VectorSchema& schema) const override { return inner_->workspace_bytes(schema); }
  std::size_t state_bytes(const VectorSchema& schema) const override { return inner_->state_bytes(schema); }
  bool hands_down() const override { return inner_->hands_down(); }
  std::size_t handed_bytes(const VectorSchema& schema, std::uint64_t round) const override {
    return inner_->handed_bytes(schema, round);
  }

  Status lend_chunk(const VectorSchema& schema, const StreamKey& key, std::size_t chunk_index, ByteSpan handed,
                    std::span<float> residual, MutableByteSpan state) const override {
    return inner_->lend_chunk(schema, key, chunk_index, handed, residual, state);
  }
  Status fold(const VectorSchema& schema, std::span<const float> update, std::span<const float> residual,
              MutableByteSpan state, std::span<float> out) const override {
    return inner_->fold(schema, update, residual, state, out);
  }
  Status survey(const VectorSchema& schema, std::span<const float> vector, const StreamKey& key,
                MutableByteSpan workspace) const override {
    return inner_->survey(schema, vector, key, workspace);
  }
  Status survey_chunk(const VectorSchema& schema, const StreamKey& key, std::size_t chunk_index,
                      std::span<const float> chunk, MutableByteSpan workspace) const override {
    return inner_->survey_chunk(schema, key, chunk_index, chunk, workspace);
  }
  Result<EncodePlan> prepare(const VectorSchema& schema, std::span<const float> vector, const StreamKey& key,
                             const PassInput& input, MutableByteSpan state, MutableByteSpan workspace) const override {
    return inner_->prepare(schema, vector, key, input, state, workspace);
  }

  Result<std::size_t> encode_chunk(const EncodePlan& plan, std::size_t chunk_index, std::span<const float> chunk,
                                   MutableByteSpan out) const override {
    FLUVIAL_TRY(check_encode(*this, plan, chunk_index, chunk, out));
    Buffer bytes(inner_->encoded_bytes_max(chunk.size()));
    FLUVIAL_ASSIGN(const std::size_t size, inner_->encode_chunk(plan, chunk_index, chunk, bytes.span()));
    return compress(ByteSpan(bytes.span()).first(size), out);
  }
  Result<std::size_t> encode_residual_chunk(const EncodePlan& plan, std::size_t chunk_index,
                                            std::span<const float> chunk, MutableByteSpan out,
                                            std::span<float> residual) const override {
    FLUVIAL_TRY(check_encode(*this, plan, chunk_index, chunk, out));
    Buffer bytes(inner_->encoded_bytes_max(chunk.size()));
    FLUVIAL_ASSIGN(const std::size_t size,
                   inner_->encode_residual_chunk(plan, chunk_index, chunk, bytes.span(), residual));
    return compress(ByteSpan(bytes.span()).first(size), out);
  }

  Status decode_chunk(ByteSpan bytes, std::span<float> out) const override {
    FLUVIAL_ASSIGN(const Opened inner, open(bytes, out.size()));
    return inner_->decode_chunk(inner.bytes, out);
  }
  Status decode_accumulate_chunk(ByteSpan bytes, std::uint32_t weight, int scale_bits,
                                 std::span<std::int64_t> sum) const override {
    FLUVIAL_ASSIGN(const Opened inner, open(bytes, sum.size()));
    return inner_->decode_accumulate_chunk(inner.bytes, weight, scale_bits, sum);
  }
  Result<ScreenReport> screen_chunk(ByteSpan bytes, std::size_t value_count, std::uint64_t first_value) const override {
    FLUVIAL_ASSIGN(const Opened inner, open(bytes, value_count));
    return inner_->screen_chunk(inner.bytes, value_count, first_value);
  }
  Status residual_chunk(std::span<const float> values, ByteSpan bytes, std::span<float> out) const override {
    FLUVIAL_ASSIGN(const Opened inner, open(bytes, values.size()));
    return inner_->residual_chunk(values, inner.bytes, out);
  }
  Status decode_add_chunk(ByteSpan bytes, float weight, std::span<float> sum) const override {
    FLUVIAL_ASSIGN(const Opened inner, open(bytes, sum.size()));
    return inner_->decode_add_chunk(inner.bytes, weight, sum);
  }
  Status settle_chunk(const VectorSchema& schema, std::size_t chunk_index, ByteSpan bytes,
                      MutableByteSpan state) const override {
    if (chunk_index >= schema.layout.chunk_count()) {
      return Error{Code::kInvalidArgument, format_text("chunk {} of {}", chunk_index, schema.layout.chunk_count())};
    }
    FLUVIAL_ASSIGN(const Opened inner, open(bytes, schema.layout.size(chunk_index)));
    return inner_->settle_chunk(schema, chunk_index, inner.bytes, state);
  }

  // Of codecs with several passes, and of what rounds hand down: nothing of it is an encoded chunk.
  Status prepare_part(const EncodePlan& plan, std::size_t part) const override {
    return inner_->prepare_part(plan, part);
  }
  Status leave_chunk(const EncodePlan& plan, std::size_t chunk_index, std::span<const float> values,
                     std::span<float> out) const override {
    return inner_->leave_chunk(plan, chunk_index, values, out);
  }
  Result<ExpandPlan> prepare_expand(const VectorSchema& schema, std::span<const std::span<const float>> means,
                                    MutableByteSpan workspace) const override {
    return inner_->prepare_expand(schema, means, workspace);
  }
  Status expand_chunk(const ExpandPlan& plan, std::size_t chunk_index, std::span<float> out) const override {
    return inner_->expand_chunk(plan, chunk_index, out);
  }
  Status settle(const VectorSchema& schema, const StreamKey& key, std::span<const float> mean,
                MutableByteSpan state) const override {
    return inner_->settle(schema, key, mean, state);
  }
  Status continue_state(const VectorSchema& schema, const StreamKey& key, ByteSpan last,
                        MutableByteSpan state) const override {
    return inner_->continue_state(schema, key, last, state);
  }

 private:
  // The inner chunk: within the bytes themselves when it was stored.
  struct Opened {
    Buffer memory;
    ByteSpan bytes;
  };

  Result<std::size_t> compress(ByteSpan inner, MutableByteSpan out) const {
    store_le<std::uint64_t>(out.data(), 0);
    out[0] = kVersion;
    store_le<std::uint32_t>(out.data() + 4, static_cast<std::uint32_t>(inner.size()));
    const std::size_t width = inner.size() % width_ == 0 ? width_ : 1;
    Buffer planes;
    ByteSpan source = inner;
    if (width > 1) {
      planes = Buffer(inner.size());
      (width == 2 ? split<2> : split<4>)(inner.data(), inner.size() / width, planes.data());
      source = planes.span();
    }
    const std::unique_ptr<ZSTD_CCtx, FreeContext> context(ZSTD_createCCtx());
    if (context == nullptr) return Error{Code::kResourceExhausted, "no memory for zstd"};
    // No room for a frame that is not shorter: it ends with an error then, and the chunk is stored.
    const std::size_t room = std::max<std::size_t>(inner.size(), 1) - 1;
    const std::size_t size = ZSTD_compressCCtx(context.get(), out.data() + kHeaderBytes, room, source.data(),
                                               source.size(), spec_.zstd_level);
    if (ZSTD_isError(size) != 0) {
      if (!inner.empty()) std::memcpy(out.data() + kHeaderBytes, inner.data(), inner.size());
      return kHeaderBytes + inner.size();
    }
    out[1] = kCompressed;
    out[2] = static_cast<std::byte>(width);
    return kHeaderBytes + size;
  }

  Result<Opened> open(ByteSpan bytes, std::size_t value_count) const {
    if (bytes.size() < kHeaderBytes)
      return bad(format_text("{} bytes, expected at least {}", bytes.size(), kHeaderBytes));
    if (bytes[0] != kVersion) return bad("a header of another version, expected 1");
    const auto inner_size = std::size_t{load_le<std::uint32_t>(bytes.data() + 4)};
    const ByteSpan rest = bytes.subspan(kHeaderBytes);
    const auto width = static_cast<std::size_t>(bytes[2]);
    if (bytes[3] != std::byte{0}) return bad("a header of another version, expected 1");
    if (bytes[1] == kStored) {
      if (width != 0) return bad(format_text("stored in {} planes, expected 0", width));
      if (rest.size() != inner_size) return bad(format_text("{} bytes, expected {}", rest.size(), inner_size));
      return Opened{.memory = {}, .bytes = rest};
    }
    if (bytes[1] != kCompressed) return bad("a form that is neither 0 (stored) nor 1 (compressed)");
    if (width != 1 && width != 2 && width != 4) return bad(format_text("{} planes, expected 1, 2 or 4", width));
    if (inner_size % width != 0) return bad(format_text("{} bytes in {} planes", inner_size, width));
    const std::size_t most = inner_->encoded_bytes_max(value_count);
    if (inner_size > most) return bad(format_text("{} bytes decompressed, expected at most {}", inner_size, most));
    return decompress(rest, inner_size, width);
  }

  // Nothing is allocated before the frame says that it holds as much as the header says, which was checked.
  static Result<Opened> decompress(ByteSpan frame, std::size_t size, std::size_t width) {
    if (frame.size() < 4 || load_le<std::uint32_t>(frame.data()) != kFrameMagic) return bad("no zstd frame");
    if (ZSTD_getFrameContentSize(frame.data(), frame.size()) != size) {
      return bad(format_text("the frame does not say that it holds {} bytes", size));
    }
    if (ZSTD_findFrameCompressedSize(frame.data(), frame.size()) != frame.size()) {
      return bad("the frame does not end with the chunk");
    }
    const std::unique_ptr<ZSTD_DCtx, FreeContext> context(ZSTD_createDCtx());
    if (context == nullptr) return Error{Code::kResourceExhausted, "no memory for zstd"};
    Buffer memory(size);
    const std::size_t got = ZSTD_decompressDCtx(context.get(), memory.data(), size, frame.data(), frame.size());
    if (ZSTD_isError(got) != 0)
      return bad(format_text("the frame is damaged: {}", std::string_view(ZSTD_getErrorName(got))));
    if (got != size) return bad(format_text("the frame holds {} bytes, expected {}", got, size));
    if (width > 1) {
      Buffer values(size);
      (width == 2 ? join<2> : join<4>)(memory.data(), size / width, values.data());
      memory = std::move(values);
    }
    const ByteSpan all = memory.span();
    return Opened{.memory = std::move(memory), .bytes = all};
  }

  std::unique_ptr<Codec> inner_;
  CodecSpec spec_;
  std::size_t width_;
};

}  // namespace

bool zstd_available() { return true; }

Result<std::unique_ptr<Codec>> make_zstd_codec(std::unique_ptr<Codec> inner, const CodecSpec& spec) {
  return std::unique_ptr<Codec>(std::make_unique<ZstdCodec>(std::move(inner), spec));
}

#endif

}  // namespace fluvial::kernels
