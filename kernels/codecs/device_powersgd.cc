// PowerSGD on a device: the matrices and the places of their factors are as on the CPU (powersgd_shapes.h); the
// device's loops do the rest. On the CPU it is codec.h's.
#include "kernels/device_powersgd.h"

#include <algorithm>
#include <vector>

#include "core/base/format.h"
#include "kernels/codecs/common.h"
#include "kernels/codecs/powersgd_shapes.h"
#include "kernels/codecs/powersgd_state.h"
#include "kernels/device_backend.h"
#include "kernels/device_vector.h"

namespace fluvial::kernels {
namespace {

using powersgd::Segment;
using powersgd::Segments;
using powersgd::Totals;

constexpr std::size_t kVerdictBytes = 16;

Error invalid(std::string message) { return {Code::kInvalidArgument, std::move(message)}; }

template <typename T>
std::span<T> host(DeviceSpan<T> span) {
  return {span.data(), span.size()};
}

LowrankShape shape_of(const Segment& segment) { return {segment.rows, segment.cols, segment.rank}; }

Status check_size(std::string_view what, std::size_t size, std::uint64_t expected) {
  if (size == expected) return {};
  return invalid(format_text("{} of {} values, expected {}", what, size, expected));
}

// How a workspace is used.
struct Workspace {
  StateVerdict* verdict;
  double* scratch;
  DeviceSpan<std::byte> screening;
  DeviceSpan<float> p;
  DeviceSpan<float> sent;  // Q of each matrix, then the values as they are
};

std::size_t screening_bytes(const Totals& totals) {
  return (device_screen_workspace_bytes(std::max(totals.p, totals.q + totals.plain)) + 15) / 16 * 16;
}

// A column has one number more than there are rows.
std::size_t scratch_count(const Totals& totals) { return static_cast<std::size_t>(totals.p + totals.p_columns); }

std::size_t bytes_of(const Totals& totals) {
  return kVerdictBytes + scratch_count(totals) * sizeof(double) + screening_bytes(totals) +
         (totals.p + totals.q + totals.plain) * sizeof(float);
}

Workspace split(DeviceSpan<std::byte> bytes, const Totals& totals) {
  std::byte* const screening = bytes.data() + kVerdictBytes;
  std::byte* const scratch = screening + screening_bytes(totals);
  auto* const floats =
      reinterpret_cast<float*>(scratch + scratch_count(totals) * sizeof(double));  // NOLINT: as numbers
  return {.verdict = reinterpret_cast<StateVerdict*>(bytes.data()),                // NOLINT
          .scratch = reinterpret_cast<double*>(scratch),                           // NOLINT
          .screening = {screening, screening_bytes(totals)},
          .p = {floats, totals.p},
          .sent = {floats + totals.p, totals.q + totals.plain}};
}

class GpuPowerSgd final : public DevicePowerSgd {
 public:
  GpuPowerSgd(const CodecSpec& spec, DeviceLowrankOps& ops, std::unique_ptr<DeviceCodec> fp32)
      : spec_(spec), ops_(ops), fp32_(std::move(fp32)) {}

  ChunkLayout pass_layout(const VectorSchema& schema, std::uint32_t pass) const override {
    const Totals totals = totals_of(schema);
    return {.value_count = pass == 0 ? totals.p : totals.q + totals.plain, .chunk_values = schema.layout.chunk_values};
  }
  std::size_t workspace_bytes(const VectorSchema& schema) const override { return bytes_of(totals_of(schema)); }
  std::size_t state_bytes(const VectorSchema& schema) const override {
    return powersgd::kStateHeaderBytes + static_cast<std::size_t>(totals_of(schema).q) * sizeof(float);
  }
  const DeviceCodec& fp32() const override { return *fp32_; }

  Result<DeviceLowrankPlan> prepare(const VectorSchema& schema, DeviceSpan<const float> vector, const StreamKey& key,
                                    std::uint32_t pass, DeviceSpan<const float> mean, DeviceSpan<std::byte> state,
                                    DeviceSpan<std::byte> workspace, ChunkOutcome* outcome,
                                    Stream& stream) const override {
    FLUVIAL_TRY(check(schema, workspace));
    FLUVIAL_TRY(check_size("a vector", vector.size(), schema.layout.value_count));
    FLUVIAL_TRY(check_size("a codec state in bytes", state.size(), state_bytes(schema)));
    if (pass > 1) return invalid(format_text("pass {} of powersgd, which has 2", pass));
    const Totals totals = totals_of(schema);
    FLUVIAL_TRY(check_size("a mean of the pass before", mean.size(), pass == 0 ? 0 : totals.p));
    const Workspace parts = split(workspace, totals);
    *outcome = ChunkOutcome{};
    if (pass == 0) {
      FLUVIAL_TRY(write_state(schema, key, {}, StateVerdict::kNew, state, parts, outcome, stream));
    } else {
      FLUVIAL_TRY(make_basis(schema, mean, parts, stream));
    }
    FLUVIAL_TRY(multiply(schema, vector, pass, factors_of(state), parts, stream));
    const DeviceSpan<const float> sent = pass == 0 ? parts.p : parts.sent;
    if (!sent.empty()) {
      FLUVIAL_TRY(stream.backend().vector_ops().screen(sent, 0, parts.screening, outcome, stream));
    }
    DeviceLowrankPlan plan{.schema = schema, .pass = pass, .p = parts.p, .q = parts.sent};
    plan.sent = {.layout = pass_layout(schema, pass), .key = key, .values = sent, .workspace = workspace};
    return plan;
  }

