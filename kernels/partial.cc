// Packed chunks of int64 sums (fixed.h). Layout: a 16-byte header, then the sums (dense), or the sums that are not zero
// and their indices (sparse).
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include "core/base/format.h"
#include "kernels/chunks.h"
#include "kernels/fixed.h"
#include "kernels/ops/fixed.h"
#include "kernels/pieces.h"
#include "kernels/sparse_indices.h"

namespace fluvial::kernels {
namespace {

constexpr std::uint8_t kVersion = 2;
constexpr std::uint8_t kDense = 0;
constexpr std::uint8_t kSparse = 1;
constexpr std::size_t kHeaderBytes = 16;
constexpr std::size_t kWidthMax = 8;

struct Packed {
  std::uint8_t form = kDense;
  std::size_t width = 0;    // bytes a sum
  unsigned index_bits = 0;  // sparse only
  std::size_t entries = 0;  // sums that are written: all (dense), or those that are not zero
  ByteSpan sums{};
  ByteSpan indices{};  // sparse only
};

Error bad(std::string message) { return {Code::kDataLoss, "partial chunk: " + std::move(message)}; }

Result<Packed> parse(ByteSpan bytes, std::size_t value_count) {
  if (bytes.size() < kHeaderBytes) return bad(format_text("{} bytes, shorter than its header", bytes.size()));
  const auto version = load_le<std::uint8_t>(bytes.data());
  if (version != kVersion) return bad(format_text("version {}, expected {}", version, kVersion));
  Packed packed{.form = load_le<std::uint8_t>(bytes.data() + 1), .width = load_le<std::uint8_t>(bytes.data() + 2)};
  packed.index_bits = load_le<std::uint8_t>(bytes.data() + 3);
  const std::size_t values = load_le<std::uint32_t>(bytes.data() + 4);
  packed.entries = load_le<std::uint32_t>(bytes.data() + 8);
  const std::size_t index_bytes = load_le<std::uint32_t>(bytes.data() + 12);
  if (packed.form > kSparse || packed.width > kWidthMax || (packed.form == kDense && packed.index_bits != 0)) {
    return bad(format_text("form {}, width {}, {} index bits, expected form 0 or 1, width 0 to {}", packed.form,
                           packed.width, packed.index_bits, kWidthMax));
  }
  if (values != value_count) return bad(format_text("{} values, expected {}", values, value_count));
  const bool dense = packed.form == kDense;
  if (dense ? packed.entries != value_count || index_bytes != 0 : packed.entries > value_count) {
    return bad(format_text("{} entries and {} index bytes for {} values", packed.entries, index_bytes, value_count));
  }
  if (bytes.size() - kHeaderBytes != packed.entries * packed.width + index_bytes) {
    return bad(format_text("{} bytes do not fit {} entries of {} bytes and {} index bytes", bytes.size(),
                           packed.entries, packed.width, index_bytes));
  }
  packed.sums = bytes.subspan(kHeaderBytes, packed.entries * packed.width);
  packed.indices = bytes.subspan(kHeaderBytes + packed.sums.size());
  if (!dense) {
    if (const Status indices = check_indices(packed.indices, packed.entries, packed.index_bits, value_count);
        !indices.ok()) {
      return bad(indices.error().message);
    }
  }
  return packed;
}

void put_header(std::byte* out, const Packed& packed, std::size_t values, std::size_t index_bytes) {
  store_le<std::uint8_t>(out, kVersion);
  store_le<std::uint8_t>(out + 1, packed.form);
  store_le<std::uint8_t>(out + 2, static_cast<std::uint8_t>(packed.width));
  store_le<std::uint8_t>(out + 3, static_cast<std::uint8_t>(packed.index_bits));
  store_le<std::uint32_t>(out + 4, static_cast<std::uint32_t>(values));
  store_le<std::uint32_t>(out + 8, static_cast<std::uint32_t>(packed.entries));
  store_le<std::uint32_t>(out + 12, static_cast<std::uint32_t>(index_bytes));
}

// How many bytes the indices of the sums that are not zero take.
std::size_t index_bytes_of(std::span<const std::int64_t> sum, std::size_t entries, unsigned bits) {
  std::size_t unary_bits = entries;
  std::size_t next = 0;
  for (std::size_t i = 0; i < sum.size(); ++i) {
    if (sum[i] == 0) continue;
    unary_bits += (i - next) >> bits;
    next = i + 1;
  }
  return remainder_bytes(entries, bits) + (unary_bits + 7) / 8;
}

void put_sparse(std::span<const std::int64_t> sum, const Packed& packed, std::byte* out) {
  std::byte* to = out + kHeaderBytes;
  IndexWriter writer(to + packed.entries * packed.width, packed.entries, packed.index_bits);
  for (std::size_t i = 0; i < sum.size(); ++i) {
    if (sum[i] == 0) continue;
    std::memcpy(to, &sum[i], packed.width);
    to += packed.width;
    writer.put(static_cast<std::uint32_t>(i));
  }
  writer.finish();
}

using Sums = std::array<std::int64_t, kPieceValues>;

// The sums of one piece of a dense chunk.
std::span<const std::int64_t> widen_piece(const Packed& packed, std::size_t first, std::size_t length, Sums& sums) {
  if (packed.width == 0) {
    std::fill_n(sums.begin(), length, 0);
  } else {
    cpu::loops().widen(packed.sums.data() + first * packed.width, length, packed.width, sums.data());
  }
  return std::span(sums).first(length);
}

Error overflow() { return bad("a sum left int64: it holds more than the scale allows"); }

Status merge_dense(const Packed& packed, std::span<std::int64_t> sum) {
  Sums sums;
  bool overflowed = false;
  std::size_t done = 0;
  while (done < sum.size() && !overflowed) {
    const auto piece = widen_piece(packed, done, std::min(kPieceValues, sum.size() - done), sums);
    overflowed = cpu::loops().add(piece.data(), piece.size(), sum.data() + done);
    done += piece.size();
  }
  if (!overflowed) return {};
  for (std::size_t first = 0; first < done; first += kPieceValues) {  // wrapped additions are undone exactly
    const auto piece = widen_piece(packed, first, std::min(kPieceValues, sum.size() - first), sums);
    cpu::loops().subtract(piece.data(), piece.size(), sum.data() + first);
  }
  return overflow();
}

std::int64_t entry_sum(const Packed& packed, std::size_t entry) {
  std::int64_t value = 0;
  if (packed.width != 0) cpu::loops().widen(packed.sums.data() + entry * packed.width, 1, packed.width, &value);
  return value;
}

Status merge_sparse(const Packed& packed, std::span<std::int64_t> sum) {
  IndexReader check(packed.indices, packed.entries, packed.index_bits);
  for (std::size_t entry = 0; entry < packed.entries; ++entry) {
    const std::int64_t before = sum[check.next()];
    const std::int64_t add = entry_sum(packed, entry);
    if (ops::overflow_sign(before, add, ops::wrapping_add(before, add)) < 0) return overflow();
  }
  IndexReader indices(packed.indices, packed.entries, packed.index_bits);
  for (std::size_t entry = 0; entry < packed.entries; ++entry) sum[indices.next()] += entry_sum(packed, entry);
  return {};
}

}  // namespace

std::size_t packed_bytes_max(std::size_t value_count) { return kHeaderBytes + value_count * kWidthMax; }

std::size_t pack_chunk(std::span<const std::int64_t> sum, MutableByteSpan out) {
  FLUVIAL_CHECK(sum.size() <= kChunkValuesMax && out.size() >= packed_bytes_max(sum.size()),
                "too little room to pack into");
  std::size_t nonzero = 0;
  const std::uint64_t spread = cpu::loops().spread(sum.data(), sum.size(), &nonzero);
  // A sign bit above the highest bit that differs from it; nothing at all for zeros.
  const std::size_t width = nonzero == 0 ? 0 : static_cast<std::size_t>(std::bit_width(spread)) / 8 + 1;
  const std::size_t dense_bytes = sum.size() * width;
  if (nonzero * width < dense_bytes) {
    const unsigned index_bits = rice_bits(nonzero, sum.size());
    const Packed sparse{.form = kSparse, .width = width, .index_bits = index_bits, .entries = nonzero};
    const std::size_t index_bytes = index_bytes_of(sum, nonzero, index_bits);
    if (nonzero * width + index_bytes < dense_bytes) {
      put_header(out.data(), sparse, sum.size(), index_bytes);
      put_sparse(sum, sparse, out.data());
      return kHeaderBytes + nonzero * width + index_bytes;
    }
  }
  put_header(out.data(), {.form = kDense, .width = width, .entries = sum.size()}, sum.size(), 0);
  if (width != 0) cpu::loops().narrow(sum.data(), sum.size(), width, out.data() + kHeaderBytes);
  return kHeaderBytes + dense_bytes;
}

Status check_packed_chunk(ByteSpan bytes, std::size_t value_count) {
  if (const auto packed = parse(bytes, value_count); !packed.ok()) return packed.error();
  return {};
}

Status merge_chunk(ByteSpan bytes, std::span<std::int64_t> sum) {
  FLUVIAL_ASSIGN(const Packed packed, parse(bytes, sum.size()));
  return packed.form == kDense ? merge_dense(packed, sum) : merge_sparse(packed, sum);
}

}  // namespace fluvial::kernels
