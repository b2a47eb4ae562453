// A number that stands for a member's name wherever chance is drawn for it: the same in every federation and tree,
// which ids that enrolment gives are not. FNV-1a (Fowler, Noll, Vo), finished by SplitMix64's mix. Not for secrets.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/base/rng.h"

namespace fluvial {

inline std::uint64_t name_key(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return Rng(hash).next();
}

}  // namespace fluvial
