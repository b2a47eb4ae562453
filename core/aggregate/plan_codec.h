// Which codecs a plan may ask for: those that rounds can carry. Pure.
#pragma once

#include <string>
#include <string_view>

#include "core/base/result.h"
#include "core/round/plan.h"
#include "core/round/schema.h"

namespace fluvial::aggregate {

// The canonical text of a codec. kInvalidArgument, with the codecs that may be named, when there is no such codec.
Result<std::string> check_plan_codec(std::string_view text);

// What the codec asks of the plan's other keys. kInvalidArgument names the key and what was expected. The codec's text
// is one that check_plan_codec() accepts.
Status check_codec_fits(const round::Plan& plan);
// And of the model: kInvalidArgument where a codec with several passes finds nothing in it to do its work on.
Status check_codec_fits(const round::Plan& plan, const round::Schema& schema);

}  // namespace fluvial::aggregate
