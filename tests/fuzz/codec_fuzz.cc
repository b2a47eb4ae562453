// Every function that reads encoded or partial chunks, on any bytes: it accepts exactly what the reference accepts,
// decodes alike, and leaves the sum alone when it refuses. Input: a byte that picks the reader, two for the number of
// values, the chunk.
#include <cstdint>
#include <vector>

#include "core/base/check.h"
#include "kernels/codec.h"
#include "kernels/fixed.h"
#include "kernels/reference/reference.h"

namespace fluvial::kernels {
namespace {

constexpr std::size_t kValuesEnd = 4'096;
constexpr const char* kCodecs[] = {"fp32", "bf16", "int8:block=128", "int8", "topk", "fp16", "int4:block=128", "int4"};

void read_partial(ByteSpan bytes, std::size_t value_count) {
  std::vector<std::int64_t> sum(value_count, 0);
  const auto expected = reference::unpack(bytes, value_count);
  FLUVIAL_CHECK(check_packed_chunk(bytes, value_count).ok() == expected.has_value(), "check and reference differ");
  FLUVIAL_CHECK(merge_chunk(bytes, sum).ok() == expected.has_value(), "merge and reference differ");
  FLUVIAL_CHECK(sum == expected.value_or(std::vector<std::int64_t>(value_count, 0)), "merged sums differ");
}

void read_encoded(const char* text, ByteSpan bytes, std::size_t value_count) {
  const CodecSpec spec = parse_codec(text).value();
  const auto codec = make_codec(spec).value();
  if ((spec.kind == CodecKind::kInt8 || spec.kind == CodecKind::kInt4) && bytes.size() >= 4 &&
      load_le<std::uint16_t>(bytes.data() + 2) != spec.block_values) {
    FLUVIAL_CHECK(!codec->screen_chunk(bytes, value_count, 0).ok(), "another block length is refused");
    return;
  }
  const auto expected = reference::decode(text, bytes, value_count);
  FLUVIAL_CHECK(codec->screen_chunk(bytes, value_count, 0).ok() == expected.has_value(), "screen and reference differ");
  std::vector<float> decoded(value_count);
  const bool decodes = codec->decode_chunk(bytes, decoded).ok();
  FLUVIAL_CHECK(decodes || !expected, "what passed the screen decodes");
  if (expected) {
    for (std::size_t i = 0; i < value_count; ++i) {
      FLUVIAL_CHECK(static_cast<double>(decoded[i]) == (*expected)[i], "decoded values differ");
    }
  }
  std::vector<std::int64_t> sum(value_count, 1);
  if (!codec->decode_accumulate_chunk(bytes, 3, 10, sum).ok()) {
    FLUVIAL_CHECK(sum == std::vector<std::int64_t>(value_count, 1), "a refused chunk changed the sum");
  }
  FLUVIAL_CHECK(codec->residual_chunk(decoded, bytes, decoded).ok() == decodes, "residual and decode differ");
}

}  // namespace
}  // namespace fluvial::kernels

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fluvial;
  if (size < 3) return 0;
  const ByteSpan input = std::as_bytes(std::span(data, size));
  const std::size_t value_count = load_le<std::uint16_t>(input.data() + 1) % kernels::kValuesEnd;
  const std::size_t reader = data[0] % (std::size(kernels::kCodecs) + 1);
  if (reader == std::size(kernels::kCodecs)) {
    kernels::read_partial(input.subspan(3), value_count);
  } else {
    kernels::read_encoded(kernels::kCodecs[reader], input.subspan(3), value_count);
  }
  return 0;
}
