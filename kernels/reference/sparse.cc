#include "kernels/reference/sparse.h"

#include <cmath>

#include "kernels/reference/reader.h"

namespace fluvial::kernels::reference {
namespace {

bool bit_at(ByteSpan bytes, std::size_t bit) { return (static_cast<unsigned>(bytes[bit / 8]) >> (bit % 8)) % 2 == 1; }

std::uint64_t mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31);
}

// Word `word` of Philox4x32-10 with a counter below 2^64.
std::uint32_t philox(std::uint64_t key, std::uint64_t counter, std::size_t word) {
  std::uint32_t c[4] = {static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32), 0, 0};
  std::uint32_t k[2] = {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)};
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53U} * c[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57U} * c[2];
    c[0] = static_cast<std::uint32_t>(b >> 32) ^ c[1] ^ k[0];
    c[1] = static_cast<std::uint32_t>(b);
    c[2] = static_cast<std::uint32_t>(a >> 32) ^ c[3] ^ k[1];
    c[3] = static_cast<std::uint32_t>(a);
    k[0] += 0x9E3779B9U;
    k[1] += 0xBB67AE85U;
  }
  return c[word];
}

}  // namespace

std::optional<std::vector<std::size_t>> read_indices(ByteSpan bytes, std::size_t count, std::size_t bits,
                                                     std::size_t value_count) {
  const std::size_t low_bytes = (count * bits + 7) / 8;
  if (bits > 26 || bytes.size() < low_bytes) return std::nullopt;
  for (std::size_t bit = count * bits; bit < 8 * low_bytes; ++bit) {
    if (bit_at(bytes, bit)) return std::nullopt;
  }
  std::vector<std::size_t> indices;
  std::size_t unary = 8 * low_bytes;
  std::uint64_t next = 0;
  for (std::size_t entry = 0; entry < count; ++entry) {
    std::uint64_t gap = 0;
    for (;; ++unary) {
      if (unary == 8 * bytes.size()) return std::nullopt;
      if (bit_at(bytes, unary)) break;
      gap += std::uint64_t{1} << bits;
    }
    ++unary;
    for (std::size_t bit = 0; bit < bits; ++bit) {
      if (bit_at(bytes, entry * bits + bit)) gap += std::uint64_t{1} << bit;
    }
    if (next + gap >= value_count) return std::nullopt;
    indices.push_back(static_cast<std::size_t>(next + gap));
    next += gap + 1;
  }
  if ((unary + 7) / 8 != bytes.size()) return std::nullopt;
  for (; unary < 8 * bytes.size(); ++unary) {
    if (bit_at(bytes, unary)) return std::nullopt;
  }
  return indices;
}

std::optional<std::vector<double>> decode_topk(ByteSpan bytes, std::size_t value_count) {
  Reader reader{.bytes = bytes};
  if (reader.unsigned_of(1) != 2) return std::nullopt;
  const std::uint64_t bits = reader.unsigned_of(1);
  if (reader.unsigned_of(2) != 0) return std::nullopt;
  const std::uint64_t count = reader.unsigned_of(4);
  if (!reader.ok || count > value_count || bytes.size() < 8 + 4 * count) return std::nullopt;
  const auto indices = read_indices(bytes.subspan(8 + 4 * count), count, bits, value_count);
  if (!indices) return std::nullopt;
  std::vector<double> values(value_count, 0.0);
  for (const std::size_t index : *indices) {
    values[index] = value_of_bits(reader.unsigned_of(4));
    if (!std::isfinite(values[index])) return std::nullopt;
  }
  return values;
}

std::optional<std::vector<double>> decode_randk(ByteSpan bytes, std::size_t value_count) {
  Reader reader{.bytes = bytes};
  if (reader.unsigned_of(4) != 1) return std::nullopt;
  const std::uint64_t count = reader.unsigned_of(4);
  const std::uint64_t seed = reader.unsigned_of(8);
  if (!reader.ok || count > value_count || (count == 0 && value_count > 0)) return std::nullopt;
  if (bytes.size() != 16 + 4 * count) return std::nullopt;
  std::vector<double> values(value_count, 0.0);
  for (const std::size_t index : draw_strata(seed, count, value_count).indices) {
    values[index] = value_of_bits(reader.unsigned_of(4));
    if (!std::isfinite(values[index])) return std::nullopt;
  }
  return values;
}

Drawn draw_strata(std::uint64_t seed, std::size_t count, std::size_t value_count) {
  Drawn drawn;
  for (std::size_t j = 0; j < count; ++j) {
    const std::size_t first = j * value_count / count;
    const std::size_t size = (j + 1) * value_count / count - first;
    drawn.indices.push_back(first + static_cast<std::size_t>((size * std::uint64_t{philox(seed, j / 4, j % 4)}) >> 32));
    drawn.sizes.push_back(size);
  }
  return drawn;
}

std::uint64_t strata_seed(std::uint64_t run, std::uint64_t round, std::uint64_t first_value) {
  return mix(mix(mix(run + 0x9e3779b97f4a7c15U) + round) + first_value);
}

}  // namespace fluvial::kernels::reference
