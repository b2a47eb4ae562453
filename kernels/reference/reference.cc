#include "kernels/reference/reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "kernels/reference/quantised.h"
#include "kernels/reference/reader.h"
#include "kernels/reference/ring.h"
#include "kernels/reference/sign.h"
#include "kernels/reference/sparse.h"
#include "kernels/reference/zstd.h"

namespace fluvial::kernels::reference {
namespace {

std::vector<double> decode_fp32(Reader& reader, std::size_t value_count) {
  std::vector<double> values(value_count);
  for (double& value : values) value = value_of_bits(reader.unsigned_of(4));
  return values;
}

std::vector<double> decode_bf16(Reader& reader, std::size_t value_count) {
  std::vector<double> values(value_count);
  for (double& value : values) value = value_of_bits(reader.unsigned_of(2) * 65536);
  return values;
}

// The value of binary16 bits, from sign, exponent and fraction.
double value_of_half(std::uint64_t bits) {
  const double sign = bits / 32768 != 0 ? -1.0 : 1.0;
  const int exponent = static_cast<int>(bits / 1024 % 32);
  const auto fraction = static_cast<double>(bits % 1024);
  if (exponent == 31) return fraction == 0 ? sign * INFINITY : NAN;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(fraction + 1024, exponent - 25);
}

std::vector<double> decode_fp16(Reader& reader, std::size_t value_count) {
  std::vector<double> values(value_count);
  for (double& value : values) value = value_of_half(reader.unsigned_of(2));
  return values;
}

// int8, and int4 with two codes in a byte.
std::vector<double> decode_int(Reader& reader, std::size_t value_count, bool nibbles) {
  if (reader.unsigned_of(2) != 1) reader.ok = false;
  const std::uint64_t block_values = reader.unsigned_of(2);
  if (reader.unsigned_of(4) != 0 || block_values < 128 || block_values > 2048) reader.ok = false;
  if (nibbles && block_values % 2 != 0) reader.ok = false;
  if (!reader.ok) return {};
  std::vector<double> scales(value_count / block_values + (value_count % block_values != 0 ? 1 : 0));
  for (double& scale : scales) {
    const std::uint64_t bits = reader.unsigned_of(4);
    if (bits >> 31 != 0) reader.ok = false;
    scale = value_of_bits(bits);
  }
  std::vector<double> values(value_count);
  std::uint64_t byte = 0;
  for (std::size_t i = 0; i < value_count; ++i) {
    std::int64_t code = 0;
    if (!nibbles) {
      code = reader.signed_of(1);
      if (code == -128) reader.ok = false;
    } else {
      if (i % 2 == 0) byte = reader.unsigned_of(1);
      code = static_cast<std::int64_t>(i % 2 == 0 ? byte % 16 : byte / 16);
      if (code == 8) reader.ok = false;
      if (code > 8) code -= 16;
    }
    // The product is exact in fp64 and rounds to fp32 once.
    values[i] = static_cast<double>(static_cast<float>(static_cast<double>(code) * scales[i / block_values]));
  }
  if (nibbles && value_count % 2 != 0 && byte / 16 != 0) reader.ok = false;
  return values;
}

std::uint64_t mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31);
}

}  // namespace

std::optional<std::vector<double>> decode(std::string_view codec, ByteSpan bytes, std::size_t value_count) {
  if (asks_for_zstd(codec)) {
    const auto inner = open_zstd(bytes);
    return inner ? decode(codec.substr(0, codec.find("zstd=")), *inner, value_count) : std::nullopt;
  }
  const std::string_view name = codec.substr(0, codec.find(':'));
  Reader reader{.bytes = bytes};
  std::vector<double> values;
  if (name == "fp32" || name == "powersgd") {
    values = decode_fp32(reader, value_count);
  } else if (name == "bf16") {
    values = decode_bf16(reader, value_count);
  } else if (name == "int8") {
    values = decode_int(reader, value_count, false);
  } else if (name == "int4") {
    values = decode_int(reader, value_count, true);
  } else if (name == "fp16") {
    values = decode_fp16(reader, value_count);
  } else if (name == "topk" || name == "dgc") {
    return decode_topk(bytes, value_count);
  } else if (name == "randk") {
    return decode_randk(bytes, value_count);
  } else if (name == "onebit_adam" && bytes.size() == value_count * 4) {
    values = decode_fp32(reader, value_count);
  } else if (name == "sign" || name == "onebit_adam") {
    return decode_sign(bytes, value_count);
  } else if (name == "qsgd") {
    return decode_qsgd(bytes, value_count);
  } else if (name == "terngrad") {
    return decode_terngrad(bytes, value_count);
  } else if (name == "ring") {
    return decode_ring(bytes, value_count);
  } else {
    return std::nullopt;
  }
  if (!reader.at_end()) return std::nullopt;
  for (const double value : values) {
    if (!std::isfinite(value)) return std::nullopt;
  }
  return values;
}