  Status leave_chunk(const DeviceLowrankPlan& plan, std::size_t chunk_index, DeviceSpan<const float> values,
                     DeviceSpan<float> out, Stream& stream) const override {
    FLUVIAL_TRY(check_chunk(plan.schema.layout, chunk_index, values.size()));
    FLUVIAL_TRY(check_size("a residual", out.size(), values.size()));
    if (plan.pass != 1) return invalid("the residual follows from the plan of the last pass, 1");
    Status status;
    powersgd::over_chunk(
        plan.schema, spec_.rank, chunk_index,
        [&](const Segment& at, std::size_t first, std::size_t in_chunk, std::size_t count) {
          if (!status.ok()) return;
          status = ops_.leave(values.data() + in_chunk, first, count, shape_of(at), plan.p.data() + at.p_first,
                              plan.q.data() + at.q_first, out.data() + in_chunk, stream);
        },
        [&](const Segment&, std::size_t, std::size_t in_chunk, std::size_t count) {
          if (status.ok()) status = zero(out.subspan(in_chunk, count), stream);
        });
    return status;
  }

  Result<DeviceLowrankPlan> prepare_expand(const VectorSchema& schema, DeviceSpan<const float> mean_p,
                                           DeviceSpan<const float> mean_q, DeviceSpan<std::byte> workspace,
                                           Stream& stream) const override {
    FLUVIAL_TRY(check(schema, workspace));
    const Totals totals = totals_of(schema);
    FLUVIAL_TRY(check_size("the mean of pass 0", mean_p.size(), totals.p));
    FLUVIAL_TRY(check_size("the mean of pass 1", mean_q.size(), totals.q + totals.plain));
    const Workspace parts = split(workspace, totals);
    FLUVIAL_TRY(make_basis(schema, mean_p, parts, stream));
    return DeviceLowrankPlan{.schema = schema, .pass = 1, .p = parts.p, .q = mean_q};
  }

  Status expand_chunk(const DeviceLowrankPlan& plan, std::size_t chunk_index, DeviceSpan<float> out,
                      Stream& stream) const override {
    FLUVIAL_TRY(check_chunk(plan.schema.layout, chunk_index, out.size()));
    const std::uint64_t q_total = totals_of(plan.schema).q;
    Status status;
    powersgd::over_chunk(
        plan.schema, spec_.rank, chunk_index,
        [&](const Segment& at, std::size_t first, std::size_t in_chunk, std::size_t count) {
          if (!status.ok()) return;
          status = ops_.expand(first, count, shape_of(at), plan.p.data() + at.p_first, plan.q.data() + at.q_first,
                               out.data() + in_chunk, stream);
        },
        [&](const Segment& at, std::size_t first, std::size_t in_chunk, std::size_t count) {
          const auto from = static_cast<std::size_t>(q_total + at.plain_first) + first;
          if (status.ok()) status = copy_on_device(plan.q.subspan(from, count), out.subspan(in_chunk, count), stream);
        });
    return status;
  }

  Status settle(const VectorSchema& schema, const StreamKey& key, DeviceSpan<const float> mean_q,
                DeviceSpan<std::byte> state, DeviceSpan<std::byte> workspace, ChunkOutcome* outcome,
                Stream& stream) const override {
    FLUVIAL_TRY(check(schema, workspace));
    const Totals totals = totals_of(schema);
    FLUVIAL_TRY(check_size("the mean of pass 1", mean_q.size(), totals.q + totals.plain));
    FLUVIAL_TRY(check_size("a codec state in bytes", state.size(), state_bytes(schema)));
    *outcome = ChunkOutcome{};
    return write_state(schema, key, mean_q, StateVerdict::kKnown, state, split(workspace, totals), outcome, stream);
  }

