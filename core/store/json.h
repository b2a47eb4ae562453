// JSON from files and peers: bounded in depth, and without repeated keys. Inside this room only.
#pragma once

#include <boost/json/value.hpp>
#include <string_view>

#include "core/base/result.h"

namespace fluvial::store {

// kInvalidArgument, starting with `where`.
Result<boost::json::value> parse_json(std::string_view text, std::string_view where);

}  // namespace fluvial::store
