// Reading JSON that another process sent: what is missing or of another type yields the fallback, never an exception.
#pragma once

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "core/base/result.h"

namespace fluvial::cli {

namespace json = boost::json;

Result<json::value> parse_json(std::string_view text, std::string_view what);  // kDataLoss names `what`

// Members of an object; `value` may be anything.
const json::value& member(const json::value& value, std::string_view key);  // null when absent
const json::array& array_member(const json::value& value, std::string_view key);
std::string text_member(const json::value& value, std::string_view key, std::string_view fallback = "");
double number_member(const json::value& value, std::string_view key, double fallback);
inline constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();  // a fallback that no number equals
std::uint64_t count_member(const json::value& value, std::string_view key);
bool bool_member(const json::value& value, std::string_view key);

double to_number(const json::value& value, double fallback);
// For people and programs, numbers as a person writes them.
std::string one_line(const json::value& value);  // without a newline
std::string pretty(const json::value& value);    // indented by two, with a newline at the end

}  // namespace fluvial::cli
