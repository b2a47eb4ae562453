#include "core/aggregate/plan_codec.h"

#include <algorithm>
#include <memory>

#include "core/base/format.h"
#include "kernels/codec.h"

namespace fluvial::aggregate {
namespace {

// What a codec needs that a round does not offer; empty when nothing is missing.
Result<std::string> missing_for(const kernels::CodecSpec& spec) {
  FLUVIAL_ASSIGN(const std::unique_ptr<kernels::Codec> codec, kernels::make_codec(spec));
  if (codec->passes() > 1) return format_text("needs {} passes a round", codec->passes());
  const kernels::VectorSchema any{.layout = {.value_count = 1, .chunk_values = 1}, .tensors = {}};
  if (codec->state_bytes(any) > 0) return std::string("keeps state of its own between rounds");
  return std::string();
}

}  // namespace

std::string plan_codec_names() {
  const std::string names = kernels::codec_names();
  std::string usable;
  for (std::size_t at = 0; at < names.size();) {
    const std::size_t end = std::min(names.find(", ", at), names.size());
    const std::string name = names.substr(at, end - at);
    const Result<kernels::CodecSpec> spec = kernels::parse_codec(name);
    if (spec.ok() && missing_for(*spec).ok() && missing_for(*spec)->empty()) {
      usable.append(usable.empty() ? "" : ", ").append(name);
    }
    at = end + 2;
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

}  // namespace fluvial::aggregate
