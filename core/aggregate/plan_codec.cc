#include "core/aggregate/plan_codec.h"

#include <memory>
#include <optional>

#include "core/aggregate/scale.h"
#include "core/base/format.h"
#include "kernels/codec.h"
#include "kernels/ring.h"

namespace fluvial::aggregate {
namespace {

// What a codec needs that a round does not offer; empty when nothing is missing.
Result<std::string> missing_for(const kernels::CodecSpec& spec) {
  FLUVIAL_ASSIGN(const std::unique_ptr<kernels::Codec> codec, kernels::make_codec(spec));
  if (codec->passes() > 1) return format_text("needs {} passes a round", codec->passes());
  return std::string();
}

}  // namespace

std::string plan_codec_names() {
  std::string usable;
  for (const std::string& example : kernels::codec_examples()) {
    const Result<std::string> missing = missing_for(kernels::parse_codec(example).value());
    if (missing.ok() && missing->empty()) {
      usable.append(usable.empty() ? "" : ", ").append(example, 0, example.find(':'));
    }
  }
  return usable;
}

Status check_plan_passes(const round::Plan& plan) {
  FLUVIAL_ASSIGN(const kernels::CodecSpec spec, kernels::parse_codec(plan.codec));
  FLUVIAL_ASSIGN(const std::unique_ptr<kernels::Codec> codec, kernels::make_codec(spec));
  if (codec->passes() == 1) return {};
  const auto refuse = [&](const std::string& key) {
    return Error{
        Code::kInvalidArgument,
        format_text("{} does not go with codec \"{}\": what a site sends in a later pass fits one attempt of one "
                    "round, and no other can take it. Leave {} out: what misses its round travels with the "
                    "site's next update",
                    key, plan.codec, key)};
  };
  if (round::is_async(plan)) return refuse("mode = \"async\"");
  if (round::late_is_next(plan)) return refuse("late = \"next\"");
  return {};
}

Result<std::string> check_plan_codec(std::string_view text) {
  const Result<kernels::CodecSpec> parsed = kernels::parse_codec(text);
  if (!parsed.ok()) {
    std::string message = parsed.error().message;
    const std::string all = kernels::codec_names();  // where those are listed, those that a round carries
    if (const std::size_t at = message.find(all); at != std::string::npos) {
      message.replace(at, all.size(), plan_codec_names());
    }
    return Error{parsed.error().code, message};
  }
  const kernels::CodecSpec& spec = *parsed;
  FLUVIAL_ASSIGN(const std::string missing, missing_for(spec));
  if (missing.empty()) return kernels::to_string(spec);
  return Error{Code::kInvalidArgument,
               format_text("codec \"{}\" {}, which a run does not carry yet; expected one of {}", text, missing,
                           plan_codec_names())};
}

Status check_codec_fits(const round::Plan& plan) {
  const std::optional<int> scale = whole_scale(plan);
  if (!scale) return {};
  FLUVIAL_ASSIGN(const kernels::CodecSpec spec, kernels::parse_codec(plan.codec));
  const double most = spec.kind == kernels::CodecKind::kRing ? kernels::ring_value_max(spec) : 1;  // of a vote
  if (most > plan.value_abs_max) {
    return Error{Code::kInvalidArgument,
                 format_text("value_abs_max = {}: expected at least {}, the greatest value that codec \"{}\" sends",
                             plan.value_abs_max, most, plan.codec)};
  }
  if (*scale > static_cast<int>(plan.fraction_bits)) {
    return Error{Code::kInvalidArgument, format_text("fraction_bits = {}: expected at least {}, in which codec \"{}\" "
                                                     "is summed; fewer bits or a larger max need fewer",
                                                     plan.fraction_bits, *scale, plan.codec)};
  }
  return {};
}

}  // namespace fluvial::aggregate
