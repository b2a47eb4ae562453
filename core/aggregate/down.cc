#include "core/aggregate/down.h"

#include <utility>

#include "core/aggregate/down_forms.h"
#include "core/base/format.h"
#include "core/base/printable.h"

namespace fluvial::aggregate {
namespace {

constexpr std::string_view kDelta = "delta:";
constexpr std::size_t kCodecBytesMax = 64;  // as a plan's codec on the wire

// Why a difference is not encoded by it; empty: it is.
std::string_view unfit_for_difference(const kernels::CodecSpec& spec) {
  using kernels::CodecKind;
  constexpr std::string_view kUnbiased = "it may be off by more than the difference, and such errors add up; ";
  switch (spec.kind) {
    case CodecKind::kFp16:
    case CodecKind::kBf16:
    case CodecKind::kInt8:
    case CodecKind::kInt4:
    case CodecKind::kTopk: return {};
    case CodecKind::kRing:
      return "its scale is public so that sums stay narrow, and on the way down nothing is summed; ";
    case CodecKind::kSign: return spec.vote ? "a vote has no magnitude; " : "";
    case CodecKind::kRandk: return spec.unbiased ? kUnbiased : "";
    case CodecKind::kFp32: return "a difference in fp32 saves nothing over the model; ";
    case CodecKind::kQsgd:
    case CodecKind::kTernGrad: return kUnbiased;
    case CodecKind::kDgc:
    case CodecKind::kOnebitAdam: return "it keeps state of its own; ";
    case CodecKind::kPowerSgd: return "it takes several passes; ";
  }
  return "";
}

std::string_view unfit_for_model(const kernels::CodecSpec& spec) {
  const bool is_float = spec.kind == kernels::CodecKind::kFp16 || spec.kind == kernels::CodecKind::kBf16;
  if (is_float) return spec.zstd_level == 0 ? "" : "a model itself has no zstd behind it; ";
  return unfit_for_difference(spec).empty() ? "a model itself is rounded to fp16 or bf16; with delta: before it, this "
                                              "codec sends the difference; "
                                            : "a model itself is rounded to fp16 or bf16; ";
}

Error wrong(std::string_view text, std::string_view why = {}) {
  return {Code::kInvalidArgument, format_text("'{}': {}expected {}", printable(text, 80), why, kDownForms)};
}

// The canonical text of `codec`, which is the whole of `text` or its end.
Result<std::string> check(std::string_view text, std::string_view codec, bool is_delta) {
  if (codec.size() > kCodecBytesMax) return wrong(text);
  if (!kernels::parse_codec(codec.substr(0, codec.find(':'))).ok()) return wrong(text);
  FLUVIAL_ASSIGN(const kernels::CodecSpec spec, kernels::parse_codec(codec));
  const std::string_view why = is_delta ? unfit_for_difference(spec) : unfit_for_model(spec);
  if (!why.empty()) return wrong(text, why);
  std::string canonical = kernels::to_string(spec);
  if (canonical.size() > kCodecBytesMax) return wrong(text);
  return canonical;
}

}  // namespace

Result<Down> parse_down(std::string_view text) {
  if (text == "fp32") return Down{};
  const bool is_delta = text.starts_with(kDelta);
  FLUVIAL_ASSIGN(std::string codec, check(text, is_delta ? text.substr(kDelta.size()) : text, is_delta));
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
  FLUVIAL_TRY(check(codec, codec, is_delta));
  FLUVIAL_ASSIGN(const kernels::CodecSpec spec, kernels::parse_codec(codec));
  return kernels::make_codec(spec);
}

}  // namespace fluvial::aggregate
