// An error that a setting's value led to, with what to change.
#pragma once

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>

#include "core/base/result.h"

namespace fluvial::config {

// "cannot listen on ...: Address already in use; listen (--listen, FLUVIAL_LISTEN) names another address"
inline Error named_address(Error error, std::string_view key) {
  std::string flag(key), variable(key);
  std::ranges::replace(flag, '_', '-');
  std::ranges::transform(variable, variable.begin(),
                         [](char c) { return static_cast<char>(std::toupper(static_cast<unsigned char>(c))); });
  error.message += "; " + std::string(key) + " (--" + flag + ", FLUVIAL_" + variable + ") names another address";
  return error;
}

}  // namespace fluvial::config
