// Sorted lists of distinct indices as bytes: the first index, then each distance to the one before minus one, as LEB128
// varints in their shortest form. What is written so can be neither unsorted nor hold duplicates; a reader has to check
// the count, the range and the varints. Shared by sparse codecs and sparse partial chunks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/base/bytes.h"
#include "core/base/result.h"

namespace fluvial::kernels {

// Appends indices to memory that has room for all of them: indices below n never take more than n bytes together.
class IndexWriter {
 public:
  explicit IndexWriter(std::byte* out) : begin_(out), out_(out) {}

  void put(std::uint32_t index) {
    std::uint32_t gap = index - next_;
    next_ = index + 1;
    while (gap >= 0x80) {
      *out_++ = static_cast<std::byte>((gap & 0x7f) | 0x80);
      gap >>= 7;
    }
    *out_++ = static_cast<std::byte>(gap);
  }
  std::size_t bytes() const { return static_cast<std::size_t>(out_ - begin_); }

 private:
  std::byte* begin_;
  std::byte* out_;
  std::uint32_t next_ = 0;  // the smallest index that may follow
};

// Reads what check_indices() accepted.
class IndexReader {
 public:
  explicit IndexReader(ByteSpan checked) : next_byte_(checked.data()) {}

  std::uint32_t next() {
    std::uint32_t gap = 0;
    for (int shift = 0;; shift += 7) {
      const std::uint32_t byte = static_cast<std::uint32_t>(*next_byte_++);
      gap |= (byte & 0x7f) << shift;
      if (byte < 0x80) break;
    }
    const std::uint32_t index = next_index_ + gap;
    next_index_ = index + 1;
    return index;
  }

 private:
  const std::byte* next_byte_;
  std::uint32_t next_index_ = 0;
};

// kDataLoss unless the bytes are exactly `count` indices below `value_count`.
Status check_indices(ByteSpan bytes, std::size_t count, std::size_t value_count);

}  // namespace fluvial::kernels
