#include "kernels/sparse_indices.h"

#include <bit>

#include "core/base/format.h"

namespace fluvial::kernels {
namespace {

Error bad(std::string message) { return {Code::kDataLoss, std::move(message)}; }

std::size_t ones_of(ByteSpan bytes) {
  std::size_t ones = 0;
  std::size_t at = 0;
  for (; at + 8 <= bytes.size(); at += 8) {
    std::uint64_t word;
    std::memcpy(&word, bytes.data() + at, 8);
    ones += static_cast<std::size_t>(std::popcount(word));
  }
  for (; at < bytes.size(); ++at) {
    ones += static_cast<std::size_t>(std::popcount(static_cast<unsigned>(bytes[at])));
  }
  return ones;
}

}  // namespace

// The entry's unary one is at position p of its stream with `entry_` ones before it: p - entry_ zeros, which is the sum
// of all quotients up to here. The index is that sum, the sum of the remainders, and one for each index before.
void IndexReader::read(std::span<std::uint32_t> out) {
  const unsigned bits = bits_;
  const std::uint64_t mask = mask_;
  std::uint64_t unary = unary_;
  std::uint64_t entry = entry_;
  std::uint64_t low_sum = low_sum_;
  std::uint64_t low_bit = entry * bits;
  for (std::uint32_t& index : out) {
    while (unary == 0) {
      unary_first_ += unary_bits_;
      unary = word_at(unary_at_);
      unary_bits_ = 64;
      unary_at_ += size_ - unary_at_ >= 8 ? 8 : size_ - unary_at_;
    }
    const std::uint64_t quotients = unary_first_ + static_cast<std::uint64_t>(std::countr_zero(unary)) - entry;
    unary &= unary - 1;
    low_sum += (word_at(low_bit / 8) >> (low_bit % 8)) & mask;
    low_bit += bits;
    index = static_cast<std::uint32_t>((quotients << bits) + low_sum + entry);
    ++entry;
  }
  unary_ = unary;
  entry_ = entry;
  low_sum_ = low_sum;
}

Status check_indices(ByteSpan bytes, std::size_t count, unsigned bits, std::size_t value_count) {
  if (bits > kRiceBitsMax) return bad(format_text("indices with {} low bits, expected 0 to {}", bits, kRiceBitsMax));
  const std::size_t low_bytes = remainder_bytes(count, bits);
  if (bytes.size() < low_bytes) {
    return bad(format_text("{} index bytes, too few for {} indices", bytes.size(), count));
  }
  if (bytes.size() > index_bytes_max(count, value_count, bits)) {
    return bad(format_text("{} index bytes, too many for {} indices below {}", bytes.size(), count, value_count));
  }
  if (count == 0) return {};
  const std::size_t low_bits = count * bits;
  if (low_bits % 8 != 0 && static_cast<unsigned>(bytes[low_bytes - 1]) >> (low_bits % 8) != 0) {
    return bad("bits that are not zero after the last index's low bits");
  }
  const ByteSpan unary = bytes.subspan(low_bytes);
  const std::size_t ones = ones_of(unary);
  if (ones < count) return bad(format_text("the index bytes end after {} of {} indices", ones, count));
  if (ones > count) return bad(format_text("{} indices, expected {}", ones, count));
  if (unary.back() == std::byte{0}) return bad("index bytes after the last index");
  const auto last_bits = static_cast<std::size_t>(std::bit_width(static_cast<unsigned>(unary.back())));
  const std::uint64_t quotients = 8 * (unary.size() - 1) + last_bits - count;
  // Gaps are not negative: only the last index can be out of range. Far from 2^64, as the length is bounded.
  std::uint64_t last = (quotients << bits) + count - 1;
  for (std::size_t entry = 0; bits > 0 && entry < count; ++entry) {
    const std::size_t at = entry * bits;
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at / 8, bytes.size() - at / 8 >= 8 ? 8 : bytes.size() - at / 8);
    last += (word >> (at % 8)) & ((std::uint64_t{1} << bits) - 1);
  }
  if (last >= value_count) return bad(format_text("the last index is {}, expected below {}", last, value_count));
  return {};
}

}  // namespace fluvial::kernels
