#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "kernels/codec.h"
#include "kernels/codec_common.h"

namespace fluvial::kernels {
namespace {

Error expected(std::string_view text, std::string_view what) {
  return {Code::kInvalidArgument, fmt::format("codec \"{}\": {}", text, what)};
}

template <typename T>
bool parse_number(std::string_view text, T* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

Status set_option(std::string_view text, std::string_view key, std::string_view value, CodecSpec* spec) {
  if (spec->kind == CodecKind::kInt8 && key == "block") {
    if (parse_number(value, &spec->block_values)) return {};
    return expected(text, "expected block to be a whole number");
  }
  if (spec->kind == CodecKind::kInt8 && key == "rounding") {
    if (value != "stochastic" && value != "nearest")
      return expected(text, "expected rounding=stochastic or rounding=nearest");
    spec->stochastic = value == "stochastic";
    return {};
  }
  if (spec->kind == CodecKind::kTopk && key == "ratio") {
    if (parse_number(value, &spec->ratio)) return {};
    return expected(text, "expected ratio to be a number");
  }
  switch (spec->kind) {
    case CodecKind::kInt8: return expected(text, fmt::format("unknown option \"{}\"; expected block or rounding", key));
    case CodecKind::kTopk: return expected(text, fmt::format("unknown option \"{}\"; expected ratio", key));
    default: return expected(text, fmt::format("unknown option \"{}\"; expected none", key));
  }
}

Status set_options(std::string_view text, std::string_view options, CodecSpec* spec) {
  while (true) {
    const std::size_t comma = options.find(',');
    const std::string_view option = options.substr(0, comma);
    const std::size_t equals = option.find('=');
    if (equals == std::string_view::npos) return expected(text, "expected options as key=value, separated by commas");
    FLUVIAL_TRY(set_option(text, option.substr(0, equals), option.substr(equals + 1), spec));
    if (comma == std::string_view::npos) return {};
    options.remove_prefix(comma + 1);
  }
}

}  // namespace

Status check_spec(const CodecSpec& spec) {
  if (spec.kind == CodecKind::kInt8 && (spec.block_values < kInt8BlockMin || spec.block_values > kInt8BlockMax)) {
    return Error{Code::kInvalidArgument, fmt::format("codec int8: block is {}, expected {} to {}", spec.block_values,
                                                     kInt8BlockMin, kInt8BlockMax)};
  }
  if (spec.kind == CodecKind::kTopk && !(spec.ratio > 0 && spec.ratio <= 1)) {
    return Error{Code::kInvalidArgument,
                 fmt::format("codec topk: ratio is {}, expected above 0 and at most 1", spec.ratio)};
  }
  return {};
}

Result<CodecSpec> parse_codec(std::string_view text) {
  const std::size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  CodecSpec spec;
  if (name == "fp32") {
    spec.kind = CodecKind::kFp32;
  } else if (name == "bf16") {
    spec.kind = CodecKind::kBf16;
  } else if (name == "int8") {
    spec.kind = CodecKind::kInt8;
  } else if (name == "topk") {
    spec.kind = CodecKind::kTopk;
  } else {
    return expected(text, "expected fp32, bf16, int8[:block=256,rounding=stochastic] or topk[:ratio=0.01]");
  }
  if (colon != std::string_view::npos) FLUVIAL_TRY(set_options(text, text.substr(colon + 1), &spec));
  FLUVIAL_TRY(check_spec(spec));
  return spec;
}

std::string to_string(const CodecSpec& spec) {
  switch (spec.kind) {
    case CodecKind::kFp32: return "fp32";
    case CodecKind::kBf16: return "bf16";
    case CodecKind::kInt8:
      return fmt::format("int8:block={},rounding={}", spec.block_values, spec.stochastic ? "stochastic" : "nearest");
    case CodecKind::kTopk: return fmt::format("topk:ratio={}", spec.ratio);
  }
  return "unknown";
}

}  // namespace fluvial::kernels
