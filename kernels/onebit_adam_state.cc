// The byte form of 1-bit Adam's states (docs/formats/onebit-adam.md).
#include <algorithm>
#include <array>
#include <cstring>

#include "core/base/check.h"
#include "core/base/format.h"
#include "kernels/cpu/loops.h"
#include "kernels/onebit_adam.h"
#include "kernels/ops/bits.h"
#include "kernels/pieces.h"

namespace fluvial::kernels {
namespace {

constexpr std::byte kVersion{1};
constexpr std::size_t kHeaderBytes = 24;
enum class Part : std::uint8_t { kSite = 0, kServer = 1, kServerTwoSided = 2 };

using Vectors = std::array<std::span<float>, 3>;  // in the order of the format; one that a part lacks is empty

Vectors vectors_of(const OnebitAdamSite& state) { return {state.momentum, state.residual, {}}; }
Vectors vectors_of(const OnebitAdamServer& state) { return {state.momentum, state.variance, state.residual}; }
Part part_of(const OnebitAdamSite&) { return Part::kSite; }
Part part_of(const OnebitAdamServer& state) { return state.residual.empty() ? Part::kServer : Part::kServerTwoSided; }

template <typename State>
std::size_t bytes_of(const State& state) {
  std::size_t bytes = kHeaderBytes;
  for (const auto& vector : vectors_of(state)) bytes += vector.size_bytes();
  return bytes;
}

template <typename State>
void check_lengths(const State& state) {
  for (const auto& vector : vectors_of(state)) {
    FLUVIAL_CHECK(vector.empty() || vector.size() == state.momentum.size(), "vectors of different lengths");
  }
}

template <typename State>
void save_state(const State& state, MutableByteSpan out) {
  check_lengths(state);
  FLUVIAL_CHECK(out.size() == bytes_of(state), "room for a state of another size");
  std::fill_n(out.begin(), kHeaderBytes, std::byte{0});
  out[0] = kVersion;
  out[1] = static_cast<std::byte>(part_of(state));
  store_le<std::uint64_t>(out.data() + 8, state.round);
  store_le<std::uint64_t>(out.data() + 16, state.momentum.size());
  std::byte* to = out.data() + kHeaderBytes;
  for (const auto& vector : vectors_of(state)) {
    if (!vector.empty()) std::memcpy(to, vector.data(), vector.size_bytes());
    to += vector.size_bytes();
  }
}

Error bad(std::string message) { return {Code::kDataLoss, "1-bit Adam state: " + std::move(message)}; }

// The bytes need not be aligned, so they are checked in pieces.
Status check_vector(std::string_view what, ByteSpan bytes, bool negative) {
  std::array<float, kPieceValues> piece;
  for (std::size_t first = 0; first < bytes.size() / sizeof(float); first += kPieceValues) {
    const std::size_t length = std::min(kPieceValues, bytes.size() / sizeof(float) - first);
    const std::span<float> values = std::span(piece).first(length);
    std::memcpy(values.data(), bytes.data() + first * sizeof(float), values.size_bytes());
    if (cpu::loops().max_bits(values.data(), length) >= ops::kInfinityBits) {
      return bad(format_text("{} {}", what, not_finite(values, first).message));
    }
    const auto below = std::ranges::find_if(values, [](float value) { return value < 0; });
    if (!negative && below != values.end()) {
      return bad(format_text("{} value {} is {}, expected at least 0", what,
                             first + static_cast<std::size_t>(below - values.begin()), *below));
    }
  }
  return {};
}

template <typename State>
Status load_state(ByteSpan bytes, const std::array<std::string_view, 3>& names, State* state) {
  check_lengths(*state);
  if (bytes.size() != bytes_of(*state)) {
    return bad(format_text("{} bytes, expected {}", bytes.size(), bytes_of(*state)));
  }
  const auto part = static_cast<std::byte>(part_of(*state));
  if (bytes[0] != kVersion) return bad(format_text("version {}, expected 1", static_cast<unsigned>(bytes[0])));
  if (bytes[1] != part) {
    return bad(format_text("part {}, expected {}", static_cast<unsigned>(bytes[1]), static_cast<unsigned>(part)));
  }
  if (std::ranges::any_of(bytes.subspan(2, 6), [](std::byte byte) { return byte != std::byte{0}; })) {
    return bad("a header that is not zero where it should be");
  }
  const auto values = load_le<std::uint64_t>(bytes.data() + 16);
  if (values != state->momentum.size())
    return bad(format_text("{} values, expected {}", values, state->momentum.size()));
  const Vectors vectors = vectors_of(*state);
  std::size_t at = kHeaderBytes;
  for (std::size_t i = 0; i < vectors.size(); at += vectors[i++].size_bytes()) {
    FLUVIAL_TRY(check_vector(names[i], bytes.subspan(at, vectors[i].size_bytes()), names[i] != "variance"));
  }
  state->round = load_le<std::uint64_t>(bytes.data() + 8);
  at = kHeaderBytes;
  for (std::size_t i = 0; i < vectors.size(); at += vectors[i++].size_bytes()) {
    if (!vectors[i].empty()) std::memcpy(vectors[i].data(), bytes.data() + at, vectors[i].size_bytes());
  }
  return {};
}

}  // namespace

std::size_t saved_bytes(const OnebitAdamSite& state) { return bytes_of(state); }
std::size_t saved_bytes(const OnebitAdamServer& state) { return bytes_of(state); }
void save(const OnebitAdamSite& state, MutableByteSpan out) { save_state(state, out); }
void save(const OnebitAdamServer& state, MutableByteSpan out) { save_state(state, out); }

Status load(ByteSpan bytes, OnebitAdamSite* state) { return load_state(bytes, {"momentum", "residual", ""}, state); }

Status load(ByteSpan bytes, OnebitAdamServer* state) {
  return load_state(bytes, {"momentum", "variance", "residual"}, state);
}

}  // namespace fluvial::kernels
