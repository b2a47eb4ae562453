#include <algorithm>

#include "core/base/printable.h"
#include "kernels/codec.h"
#include "kernels/codecs/common.h"
#include "kernels/codecs/options.h"
#include "kernels/codecs/zstd.h"

namespace fluvial::kernels {
namespace {

constexpr std::size_t kQuotedMax = 80;  // of a text that may be a peer's

Error expected(std::string_view text, std::string_view what) {
  return {Code::kInvalidArgument, format_text("codec \"{}\": {}", printable(text, kQuotedMax), what)};
}

// The option of every codec.
constexpr CodecOption kZstdOption = number_option<&CodecSpec::zstd_level>("zstd");

std::string keys_of(const CodecEntry& entry) {
  std::string keys;
  for (const CodecOption& option : entry.options) keys.append(option.key).append(", ");
  return keys.append(kZstdOption.key);
}

const CodecOption* find_option(const CodecEntry& entry, std::string_view key) {
  if (key == kZstdOption.key) return &kZstdOption;
  const auto option = std::ranges::find(entry.options, key, &CodecOption::key);
  return option == entry.options.end() ? nullptr : &*option;
}

Status set_option(std::string_view text, const CodecEntry& entry, std::string_view key, std::string_view value,
                  CodecSpec* spec) {
  const CodecOption* option = find_option(entry, key);
  if (option == nullptr) {
    return expected(text,
                    format_text("unknown option \"{}\"; expected {}", printable(key, kQuotedMax), keys_of(entry)));
  }
  const Status set = option->set(*spec, value);
  return set.ok() ? Status() : expected(text, format_text("expected {} {}", key, set.error().message));
}

Status set_options(std::string_view text, const CodecEntry& entry, std::string_view options, CodecSpec* spec) {
  while (true) {
    const std::size_t comma = options.find(',');
    const std::string_view option = options.substr(0, comma);
    const std::size_t equals = option.find('=');
    if (equals == std::string_view::npos) return expected(text, "expected options as key=value, separated by commas");
    FLUVIAL_TRY(set_option(text, entry, option.substr(0, equals), option.substr(equals + 1), spec));
    if (comma == std::string_view::npos) return {};
    options.remove_prefix(comma + 1);
  }
}

}  // namespace

Error bad_option(std::string message) { return {Code::kInvalidArgument, std::move(message)}; }

Status check_nothing(const CodecSpec&) { return {}; }

Status check_block(const CodecSpec& spec) {
  if (spec.block_values >= kBlockValuesMin && spec.block_values <= kBlockValuesMax) return {};
  return bad_option(format_text("block is {}, expected {} to {}", spec.block_values, kBlockValuesMin, kBlockValuesMax));
}

Status check_ratio(const CodecSpec& spec) {
  if (spec.ratio > 0 && spec.ratio <= 1) return {};
  return bad_option(format_text("ratio is {}, expected above 0 and at most 1", spec.ratio));
}

Status check_spec(const CodecSpec& spec) {
  const CodecEntry* entry = find_codec(spec.kind);
  if (entry == nullptr) return Error{Code::kInvalidArgument, "a codec of no known kind"};
  Status checked = entry->check(spec);
  if (spec.zstd_level < 0 || spec.zstd_level > kZstdLevelMax) {
    checked = bad_option(format_text("zstd is {}, expected 0 (off) to {}", spec.zstd_level, kZstdLevelMax));
  }
  if (checked.ok()) return {};
  return Error{Code::kInvalidArgument, format_text("codec {}: {}", entry->name, checked.error().message)};
}

Result<CodecSpec> parse_codec(std::string_view text) {
  const std::size_t colon = text.find(':');
  const CodecEntry* entry = find_codec(text.substr(0, colon));
  if (entry == nullptr) return expected(text, format_text("no such codec; expected one of {}", codec_names()));
  CodecSpec spec{.kind = entry->kind, .ratio = entry->ratio};
  if (colon != std::string_view::npos) FLUVIAL_TRY(set_options(text, *entry, text.substr(colon + 1), &spec));
  FLUVIAL_TRY(check_spec(spec));
  return spec;
}

std::string to_string(const CodecSpec& spec) {
  const CodecEntry* entry = find_codec(spec.kind);
  if (entry == nullptr) return "unknown";
  std::string text(entry->name);
  const auto put = [&](const CodecOption& option) {
    text.append(text.size() == entry->name.size() ? ":" : ",").append(option.key).append("=").append(option.get(spec));
  };
  for (const CodecOption& option : entry->options) put(option);
  if (spec.zstd_level != 0) put(kZstdOption);
  return text;
}

}  // namespace fluvial::kernels
