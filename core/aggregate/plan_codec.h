// Which codecs a plan may ask for: those that rounds can carry. Pure.
#pragma once

#include <string>
#include <string_view>

#include "core/base/result.h"
#include "core/round/plan.h"

namespace fluvial::aggregate {

// The canonical text of a codec. kInvalidArgument, with the codecs that may be named, when there is no such codec, or
// when it needs several passes a round.
Result<std::string> check_plan_codec(std::string_view text);

// What else a plan may not ask for whose codec has several passes. kInvalidArgument, with why and what to do instead.
Status check_plan_passes(const round::Plan& plan);
// What the codec asks of the plan's other keys. kInvalidArgument names the key and what was expected. The codec's text
// is one that check_plan_codec() accepts.
Status check_codec_fits(const round::Plan& plan);

// Those codecs' names, for people: "fp32, fp16, ...".
std::string plan_codec_names();

}  // namespace fluvial::aggregate
