#include "kernels/reference/sign.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace fluvial::kernels::reference {
namespace {

std::uint64_t number(ByteSpan bytes, std::size_t at, std::size_t width) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < width; ++i) value += static_cast<std::uint64_t>(bytes[at + i]) << (8 * i);
  return value;
}

void put(std::vector<std::byte>& out, std::uint64_t value, std::size_t width) {
  for (std::size_t i = 0; i < width; ++i) out.push_back(static_cast<std::byte>((value >> (8 * i)) % 256));
}

double value_of_bits(std::uint64_t bits) {
  const auto word = static_cast<std::uint32_t>(bits);
  float value;
  std::memcpy(&value, &word, sizeof(value));
  return static_cast<double>(value);
}

// As the format says: 16 lanes in order, folded in halves.
double mean_magnitude(std::span<const float> block) {
  double lanes[16] = {};
  for (std::size_t i = 0; i < block.size(); ++i) lanes[i % 16] += std::fabs(static_cast<double>(block[i]));
  for (const std::size_t half : {8U, 4U, 2U, 1U}) {
    for (std::size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0] / static_cast<double>(block.size());
}

}  // namespace

std::optional<std::vector<double>> decode_sign(ByteSpan bytes, std::size_t value_count) {
  if (bytes.size() < 8 || number(bytes, 0, 1) != 1 || number(bytes, 4, 4) != 0) return std::nullopt;
  const std::uint64_t mode = number(bytes, 1, 1);
  std::uint64_t block_values = number(bytes, 2, 2);
  if (mode > 1) return std::nullopt;
  if (mode == 1 ? block_values != 0 : block_values < 128 || block_values > 2048) return std::nullopt;
  if (mode == 1) block_values = std::max<std::uint64_t>(value_count, 1);  // one block without a scale

  std::vector<std::size_t> lengths;
  for (std::size_t left = value_count; left > 0; left -= lengths.back()) {
    lengths.push_back(static_cast<std::size_t>(std::min<std::uint64_t>(left, block_values)));
  }
  std::size_t expected = 8;
  for (const std::size_t length : lengths) expected += (mode == 0 ? 4 : 0) + (length + 7) / 8;
  if (bytes.size() != expected) return std::nullopt;

  std::vector<double> values;
  std::size_t bits_at = 8 + (mode == 0 ? 4 * lengths.size() : 0);
  for (std::size_t block = 0; block < lengths.size(); ++block) {
    double scale = 1;
    if (mode == 0) {
      const std::uint64_t bits = number(bytes, 8 + 4 * block, 4);
      scale = value_of_bits(bits);
      if (bits >> 31 != 0 || !std::isfinite(scale)) return std::nullopt;
    }
    const std::size_t bit_bytes = (lengths[block] + 7) / 8;
    for (std::size_t i = 0; i < 8 * bit_bytes; ++i) {
      const bool negative = (static_cast<unsigned>(bytes[bits_at + i / 8]) >> (i % 8)) % 2 == 1;
      if (i < lengths[block]) values.push_back(negative ? -scale : scale);
      if (i >= lengths[block] && negative) return std::nullopt;
    }
    bits_at += bit_bytes;
  }
  return values;
}

std::vector<std::byte> encode_sign(std::span<const float> values, std::size_t block_values) {
  const bool vote = block_values == 0;
  const std::size_t block = vote ? std::max<std::size_t>(values.size(), 1) : block_values;
  std::vector<std::byte> out;
  put(out, 1, 1);
  put(out, vote ? 1 : 0, 1);
  put(out, block_values, 2);
  put(out, 0, 4);
  std::vector<std::byte> bits;
  for (std::size_t first = 0; first < values.size(); first += block) {
    const auto part = values.subspan(first, std::min(block, values.size() - first));
    const auto scale = static_cast<float>(mean_magnitude(part));
    std::uint32_t scale_bits = 0;
    std::memcpy(&scale_bits, &scale, sizeof(scale));
    if (!vote) put(out, scale_bits, 4);
    for (std::size_t i = 0; i < part.size(); i += 8) {
      std::uint64_t byte = 0;
      for (std::size_t bit = 0; bit < 8 && i + bit < part.size(); ++bit) {
        if (part[i + bit] < 0 && (vote || scale != 0)) byte += std::uint64_t{1} << bit;
      }
      put(bits, byte, 1);
    }
  }
  out.insert(out.end(), bits.begin(), bits.end());
  return out;
}

}  // namespace fluvial::kernels::reference