 private:
  Totals totals_of(const VectorSchema& schema) const { return powersgd::totals_of(schema, spec_.rank); }
  static DeviceSpan<float> factors_of(DeviceSpan<std::byte> state) {
    const DeviceSpan<std::byte> factors = state.subspan(powersgd::kStateHeaderBytes);
    return {reinterpret_cast<float*>(factors.data()), factors.size() / sizeof(float)};  // NOLINT: the state as numbers
  }
  static Status zero(DeviceSpan<float> values, Stream& stream) {
    return stream.backend().zero(values.data(), values.size_bytes(), stream.get());
  }

  Status check(const VectorSchema& schema, DeviceSpan<std::byte> workspace) const {
    FLUVIAL_TRY(check_layout(schema.layout));
    FLUVIAL_TRY(powersgd::check_tensors(schema));
    if (workspace.size() >= workspace_bytes(schema)) return {};
    return invalid(format_text("a workspace of {} bytes, expected {}", workspace.size(), workspace_bytes(schema)));
  }

  // Calls visit(segment) for each matrix that is cut.
  template <typename Visit>
  void for_each_matrix(const VectorSchema& schema, Visit visit) const {
    Segments segments(schema, spec_.rank);
    for (Segment segment; segments.next(&segment);) {
      if (segment.rank != 0) visit(segment);
    }
  }

  // `mean` is the last pass's, or empty: as drawn. Nothing is written when the state does not fit.
  Status write_state(const VectorSchema& schema, const StreamKey& key, DeviceSpan<const float> mean, StateVerdict least,
                     DeviceSpan<std::byte> state, const Workspace& parts, ChunkOutcome* outcome, Stream& stream) const {
    const LowrankHeader header = {powersgd::kVersion | std::uint64_t{spec_.rank} << 32, key.run,
                                  mean.empty() ? 0 : key.round + 1, powersgd::fingerprint(schema, spec_.rank)};
    FLUVIAL_TRY(ops_.begin_state(header, state, parts.verdict, outcome, stream));
    float* const factors = factors_of(state).data();
    std::vector<LowrankColumns> matrices;
    for_each_matrix(schema, [&](const Segment& at) {
      matrices.push_back({.shape = shape_of(at),
                          .mean = mean.empty() ? nullptr : mean.data() + at.q_first,
                          .first_value = at.q_first,
                          .q = factors + at.q_first});
    });
    FLUVIAL_TRY(ops_.write_columns(matrices, key.run, parts.verdict, least, stream));
    return ops_.write_header(header, state, parts.verdict, least, stream);
  }

  // Orthonormal P of each matrix, from the mean of pass 0.
  Status make_basis(const VectorSchema& schema, DeviceSpan<const float> mean, const Workspace& parts,
                    Stream& stream) const {
    std::vector<LowrankBasis> matrices;
    double* scratch = parts.scratch;
    for_each_matrix(schema, [&](const Segment& at) {
      matrices.push_back({.shape = shape_of(at),
                          .mean = mean.data() + at.p_first,
                          .scratch = scratch,
                          .p = parts.p.data() + at.p_first});
      scratch += at.rank * (at.rows + 1);
    });
    return ops_.orthonormalise(matrices, stream);
  }

  Status multiply(const VectorSchema& schema, DeviceSpan<const float> vector, std::uint32_t pass,
                  DeviceSpan<const float> warm_start, const Workspace& parts, Stream& stream) const {
    const std::uint64_t q_total = totals_of(schema).q;
    Segments segments(schema, spec_.rank);
    for (Segment at; segments.next(&at);) {
      const float* const m = vector.data() + at.first;
      float* const p = parts.p.data() + at.p_first;
      if (at.rank == 0 && pass == 1) {
        FLUVIAL_TRY(copy_on_device(vector.subspan(static_cast<std::size_t>(at.first), at.count),
                                   parts.sent.subspan(static_cast<std::size_t>(q_total + at.plain_first), at.count),
                                   stream));
      } else if (at.rank != 0 && pass == 0) {
        FLUVIAL_TRY(ops_.project(m, shape_of(at), warm_start.data() + at.q_first, p, stream));
      } else if (at.rank != 0) {
        FLUVIAL_TRY(ops_.project_back(m, shape_of(at), p, parts.sent.data() + at.q_first, stream));
      }
    }
    return {};
  }

  CodecSpec spec_;
  DeviceLowrankOps& ops_;
  std::unique_ptr<DeviceCodec> fp32_;
};

class CpuPowerSgd final : public DevicePowerSgd {
 public:
  CpuPowerSgd(std::unique_ptr<Codec> codec, std::unique_ptr<DeviceCodec> fp32)
      : codec_(std::move(codec)), fp32_(std::move(fp32)) {}

