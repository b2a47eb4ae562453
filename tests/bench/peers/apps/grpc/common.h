// What both ends share: the size of a chunk, the credentials, the task.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

namespace sums {

constexpr std::uint64_t kChunkValues = 262'144;  // 1 MiB of fp32

inline std::string text_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// Calls send(first, count) for each chunk of a vector, until it returns false.
template <typename Send>
bool for_chunks(std::uint64_t params, const Send& send) {
  for (std::uint64_t first = 0; first < params; first += kChunkValues) {
    if (!send(first, std::min(kChunkValues, params - first))) return false;
  }
  return true;
}

}  // namespace sums
