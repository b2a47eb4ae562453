// Every function that reads encoded or partial chunks, on any bytes and every target: it accepts exactly what the
// reference accepts, decodes alike, sums exactly, and does not change the sum when it refuses. codec_input.h defines
// the bytes of the input.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "core/base/check.h"
#include "kernels/codec.h"
#include "kernels/fixed.h"
#include "kernels/reference/reference.h"
#include "kernels/test_values.h"
#include "tests/fuzz/codec_input.h"
#include "tests/fuzz/errors.h"

namespace fluvial::fuzz {
namespace {

using kernels::Codec;
using kernels::CodecSpec;

constexpr std::uint32_t kWeight = 3;

// The codecs of one reader in every variant that tests know, on every target: made once.
struct Variant {
  std::string text;
  std::vector<std::unique_ptr<Codec>> by_target;
};

const std::vector<Variant>& variants(std::uint8_t reader) {
  static const auto all = [] {
    std::vector<std::vector<Variant>> by_reader(kReaders);
    for (const std::string& text : codec_texts()) {
      Variant variant = {.text = text, .by_target = {}};
      const CodecSpec spec = kernels::parse_codec(text).value();
      for (const auto target : kernels::cpu::supported_targets()) {
        variant.by_target.push_back(kernels::make_codec(spec, target).value());
      }
      by_reader.at(reader_of(spec.kind)).push_back(std::move(variant));
    }
    return by_reader;
  }();
  return all.at(reader);
}

// ---- encoded chunks ----------------------------------------------------------------------------------------------

using Expected = std::vector<double>;

void check_screened(const kernels::ScreenReport& report, const Expected& expected) {
  double most = 0;
  double squares = 0;
  for (const double value : expected) {
    most = std::max(most, std::fabs(value));
    squares += value * value;
  }
  FLUVIAL_CHECK(static_cast<double>(report.max_abs) == most, "the greatest magnitude differs");
  FLUVIAL_CHECK(std::fabs(report.norm_squared - squares) <= 1e-9 * squares, "the norm differs");
}

void check_decoded(const Codec& codec, ByteSpan bytes, const Expected& expected) {
  std::vector<float> decoded(expected.size(), 7.0F);
  FLUVIAL_CHECK(codec.decode_chunk(bytes, decoded).ok(), "what passed the screen decodes");
  const std::vector<float> before(expected.size(), 0.75F);
  std::vector<float> residual(expected.size());
  std::vector<float> sum = before;
  FLUVIAL_CHECK(codec.residual_chunk(before, bytes, residual).ok(), "residual and decode differ");
  FLUVIAL_CHECK(codec.decode_add_chunk(bytes, 0.3F, sum).ok(), "decode_add and decode differ");
  for (std::size_t i = 0; i < expected.size(); ++i) {
    FLUVIAL_CHECK(static_cast<double>(decoded[i]) == expected[i], "decoded values differ");
    const float rest = codec.spec().unbiased ? 0.0F : 0.75F - decoded[i];  // unbiased randk leaves nothing out
    FLUVIAL_CHECK(residual[i] == rest, "residuals differ");
    const float term = 0.3F * decoded[i];
    FLUVIAL_CHECK(sum[i] == 0.75F + term, "fp32 sums differ");
  }
}

// A sum at `scale_bits`: exact when every term is in range, otherwise as it was.
void check_accumulated(const Codec& codec, ByteSpan bytes, int scale_bits, const Expected& expected) {
  std::vector<std::int64_t> sum(expected.size(), 1);
  std::vector<std::int64_t> exact(expected.size(), 1);
  bool fits = true;
  for (std::size_t i = 0; i < expected.size() && fits; ++i) {
    const auto term = kernels::reference::fixed_term(expected[i], kWeight, scale_bits);
    fits = term.has_value();
    exact[i] += term.value_or(0);
  }
  if (!fits) exact.assign(expected.size(), 1);
  FLUVIAL_CHECK(codec.decode_accumulate_chunk(bytes, kWeight, scale_bits, sum).ok() == fits,
                "what is beyond 2^62 is refused, and nothing else");
  FLUVIAL_CHECK(sum == exact, "int64 sums differ");
}

void read_encoded(const Variant& variant, std::size_t target, ByteSpan bytes, std::size_t value_count) {
  const Codec& codec = *variant.by_target[target % variant.by_target.size()];
  auto expected = kernels::reference::decode(variant.text, bytes, value_count);
  if (expected && kernels::test_values::other_settings(codec, bytes, value_count)) expected.reset();
  const auto screened = codec.screen_chunk(bytes, value_count, 0);
  FLUVIAL_CHECK(screened.ok() == expected.has_value(), "screen and reference differ");
  if (expected) {
    check_screened(*screened, *expected);
    check_decoded(codec, bytes, *expected);
    const double most = std::clamp(static_cast<double>(screened->max_abs), 0x1p-60, 0x1p127);
    const auto fitting = kernels::scale_bits(40, most, kWeight);
    check_accumulated(codec, bytes, fitting.ok() ? *fitting : 10, *expected);
    check_accumulated(codec, bytes, 10, *expected);
    return;
  }
  // Decoded without a screen before: no crash, no sum changed.
  std::vector<float> floats(value_count);
  std::vector<std::int64_t> sum(value_count, 1);
  const bool decodes = codec.decode_chunk(bytes, floats).ok();
  FLUVIAL_CHECK(codec.residual_chunk(floats, bytes, floats).ok() == decodes, "residual and decode differ");
  FLUVIAL_CHECK(codec.decode_add_chunk(bytes, 0.3F, floats).ok() == decodes, "decode_add and decode differ");
  if (!codec.decode_accumulate_chunk(bytes, kWeight, 10, sum).ok()) {
    FLUVIAL_CHECK(std::ranges::count(sum, 1) == static_cast<std::ptrdiff_t>(value_count), "a refused chunk changed it");
  }
}

// ---- partial chunks ----------------------------------------------------------------------------------------------

void merge(ByteSpan bytes, std::int64_t start, const std::optional<std::vector<std::int64_t>>& expected,
           std::size_t value_count) {
  std::vector<std::int64_t> sum(value_count, start);
  std::vector<std::int64_t> exact(value_count, start);
  bool fits = expected.has_value();
  for (std::size_t i = 0; fits && i < value_count; ++i) {
    fits = !__builtin_add_overflow(start, (*expected)[i], &exact[i]);
  }
  if (!fits) exact.assign(value_count, start);
  FLUVIAL_CHECK(kernels::merge_chunk(bytes, sum).ok() == fits, "merge and reference differ");
  FLUVIAL_CHECK(sum == exact, "merged sums differ");
}

void read_partial(ByteSpan bytes, std::size_t value_count) {
  const auto expected = kernels::reference::unpack(bytes, value_count);
  FLUVIAL_CHECK(kernels::check_packed_chunk(bytes, value_count).ok() == expected.has_value(),
                "check and reference differ");
  merge(bytes, 0, expected, value_count);
  merge(bytes, INT64_MAX - 1, expected, value_count);
  merge(bytes, INT64_MIN + 1, expected, value_count);
  if (!expected) return;
  std::vector<std::byte> packed(kernels::packed_bytes_max(value_count));
  packed.resize(kernels::pack_chunk(*expected, packed));
  FLUVIAL_CHECK(kernels::reference::unpack(packed, value_count) == expected, "packed again, the sums differ");
}

// ---- texts -------------------------------------------------------------------------------------------------------

void read_spec_text(ByteSpan bytes) {
  const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());  // NOLINT: bytes as text
  const auto spec = kernels::parse_codec(text);
  check_error(spec);
  if (!spec.ok()) return;
  const auto again = kernels::parse_codec(kernels::to_string(*spec));
  FLUVIAL_CHECK(again.ok() && *again == *spec, "the canonical text means another codec");
  FLUVIAL_CHECK(kernels::make_codec(*spec).ok(), "a codec that parses cannot be made");
}

}  // namespace

void run(ByteSpan input) {
  if (input.size() < kInputHeaderBytes) return;
  const auto reader = static_cast<std::uint8_t>(std::to_integer<std::uint8_t>(input[0]) % kReaders);
  const auto choice = std::to_integer<std::uint8_t>(input[1]);
  const std::size_t value_count = load_le<std::uint16_t>(input.data() + 2) % kValuesEnd;
  const ByteSpan bytes = input.subspan(kInputHeaderBytes);
  if (reader == kReadPartial) return read_partial(bytes, value_count);
  if (reader == kReadSpecText) return read_spec_text(bytes);
  const std::vector<Variant>& all = variants(reader);
  if (!all.empty()) read_encoded(all[choice % kVariants % all.size()], choice / kVariants, bytes, value_count);
}

}  // namespace fluvial::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fluvial::fuzz::run(std::as_bytes(std::span(data, size)));
  return 0;
}
