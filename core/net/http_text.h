// The text side of HTTP: targets and errors. Pure.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "core/base/result.h"

namespace fluvial::net {

struct HttpTarget {
  std::string path;
  std::map<std::string, std::string> query;
};

// "/rounds/3?json=1", percent-encoding undone. kInvalidArgument for anything else.
Result<HttpTarget> parse_target(std::string_view target);

int http_status_of(Code code);

}  // namespace fluvial::net
