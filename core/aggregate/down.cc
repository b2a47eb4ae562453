#include "core/aggregate/down.h"

#include <utility>

#include "core/base/format.h"
#include "core/base/printable.h"

namespace fluvial::aggregate {
namespace {

constexpr std::string_view kDelta = "delta:";
constexpr std::size_t kCodecBytesMax = 64;  // as a plan's codec on the wire

bool carries_difference(const kernels::CodecSpec& spec) {
  using kernels::CodecKind;
  switch (spec.kind) {
    case CodecKind::kFp16:
    case CodecKind::kBf16:
    case CodecKind::kInt8:
    case CodecKind::kInt4:
    case CodecKind::kTopk: return true;
    case CodecKind::kSign: return !spec.vote;
    case CodecKind::kRandk: return !spec.unbiased;
    case CodecKind::kFp32:
    case CodecKind::kQsgd:
    case CodecKind::kTernGrad:
    case CodecKind::kDgc:
    case CodecKind::kPowerSgd: return false;
  }
  return false;
}

bool rounds(const kernels::CodecSpec& spec) {
  const bool is_float = spec.kind == kernels::CodecKind::kFp16 || spec.kind == kernels::CodecKind::kBf16;
  return is_float && spec.zstd_level == 0;
}

Error wrong(std::string_view text) {
  return {
      Code::kInvalidArgument,
      format_text("'{}': expected fp32, fp16, bf16, or delta: with one of fp16, bf16, int8, int4, sign, topk, randk, "
                  "as in delta:int8",
                  printable(text, 80))};
}

// The canonical text.
Result<std::string> check(std::string_view codec, bool is_delta) {
  if (codec.size() > kCodecBytesMax) return wrong(codec);
  FLUVIAL_ASSIGN(const kernels::CodecSpec spec, kernels::parse_codec(codec));
  if (!(is_delta ? carries_difference(spec) : rounds(spec))) return wrong(codec);
  std::string text = kernels::to_string(spec);
  if (text.size() > kCodecBytesMax) return wrong(codec);
  return text;
}

}  // namespace

Result<Down> parse_down(std::string_view text) {
  if (text == "fp32") return Down{};
  const bool is_delta = text.starts_with(kDelta);
  if (is_delta) text.remove_prefix(kDelta.size());
  if (!is_delta && text != "fp16" && text != "bf16") return wrong(text);
  FLUVIAL_ASSIGN(std::string codec, check(text, is_delta));
  return Down{is_delta ? Down::Kind::kDelta : Down::Kind::kRounded, std::move(codec)};
}

std::string to_string(const Down& down) {
  switch (down.kind) {
    case Down::Kind::kWhole: return "fp32";
    case Down::Kind::kRounded: return down.codec;
    case Down::Kind::kDelta: return std::string(kDelta) + down.codec;
  }
  return "fp32";
}

Result<std::unique_ptr<kernels::Codec>> make_down_codec(std::string_view codec, bool is_delta) {
  FLUVIAL_TRY(check(codec, is_delta));
  FLUVIAL_ASSIGN(const kernels::CodecSpec spec, kernels::parse_codec(codec));
  return kernels::make_codec(spec);
}

}  // namespace fluvial::aggregate
