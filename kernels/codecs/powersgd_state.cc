#include "kernels/codecs/powersgd_state.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/base/format.h"
#include "kernels/codecs/common.h"
#include "kernels/codecs/powersgd.h"
#include "kernels/ops/bits.h"

namespace fluvial::kernels {
namespace powersgd {
namespace {

void draw(std::uint64_t run, std::uint64_t first, std::span<float> column) {
  for (std::size_t j = 0; j < column.size(); ++j) column[j] = ops::drawn_factor(run, first + j);
}

// By a power of two, to a norm in [0.5, 1).
void scale(double norm_squared, std::span<float> column) {
  const double factor = ops::unit_scale(norm_squared);
  for (float& value : column) value = static_cast<float>(static_cast<double>(value) * factor);
}

}  // namespace

bool is_new(ByteSpan state) {
  return std::ranges::all_of(state.first(kStateHeaderBytes), [](std::byte byte) { return byte == std::byte{0}; });
}

std::span<const float> factors_of(ByteSpan state) {
  const ByteSpan bytes = state.subspan(kStateHeaderBytes);
  return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};  // NOLINT: aligned to 8 bytes
}

void orthonormalise(std::span<const float> p, std::size_t rank, const cpu::LowrankLoops& loops,
                    std::span<double> scratch, std::span<float> out) {
  const std::size_t rows = p.size() / rank;
  for (std::size_t k = 0; k < rank; ++k) {
    const std::span<double> column = scratch.subspan(k * rows, rows);
    std::ranges::copy(p.subspan(k * rows, rows), column.begin());
    const double before = std::sqrt(loops.dot(column.data(), column.data(), rows));
    for (std::size_t l = 0; l < k; ++l) {
      const double* const unit = scratch.data() + l * rows;
      loops.subtract_scaled(loops.dot(unit, column.data(), rows), unit, rows, column.data());
    }
    const double norm = std::sqrt(loops.dot(column.data(), column.data(), rows));
    const bool dependent = !(norm > ops::kDependent * before);
    for (std::size_t i = 0; i < rows; ++i) {
      column[i] = dependent ? 0.0 : column[i] / norm;
      out[k * rows + i] = static_cast<float>(column[i]);
    }
  }
}

}  // namespace powersgd

std::size_t PowerSgdCodec::state_bytes(const VectorSchema& schema) const {
  return powersgd::kStateHeaderBytes +
         static_cast<std::size_t>(powersgd::totals_of(schema, spec_.rank).q) * sizeof(float);
}

Status PowerSgdCodec::check_state(const VectorSchema& schema, const StreamKey& key, ByteSpan state) const {
  const auto refuse = [](std::string what) {
    return Error{Code::kInvalidArgument, "powersgd state: " + std::move(what)};
  };
  const std::uint32_t version = load_le<std::uint32_t>(state.data());
  const std::uint32_t rank = load_le<std::uint32_t>(state.data() + 4);
  const std::uint64_t run = load_le<std::uint64_t>(state.data() + 8);
  if (version != powersgd::kVersion) return refuse(format_text("version {}, expected {}", version, powersgd::kVersion));
  if (rank != spec_.rank) return refuse(format_text("rank {}, expected {}", rank, spec_.rank));
  if (run != key.run) return refuse(format_text("of run {}, expected run {}", run, key.run));
  if (load_le<std::uint64_t>(state.data() + 24) != powersgd::fingerprint(schema, spec_.rank)) {
    return refuse("of a model with other matrices");
  }
  const std::span<const float> factors = powersgd::factors_of(state);
  if (loops_.max_bits(factors.data(), factors.size()) < ops::kInfinityBits) return {};
  return refuse("warm start " + not_finite(factors, 0).message);
}

// `mean` is that of the last pass, or empty: as drawn.
Status PowerSgdCodec::write_state(const VectorSchema& schema, const StreamKey& key, std::span<const float> mean,
                                  MutableByteSpan state) const {
  auto* const factors = reinterpret_cast<float*>(state.data() + powersgd::kStateHeaderBytes);  // NOLINT
  powersgd::Segments segments(schema, spec_.rank);
  for (powersgd::Segment segment; segments.next(&segment);) {
    for (std::size_t k = 0; k < segment.rank; ++k) {
      const std::uint64_t first = segment.q_first + k * segment.cols;
      const std::span<float> column(factors + first, segment.cols);
      std::ranges::fill(column, 0.0F);
      if (!mean.empty()) std::ranges::copy(mean.subspan(static_cast<std::size_t>(first), segment.cols), column.begin());
      std::array<double, cpu::kSquareLanes> lanes{};
      if (loops_.screen(column.data(), column.size(), lanes.data()) == 0) {
        powersgd::draw(key.run, first, column);
        loops_.screen(column.data(), column.size(), lanes.data());
      }
      powersgd::scale(sum_lanes(lanes), column);
    }
  }
  store_le(state.data(), powersgd::kVersion);
  store_le(state.data() + 4, spec_.rank);
  store_le(state.data() + 8, key.run);
  store_le(state.data() + 16, mean.empty() ? std::uint64_t{0} : key.round + 1);
  store_le(state.data() + 24, powersgd::fingerprint(schema, spec_.rank));
  return {};
}

Status PowerSgdCodec::settle(const VectorSchema& schema, const StreamKey& key, std::span<const float> mean,
                             MutableByteSpan state) const {
  FLUVIAL_TRY(check_layout(schema.layout));
  FLUVIAL_TRY(powersgd::check_tensors(schema));
  const std::uint64_t expected = pass_layout(schema, 1).value_count;
  if (mean.size() != expected) {
    return Error{Code::kInvalidArgument, format_text("a mean of {} values, expected {}", mean.size(), expected)};
  }
  if (loops_.max_bits(mean.data(), mean.size()) >= ops::kInfinityBits) {
    return Error{Code::kInvalidArgument, "the mean of pass 1: " + not_finite(mean, 0).message};
  }
  if (state.size() != state_bytes(schema)) {
    return Error{Code::kInvalidArgument,
                 format_text("a codec state of {} bytes, expected {}", state.size(), state_bytes(schema))};
  }
  if (!powersgd::is_new(state)) FLUVIAL_TRY(check_state(schema, key, state));
  return write_state(schema, key, mean, state);
}

Status PowerSgdCodec::continue_state(const VectorSchema& schema, const StreamKey& key, ByteSpan last,
                                     MutableByteSpan state) const {
  FLUVIAL_TRY(check_layout(schema.layout));
  FLUVIAL_TRY(powersgd::check_tensors(schema));
  if (last.size() != state_bytes(schema) || state.size() != last.size()) {
    return Error{Code::kInvalidArgument, format_text("codec states of {} and {} bytes, expected {}", last.size(),
                                                     state.size(), state_bytes(schema))};
  }
  const StreamKey before{.run = load_le<std::uint64_t>(last.data() + 8)};  // whichever it was
  FLUVIAL_TRY(check_state(schema, before, last));
  return write_state(schema, {.run = key.run}, powersgd::factors_of(last), state);
}

}  // namespace fluvial::kernels