std::optional<std::vector<std::int64_t>> unpack(ByteSpan bytes, std::size_t value_count) {
  Reader reader{.bytes = bytes};
  if (reader.unsigned_of(1) != 2) return std::nullopt;
  const std::uint64_t form = reader.unsigned_of(1);
  const std::uint64_t width = reader.unsigned_of(1);
  const std::uint64_t index_bits = reader.unsigned_of(1);
  if ((form == 0 && index_bits != 0) || form > 1 || width > 8 || reader.unsigned_of(4) != value_count)
    return std::nullopt;
  const std::uint64_t entry_count = reader.unsigned_of(4);
  const std::uint64_t index_bytes = reader.unsigned_of(4);
  if (!reader.ok || entry_count > value_count) return std::nullopt;
  if (form == 0 && (entry_count != value_count || index_bytes != 0)) return std::nullopt;
  if (bytes.size() != 16 + entry_count * width + index_bytes) return std::nullopt;
  std::vector<std::int64_t> entries(entry_count);
  for (std::int64_t& entry : entries) entry = reader.signed_of(width);
  if (form == 0) return entries;
  const auto indices = read_indices(bytes.subspan(bytes.size() - index_bytes), entry_count, index_bits, value_count);
  if (!indices) return std::nullopt;
  std::vector<std::int64_t> sums(value_count, 0);
  for (std::size_t entry = 0; entry < entry_count; ++entry) sums[(*indices)[entry]] = entries[entry];
  return sums;
}

std::optional<std::int64_t> fixed_term(double fp32_value, std::uint32_t weight, int scale_bits) {
  if (fp32_value == 0) return 0;
  int exponent = 0;
  const double mantissa = std::frexp(std::fabs(fp32_value), &exponent);
  // |value| * weight = digits * 2^power, with digits below 2^53.
  const std::uint64_t digits = static_cast<std::uint64_t>(std::ldexp(mantissa, 24)) * weight;
  const int power = exponent - 24 + scale_bits;
  std::uint64_t magnitude = 0;
  if (power >= 0) {
    if (power > 62 || digits > (std::uint64_t{1} << 62) >> power) return std::nullopt;
    magnitude = digits << power;
  } else if (power > -60) {
    const std::uint64_t unit = std::uint64_t{1} << -power;
    const std::uint64_t rest = digits % unit;
    magnitude = digits / unit;
    if (2 * rest > unit || (2 * rest == unit && magnitude % 2 == 1)) ++magnitude;
  }
  return fp32_value < 0 ? -static_cast<std::int64_t>(magnitude) : static_cast<std::int64_t>(magnitude);
}

float mean(std::int64_t sum, int scale_bits, std::uint64_t total_weight) {
  return static_cast<float>(std::ldexp(static_cast<double>(sum), -scale_bits) / static_cast<double>(total_weight));
}

int scale_bits(int fraction_bits, double max_abs, std::uint64_t weight_sum) {
  int exponent = -200;
  while (std::ldexp(1.0, exponent) < max_abs * static_cast<double>(weight_sum)) ++exponent;
  return std::min(fraction_bits, 62 - exponent);
}

std::uint32_t random_bits(std::uint64_t run, std::uint64_t round, std::uint32_t site, std::uint64_t coordinate) {
  const std::uint64_t key = mix(mix(run + 0x9e3779b97f4a7c15U) + site);
  const std::uint64_t block = coordinate / 64 * 8 + coordinate % 32 / 4;
  std::uint32_t counter[4] = {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
                              static_cast<std::uint32_t>(round), static_cast<std::uint32_t>(round >> 32)};
  std::uint32_t k[2] = {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)};
  for (int i = 0; i < 10; ++i) {
    const std::uint64_t a = std::uint64_t{0xD2511F53U} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57U} * counter[2];
    const std::uint32_t next[4] = {
        static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ k[0], static_cast<std::uint32_t>(b),
        static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ k[1], static_cast<std::uint32_t>(a)};
    std::memcpy(counter, next, sizeof(counter));
    k[0] += 0x9E3779B9U;
    k[1] += 0xBB67AE85U;
  }
  const std::uint64_t pair = coordinate % 64 / 32;  // words 1, 0 or 3, 2, each from its lower half up
  const std::uint32_t word = counter[2 * pair + (coordinate % 4 < 2 ? 1 : 0)];
  return coordinate % 2 == 0 ? word % 65536 : word / 65536;
}

std::vector<std::size_t> top_k(std::span<const float> values, std::size_t k) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const float x = std::fabs(values[a]);
    const float y = std::fabs(values[b]);
    return x != y ? x > y : a < b;
  });
  order.resize(std::min(k, order.size()));
  std::erase_if(order, [&](std::size_t i) { return values[i] == 0; });
  std::sort(order.begin(), order.end());
  return order;
}

}  // namespace fluvial::kernels::reference
