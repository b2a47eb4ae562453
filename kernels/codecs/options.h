// Options of several codecs, and the parts that options are made of. Internal.
#pragma once

#include <charconv>

#include "core/base/format.h"
#include "kernels/codecs/registry.h"

namespace fluvial::kernels {

inline constexpr std::uint32_t kBlockValuesMin = 128;
inline constexpr std::uint32_t kBlockValuesMax = 2048;

Error bad_option(std::string message);  // kInvalidArgument

// An option that is a number, kept in `Field` of the spec.
template <auto Field>
constexpr CodecOption number_option(std::string_view key) {
  return {key,
          [](CodecSpec& spec, std::string_view value) -> Status {
            auto& number = spec.*Field;
            const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
            if (error == std::errc() && end == value.data() + value.size()) return {};
            return bad_option(std::floating_point<std::remove_reference_t<decltype(number)>> ? "to be a number"
                                                                                             : "to be a whole number");
          },
          [](const CodecSpec& spec) { return text_of(spec.*Field); }};
}

// An option that is one of two words, kept as a bool. `Words` has the static members key, yes and no.
template <auto Field, typename Words>
constexpr CodecOption choice_option() {
  return {Words::key,
          [](CodecSpec& spec, std::string_view value) -> Status {
            if (value != Words::yes && value != Words::no)
              return bad_option(format_text("to be {} or {}", Words::yes, Words::no));
            spec.*Field = value == Words::yes;
            return {};
          },
          [](const CodecSpec& spec) { return std::string(spec.*Field ? Words::yes : Words::no); }};
}

inline constexpr CodecOption kBlockOption = number_option<&CodecSpec::block_values>("block");
inline constexpr CodecOption kRatioOption = number_option<&CodecSpec::ratio>("ratio");

struct RoundingWords {
  static constexpr std::string_view key = "rounding", yes = "stochastic", no = "nearest";
};
inline constexpr CodecOption kRoundingOption = choice_option<&CodecSpec::stochastic, RoundingWords>();

// CodecEntry::make of a codec that is constructed from its spec and target.
template <typename T>
std::unique_ptr<Codec> make_as(const CodecSpec& spec, cpu::Target target) {
  return std::make_unique<T>(spec, target);
}

Status check_nothing(const CodecSpec& spec);
Status check_block(const CodecSpec& spec);  // block_values is 128 to 2048
Status check_ratio(const CodecSpec& spec);  // ratio is above 0 and at most 1

}  // namespace fluvial::kernels
