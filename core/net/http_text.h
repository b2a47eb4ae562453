// The text side of HTTP: targets and errors. Pure.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "core/base/result.h"

namespace fluvial::net {

// What is neither unreserved (RFC 3986) nor in `kept` becomes %XX.
std::string percent_encoded(std::string_view text, std::string_view kept = "");

struct HttpTarget {
  std::string path;
  std::map<std::string, std::string> query;
};

// "/rounds/3?json=1", percent-encoding undone. kInvalidArgument for anything else.
Result<HttpTarget> parse_target(std::string_view target);
std::string to_target(const HttpTarget& target);  // the other way

int http_status_of(Code code);

}  // namespace fluvial::net
