#include "kernels/codecs/powersgd.h"

#include <algorithm>

#include "core/base/format.h"
#include "kernels/codecs/common.h"
#include "kernels/codecs/options.h"
#include "kernels/codecs/powersgd_state.h"
#include "kernels/ops/bits.h"

namespace fluvial::kernels {
namespace {

using powersgd::Part;
using powersgd::Segment;
using powersgd::Segments;
using powersgd::Totals;

Error invalid(std::string message) { return {Code::kInvalidArgument, std::move(message)}; }

// How the workspace is used: fp64 scratch, then P, then what pass 1 sends.
struct Workspace {
  std::span<double> scratch;
  std::span<float> p;
  std::span<float> sent;  // Q of each matrix, then the values as they are
};

std::size_t scratch_count(const Totals& totals) { return static_cast<std::size_t>(std::max(totals.q, totals.p_most)); }

Workspace split(MutableByteSpan bytes, const Totals& totals) {
  Workspace workspace;
  auto* scratch = reinterpret_cast<double*>(bytes.data());  // NOLINT: aligned to 8 bytes, as codec.h asks
  workspace.scratch = {scratch, scratch_count(totals)};
  auto* floats = reinterpret_cast<float*>(bytes.data() + workspace.scratch.size_bytes());  // NOLINT
  workspace.p = {floats, static_cast<std::size_t>(totals.p)};
  workspace.sent = {floats + totals.p, static_cast<std::size_t>(totals.q + totals.plain)};
  return workspace;
}

Status check_mean(std::uint32_t pass, std::span<const float> mean, std::uint64_t expected, const cpu::Loops& loops) {
  if (mean.size() != expected) {
    return invalid(format_text("the mean of pass {} has {} values, expected {}", pass, mean.size(), expected));
  }
  if (loops.max_bits(mean.data(), mean.size()) < ops::kInfinityBits) return {};
  return invalid(format_text("the mean of pass {}: {}", pass, not_finite(mean, 0).message));
}

Status check_rank(const CodecSpec& spec) {
  if (spec.rank >= 1 && spec.rank <= cpu::kLowrankRankMax) return {};
  return bad_option(format_text("rank is {}, expected 1 to {}", spec.rank, cpu::kLowrankRankMax));
}

constexpr CodecOption kPowerSgdOptions[] = {number_option<&CodecSpec::rank>("rank")};

}  // namespace

PowerSgdCodec::PowerSgdCodec(const CodecSpec& spec, cpu::Target target)
    : spec_(spec),
      loops_(cpu::loops(target)),
      lowrank_(cpu::lowrank_loops(target)),
      fp32_(make_codec(CodecSpec{}, target).value()) {}

ChunkLayout PowerSgdCodec::pass_layout(const VectorSchema& schema, std::uint32_t pass) const {
  const Totals totals = powersgd::totals_of(schema, spec_.rank);
  return {.value_count = pass == 0 ? totals.p : totals.q + totals.plain, .chunk_values = schema.layout.chunk_values};
}

std::size_t PowerSgdCodec::encoded_bytes_max(std::size_t value_count) const {
  return fp32_->encoded_bytes_max(value_count);
}

std::size_t PowerSgdCodec::workspace_bytes(const VectorSchema& schema) const {
  const Totals totals = powersgd::totals_of(schema, spec_.rank);
  return scratch_count(totals) * sizeof(double) +
         static_cast<std::size_t>(totals.p + totals.q + totals.plain) * sizeof(float);
}

Result<EncodePlan> PowerSgdCodec::prepare(const VectorSchema& schema, std::span<const float> vector,
                                          const StreamKey& key, const PassInput& input, MutableByteSpan state,
                                          MutableByteSpan workspace) const {
  FLUVIAL_TRY(check_prepare(*this, schema, vector, input, state, workspace));
  FLUVIAL_TRY(powersgd::check_tensors(schema));
  const Totals totals = powersgd::totals_of(schema, spec_.rank);
  const Workspace parts = split(workspace, totals);
  EncodePlan plan{.layout = pass_layout(schema, input.pass), .key = key, .pass = input.pass};
  plan.parts = totals.parts[input.pass];
  plan.schema = schema;
  plan.vector = vector;
  plan.workspace = workspace;
  if (input.pass == 0) {
    if (powersgd::is_new(state)) {
      FLUVIAL_TRY(write_state(schema, key, {}, state));
    } else {
      FLUVIAL_TRY(check_state(schema, key, state));
    }
    plan.factors = powersgd::factors_of(state);
    plan.values = parts.p;
  } else {
    FLUVIAL_TRY(check_mean(0, input.reduced, totals.p, loops_));
    FLUVIAL_TRY(make_basis(schema, input.reduced, parts.scratch, parts.p));
    plan.factors = parts.p;
    plan.values = parts.sent;
  }
  return plan;
}

Status PowerSgdCodec::make_basis(const VectorSchema& schema, std::span<const float> mean, std::span<double> scratch,
                                 std::span<float> basis) const {
  Segments segments(schema, spec_.rank);
  for (Segment segment; segments.next(&segment);) {
    if (segment.rank == 0) continue;
    const auto first = static_cast<std::size_t>(segment.p_first);
    const std::size_t count = segment.rank * segment.rows;
    powersgd::orthonormalise(mean.subspan(first, count), segment.rank, lowrank_, scratch.first(count),
                             basis.subspan(first, count));
  }
  return {};
}

Status PowerSgdCodec::prepare_part(const EncodePlan& plan, std::size_t part) const {
  if (part >= plan.parts) return invalid(format_text("part {} of {}", part, plan.parts));
  const Part work = powersgd::part_of(plan.schema, spec_.rank, plan.pass, part);
  if (work.segment.rank != 0) return plan.pass == 0 ? multiply(plan, work) : multiply_back(plan, work);
  const auto first = static_cast<std::size_t>(work.segment.first) + work.first;
  const std::span<const float> values = plan.vector.subspan(first, work.count);
  if (loops_.max_bits(values.data(), values.size()) >= ops::kInfinityBits) {
    return invalid(not_finite(values, first).message);
  }
  if (plan.pass == 0) return {};  // sent, and checked, in pass 1
  const Totals totals = powersgd::totals_of(plan.schema, spec_.rank);
  const std::span<float> sent = split(plan.workspace, totals).sent;
  std::ranges::copy(values,
                    sent.begin() + static_cast<std::ptrdiff_t>(totals.q + work.segment.plain_first + work.first));
  return {};
}

Status PowerSgdCodec::multiply(const EncodePlan& plan, const Part& part) const {
  const Segment& at = part.segment;
  const Workspace workspace = split(plan.workspace, powersgd::totals_of(plan.schema, spec_.rank));
  float* const p = workspace.p.data() + at.p_first + part.first;
  lowrank_.project(plan.vector.data() + at.first + part.first * at.cols, part.count, at.cols,
                   plan.factors.data() + at.q_first, at.rank, p, at.rows);
  for (std::size_t k = 0; k < at.rank; ++k) FLUVIAL_TRY(check_products(plan, at, {p + k * at.rows, part.count}));
  return {};
}

Status PowerSgdCodec::multiply_back(const EncodePlan& plan, const Part& part) const {
  const Segment& at = part.segment;
  const Workspace workspace = split(plan.workspace, powersgd::totals_of(plan.schema, spec_.rank));
  float* const q = workspace.sent.data() + at.q_first;
  lowrank_.project_back(plan.vector.data() + at.first, at.rows, at.cols, part.first, part.count,
                        plan.factors.data() + at.p_first, at.rank, workspace.scratch.data() + at.q_first, q);
  for (std::size_t k = 0; k < at.rank; ++k) {
    FLUVIAL_TRY(check_products(plan, at, {q + k * at.cols + part.first, part.count}));
  }
  return {};
}

Status PowerSgdCodec::check_products(const EncodePlan& plan, const Segment& segment,
                                     std::span<const float> products) const {
  if (loops_.max_bits(products.data(), products.size()) < ops::kInfinityBits) return {};
  const auto values =
      plan.vector.subspan(static_cast<std::size_t>(segment.first), static_cast<std::size_t>(segment.count));
  if (loops_.max_bits(values.data(), values.size()) >= ops::kInfinityBits) {
    return invalid(not_finite(values, segment.first).message);
  }
  return invalid(format_text("the matrix of {} x {} at value {} is too large: its product with a factor is beyond fp32",
                             segment.rows, segment.cols, segment.first));
}

Status PowerSgdCodec::leave_chunk(const EncodePlan& plan, std::size_t chunk_index, std::span<const float> values,
                                  std::span<float> out) const {
  FLUVIAL_TRY(check_chunk(plan.schema.layout, chunk_index, values.size()));
  if (out.size() != values.size()) return invalid("a residual of another length");
  if (plan.pass != 1) return invalid("the residual follows from the plan of the last pass, 1");
  powersgd::over_chunk(
      plan.schema, spec_.rank, chunk_index,
      [&](const Segment& at, std::size_t first, std::size_t in_chunk, std::size_t count) {
        lowrank_.leave(values.data() + in_chunk, first, count, at.rows, at.cols, plan.factors.data() + at.p_first,
                       plan.values.data() + at.q_first, at.rank, out.data() + in_chunk);
      },
      [&](const Segment&, std::size_t, std::size_t in_chunk, std::size_t count) {
        std::ranges::fill(out.subspan(in_chunk, count), 0.0F);
      });
  return {};
}

Result<ExpandPlan> PowerSgdCodec::prepare_expand(const VectorSchema& schema,
                                                 std::span<const std::span<const float>> means,
                                                 MutableByteSpan workspace) const {
  FLUVIAL_TRY(check_layout(schema.layout));
  FLUVIAL_TRY(powersgd::check_tensors(schema));
  if (means.size() != passes()) return invalid(format_text("{} means, expected {}", means.size(), passes()));
  const Totals totals = powersgd::totals_of(schema, spec_.rank);
  FLUVIAL_TRY(check_mean(0, means[0], totals.p, loops_));
  FLUVIAL_TRY(check_mean(1, means[1], totals.q + totals.plain, loops_));
  if (workspace.size() < workspace_bytes(schema)) {
    return invalid(format_text("a workspace of {} bytes, expected {}", workspace.size(), workspace_bytes(schema)));
  }
  const Workspace parts = split(workspace, totals);
  FLUVIAL_TRY(make_basis(schema, means[0], parts.scratch, parts.p));
  return ExpandPlan{.schema = schema, .factors = parts.p, .values = means[1]};
}

Status PowerSgdCodec::expand_chunk(const ExpandPlan& plan, std::size_t chunk_index, std::span<float> out) const {
  FLUVIAL_TRY(check_chunk(plan.schema.layout, chunk_index, out.size()));
  const std::uint64_t q_total = powersgd::totals_of(plan.schema, spec_.rank).q;
  powersgd::over_chunk(
      plan.schema, spec_.rank, chunk_index,
      [&](const Segment& at, std::size_t first, std::size_t in_chunk, std::size_t count) {
        lowrank_.expand(first, count, at.rows, at.cols, plan.factors.data() + at.p_first,
                        plan.values.data() + at.q_first, at.rank, out.data() + in_chunk);
      },
      [&](const Segment& at, std::size_t first, std::size_t in_chunk, std::size_t count) {
        const auto from = static_cast<std::size_t>(q_total + at.plain_first) + first;
        std::ranges::copy(plan.values.subspan(from, count), out.begin() + static_cast<std::ptrdiff_t>(in_chunk));
      });
  return {};
}

Result<std::size_t> PowerSgdCodec::encode_chunk(const EncodePlan& plan, std::size_t chunk_index,
                                                std::span<const float> chunk, MutableByteSpan out) const {
  return fp32_->encode_chunk(plan, chunk_index, chunk, out);
}

Status PowerSgdCodec::decode_chunk(ByteSpan bytes, std::span<float> out) const {
  return fp32_->decode_chunk(bytes, out);
}

Status PowerSgdCodec::decode_accumulate_chunk(ByteSpan bytes, std::uint32_t weight, int scale_bits,
                                              std::span<std::int64_t> sum) const {
  return fp32_->decode_accumulate_chunk(bytes, weight, scale_bits, sum);
}

Result<ScreenReport> PowerSgdCodec::screen_chunk(ByteSpan bytes, std::size_t value_count,
                                                 std::uint64_t first_value) const {
  return fp32_->screen_chunk(bytes, value_count, first_value);
}

Status PowerSgdCodec::residual_chunk(std::span<const float> values, ByteSpan bytes, std::span<float> out) const {
  return fp32_->residual_chunk(values, bytes, out);
}

Status PowerSgdCodec::decode_add_chunk(ByteSpan bytes, float weight, std::span<float> sum) const {
  return fp32_->decode_add_chunk(bytes, weight, sum);
}

const CodecEntry kPowerSgdEntry = {CodecKind::kPowerSgd, "powersgd", kPowerSgdOptions, check_rank,
                                   make_as<PowerSgdCodec>};

}  // namespace fluvial::kernels
