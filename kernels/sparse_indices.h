// Sorted lists of distinct indices as bits: the gaps between neighbours in a Golomb-Rice code (Rice, "Some Practical
// Universal Noiseless Coding Techniques", JPL 1979; docs/formats/codecs.md). The low `bits` bits of every gap come
// first, side by side; then the rest of every gap in unary: as many zeros, and a one. Such a list can be neither
// unsorted nor hold duplicates, and for given `bits` it has one encoding; a reader has to check the range, the count,
// the length and the padding. At one index in a hundred it takes 8.11 bits an index (the entropy is 8.08).
// Shared by sparse codecs and sparse partial chunks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "core/base/bytes.h"
#include "core/base/result.h"
#include "kernels/ops/bits.h"

namespace fluvial::kernels {

inline constexpr unsigned kRiceBitsMax = 26;  // no chunk has more than 2^26 values

// The writers' choice: the greatest b with 27 * count * 2^b <= 26 * value_count, which is shortest for random indices
// (the remainder gains a bit when half of the range is crossed with probability (sqrt 5 - 1) / 2); otherwise 0.
FLUVIAL_HD constexpr unsigned rice_bits(std::uint64_t count, std::uint64_t value_count) {
  unsigned bits = 0;
  while (count > 0 && bits < kRiceBitsMax && 27 * (count << (bits + 1)) <= 26 * value_count) ++bits;
  return bits;
}

FLUVIAL_HD constexpr std::size_t remainder_bytes(std::size_t count, unsigned bits) { return (count * bits + 7) / 8; }

// The most bytes that `count` indices below `value_count` take with these bits.
FLUVIAL_HD constexpr std::size_t index_bytes_max(std::size_t count, std::size_t value_count, unsigned bits) {
  if (count == 0) return 0;
  return remainder_bytes(count, bits) + (count + ((value_count - count) >> bits) + 7) / 8;
}

// Writes exactly `count` indices, increasing, to memory that has room for index_bytes_max().
class IndexWriter {
 public:
  IndexWriter(std::byte* out, std::size_t count, unsigned bits)
      : begin_(out), low_at_(out), unary_at_(out + remainder_bytes(count, bits)), bits_(bits) {}

  void put(std::uint32_t index) {
    const std::uint32_t gap = index - next_;
    next_ = index + 1;
    low_ |= static_cast<std::uint64_t>(gap & ((1U << bits_) - 1)) << low_fill_;
    low_fill_ += bits_;
    if (low_fill_ >= 32) flush(low_at_, low_, low_fill_);
    unary_fill_ += gap >> bits_;
    while (unary_fill_ >= 32) flush(unary_at_, unary_, unary_fill_);
    unary_ |= std::uint64_t{1} << unary_fill_++;
  }
  // After the last: the bytes used.
  std::size_t finish() {
    put_rest(low_at_, low_, low_fill_);
    return static_cast<std::size_t>(put_rest(unary_at_, unary_, unary_fill_) - begin_);
  }

 private:
  static void flush(std::byte*& at, std::uint64_t& word, std::uint64_t& fill) {
    store_le(at, static_cast<std::uint32_t>(word));
    at += 4;
    word >>= 32;
    fill -= 32;
  }
  static std::byte* put_rest(std::byte* at, std::uint64_t word, std::uint64_t fill) {
    for (std::uint64_t bit = 0; bit < fill; bit += 8) *at++ = static_cast<std::byte>((word >> bit) & 0xff);
    return at;
  }

  std::byte* begin_;
  std::byte* low_at_;
  std::byte* unary_at_;
  unsigned bits_;
  std::uint32_t next_ = 0;  // the smallest index that may follow
  std::uint64_t low_ = 0, low_fill_ = 0;
  std::uint64_t unary_ = 0, unary_fill_ = 0;
};

// Reads bytes that check_indices() accepted, from the first index on.
class IndexReader {
 public:
  IndexReader() = default;
  IndexReader(ByteSpan checked, std::size_t count, unsigned bits)
      : begin_(checked.data()),
        size_(checked.size()),
        bits_(bits),
        mask_((std::uint64_t{1} << bits) - 1),
        unary_at_(remainder_bytes(count, bits)) {}

  // The next out.size() indices; there are as many.
  void read(std::span<std::uint32_t> out);
  std::uint32_t next() {
    std::uint32_t index = 0;
    read({&index, 1});
    return index;
  }

 private:
  // Up to eight bytes from `at` on: those that there are.
  std::uint64_t word_at(std::size_t at) const {
    std::uint64_t word = 0;
    if (size_ - at >= 8) [[likely]] {
      std::memcpy(&word, begin_ + at, 8);
    } else {
      std::memcpy(&word, begin_ + at, size_ - at);
    }
    return word;
  }

  const std::byte* begin_ = nullptr;
  std::size_t size_ = 0;
  unsigned bits_ = 0;
  std::uint64_t mask_ = 0;
  std::size_t unary_at_ = 0;       // the byte after the unary word
  std::uint64_t unary_ = 0;        // the rest of the unary word: ones that were not read yet
  std::uint64_t unary_first_ = 0;  // how many unary bits came before the word
  std::uint64_t unary_bits_ = 0;   // how many bits the word has
  std::uint64_t entry_ = 0;        // how many indices were read
  std::uint64_t low_sum_ = 0;      // and the sum of their remainders
};

// kDataLoss unless the bytes are exactly `count` indices below `value_count`.
Status check_indices(ByteSpan bytes, std::size_t count, unsigned bits, std::size_t value_count);

}  // namespace fluvial::kernels
