// How the bytes that libFuzzer makes up become a call: one byte picks the reader, one the codec's variant and the
// target, two are the number of values, the rest is the chunk. The numbers of the readers never change, so that a
// corpus keeps its meaning.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/test_values.h"

namespace fluvial::fuzz {

constexpr std::size_t kInputHeaderBytes = 4;
constexpr std::size_t kValuesEnd = 4'096;

constexpr std::uint8_t kReaders = 16;         // those below 12 are the numbers of CodecKind then
constexpr std::uint8_t kReadPartial = 12;     // packed int64 sums
constexpr std::uint8_t kReadSpecText = 13;    // the text of a codec
constexpr std::uint8_t kReadOnebitAdam = 14;  // encoded chunks of that codec
constexpr std::uint8_t kReadRing = 15;        // likewise
// The variant: index into the texts of its codec in codec_texts(); its upper two bits: index into supported_targets().
constexpr std::uint8_t kVariants = 64;

inline std::uint8_t reader_of(kernels::CodecKind kind) {
  if (kind == kernels::CodecKind::kOnebitAdam) return kReadOnebitAdam;
  return kind == kernels::CodecKind::kRing ? kReadRing : static_cast<std::uint8_t>(kind);
}

// The fuzzed codecs: the tests' list, and the codec that is not in it because it has two passes.
inline std::vector<std::string> codec_texts() {
  std::vector<std::string> texts = kernels::test_values::codec_texts();
  texts.emplace_back("powersgd");
  return texts;
}

}  // namespace fluvial::fuzz
