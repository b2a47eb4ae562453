// What the kernel lets this process have. A process that holds a key is closed to others, so nobody else can read it
// (core/identity/key_guard.h): it has to say so itself.
#pragma once

#include <cstdint>
#include <string>

namespace fluvial::tree {

inline constexpr std::uint64_t kUnlimited = ~std::uint64_t{0};

struct Limits {
  std::uint64_t open_files_soft = 0;
  std::uint64_t open_files_hard = 0;
  std::uint64_t locked_bytes = 0;
  bool operator==(const Limits&) const = default;
};
Limits own_limits();
std::string to_json(const Limits& limits);  // {"open_files": 1024, "open_files_hard": null, ...}; null: unlimited

}  // namespace fluvial::tree
