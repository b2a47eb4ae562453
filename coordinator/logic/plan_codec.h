// Which codecs a plan may ask for: those that rounds can carry. Pure.
#pragma once

#include <string>
#include <string_view>

#include "core/base/result.h"

namespace fluvial::coordinator {

// The canonical text of a codec. kInvalidArgument when there is no such codec, or when it sends several passes a round
// or keeps state between rounds, which neither rounds nor sites carry: it says which codecs there are instead.
Result<std::string> check_plan_codec(std::string_view text);

}  // namespace fluvial::coordinator
