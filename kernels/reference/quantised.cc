#include "kernels/reference/quantised.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/reference/reader.h"
#include "kernels/reference/reference.h"

namespace fluvial::kernels::reference {
namespace {

// Bits from the lowest of the first byte up.
struct Bits {
  ByteSpan bytes;
  std::size_t at = 0;
  bool ok = true;

  unsigned next() {
    if (at >= 8 * bytes.size()) {
      ok = false;
      return 0;
    }
    const unsigned bit = (static_cast<unsigned>(bytes[at / 8]) >> (at % 8)) % 2;
    ++at;
    return bit;
  }
  unsigned number(unsigned width) {
    unsigned value = 0;
    for (unsigned i = 0; i < width; ++i) value += next() << i;
    return value;
  }
  // To the end of the byte, or of all: zeros.
  void end_byte() {
    while (at % 8 != 0) {
      if (next() != 0) ok = false;
    }
  }
};

struct BitWriter {
  std::vector<std::byte> bytes;
  std::size_t at = 0;
  void put(unsigned value, unsigned width) {
    for (unsigned i = 0; i < width; ++i, ++at) {
      if (at % 8 == 0) bytes.push_back(std::byte{0});
      bytes.back() |= static_cast<std::byte>((value >> i) % 2 << (at % 8));
    }
  }
};

void put(std::vector<std::byte>& out, std::uint64_t value, std::size_t width) {
  for (std::size_t i = 0; i < width; ++i) out.push_back(static_cast<std::byte>((value >> (8 * i)) % 256));
}

std::vector<std::size_t> block_sizes(std::size_t value_count, std::size_t block_values) {
  std::vector<std::size_t> sizes;
  for (std::size_t left = value_count; left > 0; left -= sizes.back()) sizes.push_back(std::min(left, block_values));
  return sizes;
}

// Sign and level in as few bits as hold `levels`.
unsigned width_of(unsigned levels) {
  unsigned width = 2;
  while ((1U << (width - 1)) <= levels) ++width;
  return width;
}

int read_packed(Bits& bits, unsigned levels) {
  const unsigned width = width_of(levels);
  int code = static_cast<int>(bits.number(width));
  if (code >= 1 << (width - 1)) code -= 1 << width;
  if (std::abs(code) > static_cast<int>(levels)) bits.ok = false;
  return code;
}

int read_elias(Bits& bits, unsigned levels) {
  unsigned zeros = 0;
  while (zeros <= 7 && bits.ok && bits.next() == 0) ++zeros;
  if (!bits.ok || zeros > 7) {
    bits.ok = false;
    return 0;
  }
  const unsigned v = (1U << zeros) + bits.number(zeros);
  if (v - 1 > levels) bits.ok = false;
  if (v == 1) return 0;
  return bits.next() == 1 ? -static_cast<int>(v - 1) : static_cast<int>(v - 1);
}

bool read_scales(Reader& reader, std::vector<double>& scales) {
  for (double& scale : scales) {
    const std::uint64_t bits = reader.unsigned_of(4);
    scale = value_of_bits(bits);
    if (!reader.ok || bits >> 31 != 0 || !std::isfinite(scale)) return false;
  }
  return true;
}

// The product is exact in fp64 and rounds to fp32 once.
bool add_value(int code, double scale, std::vector<double>& values) {
  values.push_back(static_cast<double>(static_cast<float>(static_cast<double>(code) * scale)));
  return std::isfinite(values.back());
}

struct BlockNorm {
  double greatest = 0;
  double squares = 0;
};

// As the format says: 16 lanes in order, folded in halves.
BlockNorm norm_of(std::span<const float> block) {
  BlockNorm norm;
  double lanes[16] = {};
  for (std::size_t i = 0; i < block.size(); ++i) {
    const auto value = static_cast<double>(block[i]);
    norm.greatest = std::max(norm.greatest, std::fabs(value));
    lanes[i % 16] += value * value;
  }
  for (const std::size_t half : {8U, 4U, 2U, 1U}) {
    for (std::size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  norm.squares = lanes[0];
  return norm;
}

float step_of(std::span<const float> block, unsigned levels) {
  const double wanted = std::sqrt(norm_of(block).squares) / levels;
  if (wanted == 0) return 0;
  float step = 0x1p-112F;
  if (wanted > 0x1p-112) {
    step = static_cast<float>(wanted);
    if (static_cast<double>(step) < wanted) step = std::nextafter(step, INFINITY);
  }
  // Beyond fp32: the quotient of the greatest fp32, or the fp32 below it.
  if (std::isinf(static_cast<float>(levels) * step)) {
    step = 0x1.fffffep127F / static_cast<float>(levels);
    if (std::isinf(static_cast<float>(levels) * step)) step = std::nextafter(step, 0.0F);
  }
  return step;
}

}  // namespace

std::optional<std::vector<double>> decode_qsgd(ByteSpan bytes, std::size_t value_count) {
  Reader reader{.bytes = bytes};
  const std::uint64_t version = reader.unsigned_of(1);
  const std::uint64_t form = reader.unsigned_of(1);
  const std::uint64_t block_values = reader.unsigned_of(2);
  const std::uint64_t count = reader.unsigned_of(4);
  const auto levels = static_cast<unsigned>(reader.unsigned_of(4));
  if (!reader.ok || version != 1 || form > 1 || block_values < 128 || block_values > 2048) return std::nullopt;
  if (count != value_count || levels < 1 || levels > 127) return std::nullopt;

  const auto sizes = block_sizes(value_count, static_cast<std::size_t>(block_values));
  std::size_t packed = 12;
  for (const std::size_t size : sizes) packed += 4 + (size * width_of(levels) + 7) / 8;
  if (form == 0 ? bytes.size() != packed : bytes.size() >= packed) return std::nullopt;
  if (bytes.size() < 12 + sizes.size() * (form == 0 ? 4 : 6)) return std::nullopt;

  std::vector<double> steps(sizes.size());
  if (!read_scales(reader, steps)) return std::nullopt;
  std::vector<std::size_t> lengths;
  for (const std::size_t size : sizes) {
    lengths.push_back(form == 0 ? (size * width_of(levels) + 7) / 8 : static_cast<std::size_t>(reader.unsigned_of(2)));
  }
  std::vector<double> values;
  bool ok = true;
  for (std::size_t block = 0; block < sizes.size(); ++block) {
    if (lengths[block] > bytes.size() - reader.at) return std::nullopt;
    Bits bits{.bytes = bytes.subspan(reader.at, lengths[block])};
    reader.at += lengths[block];
    for (std::size_t i = 0; i < sizes[block] && ok; ++i) {
      const int code = form == 0 ? read_packed(bits, levels) : read_elias(bits, levels);
      ok = bits.ok && add_value(code, steps[block], values);
    }
    bits.end_byte();
    if (!ok || !bits.ok || bits.at != 8 * bits.bytes.size()) return std::nullopt;
  }
  if (!reader.at_end()) return std::nullopt;
  return values;
}

std::optional<std::vector<double>> decode_terngrad(ByteSpan bytes, std::size_t value_count) {
  Reader reader{.bytes = bytes};
  if (reader.unsigned_of(2) != 1) return std::nullopt;
  const std::uint64_t block_values = reader.unsigned_of(2);
  if (reader.unsigned_of(4) != value_count || !reader.ok) return std::nullopt;
  if (block_values < 128 || block_values > 2048) return std::nullopt;
  const auto sizes = block_sizes(value_count, static_cast<std::size_t>(block_values));
  if (bytes.size() < 8 + 4 * sizes.size()) return std::nullopt;
  std::vector<double> scales(sizes.size());
  if (!read_scales(reader, scales)) return std::nullopt;
  std::vector<double> values;
  for (std::size_t block = 0; block < sizes.size(); ++block) {
    const std::size_t width = (sizes[block] + 4) / 5;
    std::vector<int> codes(5 * width);
    for (std::size_t i = 0; i < width; ++i) {
      int number = static_cast<int>(reader.signed_of(1));
      if (!reader.ok || std::abs(number) > 121) return std::nullopt;
      for (std::size_t digit = 0; digit < 5; ++digit) {
        int rest = number % 3;  // -2 to 2
        if (rest == 2) rest = -1;
        if (rest == -2) rest = 1;
        codes[digit * width + i] = rest;
        number = (number - rest) / 3;
      }
    }
    for (std::size_t i = 0; i < codes.size(); ++i) {
      if (i < sizes[block] && !add_value(codes[i], scales[block], values)) return std::nullopt;
      if (i >= sizes[block] && codes[i] != 0) return std::nullopt;
    }
  }
  if (!reader.at_end()) return std::nullopt;
  return values;
}

std::vector<std::byte> encode_qsgd(std::span<const float> values, std::size_t block_values, unsigned levels, bool elias,
                                   const Draws& draws) {
  std::vector<std::byte> steps;
  std::vector<std::byte> lengths;
  std::vector<std::byte> packed;
  std::vector<std::byte> gamma;
  for (std::size_t first = 0; first < values.size(); first += block_values) {
    const auto block = values.subspan(first, std::min(block_values, values.size() - first));
    const float step = step_of(block, levels);
    put(steps, std::bit_cast<std::uint32_t>(step), 4);
    BitWriter fixed;
    BitWriter universal;
    for (std::size_t i = 0; i < block.size(); ++i) {
      int code = 0;
      if (step != 0) {
        const float units = block[i] * (16384.0F / step);
        const std::uint32_t bits = random_bits(draws.run, draws.round, draws.site, draws.first_coordinate + first + i);
        const double quarter = std::floor(bits / 4.0);
        code = static_cast<int>(std::floor((std::nearbyint(static_cast<double>(units)) + quarter) / 16384.0));
        code = std::clamp(code, -static_cast<int>(levels), static_cast<int>(levels));
      }
      fixed.put(static_cast<unsigned>(code), width_of(levels));
      const auto v = static_cast<unsigned>(std::abs(code)) + 1;
      const auto zeros = static_cast<unsigned>(std::bit_width(v)) - 1;
      universal.put(0, zeros);
      universal.put(1, 1);
      universal.put(v - (1U << zeros), zeros);
      if (code != 0) universal.put(code < 0 ? 1 : 0, 1);
    }
    packed.insert(packed.end(), fixed.bytes.begin(), fixed.bytes.end());
    gamma.insert(gamma.end(), universal.bytes.begin(), universal.bytes.end());
    put(lengths, universal.bytes.size(), 2);
  }
  const bool takes_elias = elias && lengths.size() + gamma.size() < packed.size();
  std::vector<std::byte> out;
  put(out, 1, 1);
  put(out, takes_elias ? 1 : 0, 1);
  put(out, block_values, 2);
  put(out, values.size(), 4);
  put(out, levels, 4);
  out.insert(out.end(), steps.begin(), steps.end());
  if (takes_elias) out.insert(out.end(), lengths.begin(), lengths.end());
  const auto& codes = takes_elias ? gamma : packed;
  out.insert(out.end(), codes.begin(), codes.end());
  return out;
}

std::vector<std::byte> encode_terngrad(std::span<const float> values, std::size_t block_values, double clip,
                                       const Draws& draws) {
  std::vector<std::byte> scales;
  std::vector<std::byte> packed;
  for (std::size_t first = 0; first < values.size(); first += block_values) {
    const auto block = values.subspan(first, std::min(block_values, values.size() - first));
    const BlockNorm norm = norm_of(block);
    double limit = norm.greatest;
    if (clip != 0) limit = std::min(limit, clip * std::sqrt(norm.squares / static_cast<double>(block.size())));
    auto scale = static_cast<float>(limit);
    if (norm.greatest != 0) scale = std::max(scale, 0x1p-111F);
    put(scales, std::bit_cast<std::uint32_t>(scale), 4);
    const std::size_t width = (block.size() + 4) / 5;
    std::vector<int> bytes(width);
    for (std::size_t i = 0; i < block.size() && scale != 0; ++i) {
      const double chance = std::nearbyint(static_cast<double>(std::fabs(block[i]) * (65536.0F / scale)));
      const std::uint32_t bits = random_bits(draws.run, draws.round, draws.site, draws.first_coordinate + first + i);
      const int code = bits < chance ? (block[i] < 0 ? -1 : 1) : 0;
      constexpr int kPlaces[] = {1, 3, 9, 27, 81};
      bytes[i % width] += code * kPlaces[i / width];
    }
    for (const int byte : bytes) put(packed, static_cast<std::uint64_t>(byte) & 0xff, 1);
  }
  std::vector<std::byte> out;
  put(out, 1, 2);
  put(out, block_values, 2);
  put(out, values.size(), 4);
  out.insert(out.end(), scales.begin(), scales.end());
  out.insert(out.end(), packed.begin(), packed.end());
  return out;
}

}  // namespace fluvial::kernels::reference
