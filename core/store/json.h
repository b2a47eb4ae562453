// JSON from files and peers: bounded in depth, and without repeated keys. Inside this room only.
#pragma once

#include <boost/json/string_view.hpp>
#include <boost/json/value.hpp>
#include <string_view>

#include "core/base/result.h"

namespace fluvial::store {

// kInvalidArgument, starting with `where`.
Result<boost::json::value> parse_json(std::string_view text, std::string_view where);

// Boost.JSON has a view of a text of its own.
inline boost::json::string_view view(std::string_view text) { return {text.data(), text.size()}; }
inline std::string_view view(const boost::json::string& text) { return {text.data(), text.size()}; }

}  // namespace fluvial::store
