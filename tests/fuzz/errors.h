// What every error about bytes of others must hold, whatever the bytes.
#pragma once

#include <string_view>

#include "core/base/check.h"
#include "core/base/printable.h"
#include "core/base/result.h"

namespace fluvial::fuzz {

constexpr std::size_t kErrorBytesMax = 4'096;

// A line that a person can read, in a log or in an answer, however long and strange what it is about.
inline void check_error(const Error& error) {
  FLUVIAL_CHECK(!error.message.empty(), "an error says what was wrong");
  FLUVIAL_CHECK(is_printable(error.message), "an error is one printable line");
  FLUVIAL_CHECK(error.message.size() <= kErrorBytesMax, "an error is as long as its input");
}

template <typename T>
void check_error(const Result<T>& result) {
  if (!result.ok()) check_error(result.error());
}

// No part of a secret's text stands in the error: none that is too long to be there by chance and without a blank, as
// no words of ours are. What the error may quote is `quoted`.
inline void check_keeps(const Error& error, std::string_view secret, std::string_view quoted = {}) {
  constexpr std::size_t kPart = 20;
  for (std::size_t at = 0; at + kPart <= secret.size(); ++at) {
    const std::string_view part = secret.substr(at, kPart);
    if (part.find(' ') != std::string_view::npos || quoted.find(part) != std::string_view::npos) continue;
    FLUVIAL_CHECK(error.message.find(part) == std::string::npos, "an error tells a secret");
  }
}

}  // namespace fluvial::fuzz