  ChunkLayout pass_layout(const VectorSchema& schema, std::uint32_t pass) const override {
    return codec_->pass_layout(schema, pass);
  }
  std::size_t workspace_bytes(const VectorSchema& schema) const override { return codec_->workspace_bytes(schema); }
  std::size_t state_bytes(const VectorSchema& schema) const override { return codec_->state_bytes(schema); }
  const DeviceCodec& fp32() const override { return *fp32_; }

  Result<DeviceLowrankPlan> prepare(const VectorSchema& schema, DeviceSpan<const float> vector, const StreamKey& key,
                                    std::uint32_t pass, DeviceSpan<const float> mean, DeviceSpan<std::byte> state,
                                    DeviceSpan<std::byte> workspace, ChunkOutcome* outcome, Stream&) const override {
    *outcome = ChunkOutcome{};
    const PassInput input{.pass = pass, .reduced = host(mean)};
    FLUVIAL_ASSIGN(const EncodePlan plan,
                   codec_->prepare(schema, host(vector), key, input, host(state), host(workspace)));
    for (std::size_t part = 0; part < plan.parts; ++part) FLUVIAL_TRY(codec_->prepare_part(plan, part));
    DeviceLowrankPlan device{.schema = schema, .pass = pass, .host_plan = plan};
    device.sent = {.layout = plan.layout,
                   .key = key,
                   .values = {plan.values.data(), plan.values.size()},
                   .workspace = workspace,
                   .host = plan};
    return device;
  }
  Status leave_chunk(const DeviceLowrankPlan& plan, std::size_t chunk_index, DeviceSpan<const float> values,
                     DeviceSpan<float> out, Stream&) const override {
    return codec_->leave_chunk(plan.host_plan, chunk_index, host(values), host(out));
  }
  Result<DeviceLowrankPlan> prepare_expand(const VectorSchema& schema, DeviceSpan<const float> mean_p,
                                           DeviceSpan<const float> mean_q, DeviceSpan<std::byte> workspace,
                                           Stream&) const override {
    const std::array<std::span<const float>, 2> means = {host(mean_p), host(mean_q)};
    FLUVIAL_ASSIGN(const ExpandPlan plan, codec_->prepare_expand(schema, means, host(workspace)));
    return DeviceLowrankPlan{.schema = schema, .pass = 1, .host_expand = plan};
  }
  Status expand_chunk(const DeviceLowrankPlan& plan, std::size_t chunk_index, DeviceSpan<float> out,
                      Stream&) const override {
    return codec_->expand_chunk(plan.host_expand, chunk_index, host(out));
  }
  Status settle(const VectorSchema& schema, const StreamKey& key, DeviceSpan<const float> mean_q,
                DeviceSpan<std::byte> state, DeviceSpan<std::byte>, ChunkOutcome* outcome, Stream&) const override {
    *outcome = ChunkOutcome{};
    return codec_->settle(schema, key, host(mean_q), host(state));
  }

 private:
  std::unique_ptr<Codec> codec_;
  std::unique_ptr<DeviceCodec> fp32_;
};

}  // namespace

Status DevicePowerSgd::accepted(const ChunkOutcome& outcome) {
  if (outcome.malformed != 0) return invalid("powersgd state: of another run, rank, version or model");
  if (outcome.not_finite_at == ChunkOutcome::kNone) return {};
  return invalid(format_text("powersgd: value {} of what a pass sends is not finite", outcome.not_finite_at));
}

Result<std::unique_ptr<DevicePowerSgd>> make_device_powersgd(const Device& device, const CodecSpec& spec) {
  if (spec.kind != CodecKind::kPowerSgd) return invalid(format_text("{} is not powersgd", to_string(spec)));
  if (spec.zstd_level != 0) return Error{Code::kFailedPrecondition, "the zstd stage runs on the CPU alone"};
  FLUVIAL_ASSIGN(std::unique_ptr<Codec> codec, make_codec(spec));
  FLUVIAL_ASSIGN(Backend* const backend, backend_of(device));
  FLUVIAL_ASSIGN(std::unique_ptr<DeviceCodec> fp32, make_device_codec(device, {.kind = CodecKind::kFp32}));
  DeviceLowrankOps* const ops = backend->lowrank_ops();
  if (ops == nullptr) {
    return std::unique_ptr<DevicePowerSgd>(std::make_unique<CpuPowerSgd>(std::move(codec), std::move(fp32)));
  }
  return std::unique_ptr<DevicePowerSgd>(std::make_unique<GpuPowerSgd>(spec, *ops, std::move(fp32)));
}

}  // namespace fluvial::kernels
