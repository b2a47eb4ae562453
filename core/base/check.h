// Invariants of our own, on in every build: a process that broke one must not go on and commit a wrong sum.
#pragma once

#include <string_view>

namespace fluvial {

[[noreturn]] void check_failed(std::string_view condition, std::string_view message, const char* file, int line);

}  // namespace fluvial

#define FLUVIAL_CHECK(condition, message)                               \
  do {                                                                  \
    if (!(condition)) [[unlikely]]                                      \
      ::fluvial::check_failed(#condition, message, __FILE__, __LINE__); \
  } while (false)
