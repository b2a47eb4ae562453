#include "cli/bound/probes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <vector>

#include "cli/bench_update.h"
#include "cli/bound/entropy.h"
#include "cli/bound/loopback.h"
#include "cli/bound/stopwatch.h"
#include "core/aggregate/accumulator.h"
#include "core/aggregate/model_form.h"
#include "core/aggregate/scale.h"
#include "core/base/parallel.h"
#include "core/digest/sha256.h"
#include "core/digest/sha256_lanes.h"
#include "core/digest/submission_digest.h"
#include "core/net/record_cipher.h"
#include "kernels/stream_key.h"
#include "kernels/vector.h"

namespace fluvial::cli::bound {
namespace {

constexpr std::size_t kCipherBytes = std::size_t{16} << 20;
constexpr std::size_t kCopyBytes = std::size_t{64} << 20;  // far beyond the caches
constexpr std::size_t kFileBytes = std::size_t{32} << 20;
constexpr std::uint64_t kValuesMax = 4'000'000;

// Whatever was written there is wanted: else nobody reads the copy, and the compiler leaves it out.
void keep(const void* written) { asm volatile("" : : "r"(written) : "memory"); }

double per_byte(double seconds, std::size_t bytes) { return seconds / static_cast<double>(bytes); }

double usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? static_cast<double>(CPU_COUNT(&set)) : 1.0;
}

Status probe_cipher(MachineCosts& costs) {
  Buffer bytes(kCipherBytes), tags(net::record_tag_bytes(kCipherBytes));
  Status done;
  costs.seal_s_byte = costs.open_s_byte = 1;
  for (int turn = 0; turn < kTurns; ++turn) {
    const double began = seconds_on(Clock::kThread);
    FLUVIAL_TRY(net::seal_records(bytes.span(), tags.span()));
    const double sealed = seconds_on(Clock::kThread);
    FLUVIAL_TRY(net::open_records(bytes.span(), tags.span()));
    const double opened = seconds_on(Clock::kThread);
    costs.seal_s_byte = std::min(costs.seal_s_byte, per_byte(sealed - began, kCipherBytes));
    costs.open_s_byte = std::min(costs.open_s_byte, per_byte(opened - sealed, kCipherBytes));
  }
  costs.sha256_s_byte = per_byte(best_seconds(Clock::kThread, [&] { sha256(bytes.span()); }), kCipherBytes);
  std::vector<Digest> leaves(kCipherBytes / kDigestLeafBytes);
  const auto in_lanes = [&] { sha256_pieces(bytes.span(), kDigestLeafBytes, leaves); };
  costs.sha256_lanes_s_byte = per_byte(best_seconds(Clock::kThread, in_lanes), kCipherBytes);
  return {};
}

bool write_all(int descriptor, ByteSpan bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor, bytes.data(), bytes.size());
    if (count <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
  return ::fsync(descriptor) == 0;
}

// A file of its own, fsynced, as p and models are.
Status probe_disk(const std::string& folder, MachineCosts& costs) {
  const std::string path = folder + "/probe";
  const Buffer bytes(kFileBytes);
  costs.disk_s_byte = costs.file_cpu_s_byte = 1;
  for (int turn = 0; turn < kTurns; ++turn) {
    const double wall = seconds_on(Clock::kWall), thread = seconds_on(Clock::kThread);
    const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    const bool written = descriptor >= 0 && write_all(descriptor, bytes.span());
    costs.disk_s_byte = std::min(costs.disk_s_byte, per_byte(seconds_on(Clock::kWall) - wall, kFileBytes));
    costs.file_cpu_s_byte = std::min(costs.file_cpu_s_byte, per_byte(seconds_on(Clock::kThread) - thread, kFileBytes));
    if (descriptor >= 0) ::close(descriptor);
    ::unlink(path.c_str());
    if (!written)
      return Error{Code::kUnavailable, "cannot write and fsync " + path + "; name a folder with --work-dir"};
  }
  return {};
}

// The kernels of a round over one vector, as a site, its parent and the root call them.
class CodecRound {
 public:
  CodecRound(std::unique_ptr<kernels::Codec> codec, std::size_t count)
      : codec_(std::move(codec)),
        schema_{.layout = {.value_count = count, .chunk_values = round::Plan{}.chunk_values}, .tensors = {}},
        base_(count),
        local_(count),
        vector_(count),
        mean_(count),
        state_(codec_->state_bytes(schema_)),
        workspace_(codec_->workspace_bytes(schema_)),
        sum_(schema_.layout, 0, kScaleBits) {
    fill_model(1, base_);
    if (!state_.empty()) std::memset(state_.data(), 0, state_.size());
  }

  void train() { apply_update({.seed = 1, .round = 1, .site_index = 1}, base_, local_); }

  Status encode() {
    kernels::pseudo_gradient(base_, local_, {}, vector_);
    FLUVIAL_TRY(kernels::screen(vector_));
    if (!state_.empty()) FLUVIAL_TRY(codec_->fold(schema_, vector_, {}, state_.span(), vector_));
    FLUVIAL_ASSIGN(
        const kernels::EncodePlan plan,
        codec_->prepare(schema_, vector_, kernels::stream_key(1, 1, "site-1"), {}, state_.span(), workspace_.span()));
    chunks_.clear();
    for (std::size_t chunk = 0; chunk < schema_.layout.chunk_count(); ++chunk) {
      const auto values = schema_.layout.of(std::span<const float>(vector_), chunk);
      Buffer bytes(codec_->encoded_bytes_max(values.size()));
      FLUVIAL_ASSIGN(const std::size_t length, codec_->encode_chunk(plan, chunk, values, bytes.span()));
      bytes.shrink(length);
      chunks_.push_back(std::move(bytes));
    }
    return {};
  }

  Status accumulate() {
    for (std::size_t chunk = 0; chunk < chunks_.size(); ++chunk)
      FLUVIAL_TRY(sum_.add_chunk(*codec_, chunk, chunks_[chunk].span(), 1));
    return {};
  }

  Status finalise() {
    FLUVIAL_TRY(sum_.mean(0, 1, mean_));
    kernels::apply_sgd(1.0, mean_, base_);
    return {};
  }

  const std::vector<Buffer>& chunks() const { return chunks_; }

 private:
  static constexpr int kScaleBits = 30;
  std::unique_ptr<kernels::Codec> codec_;
  kernels::VectorSchema schema_;
  std::vector<float> base_, local_, vector_, mean_;
  Buffer state_, workspace_;
  aggregate::Accumulator sum_;
  std::vector<Buffer> chunks_;
};

std::size_t symbol_bytes(kernels::CodecKind kind) {
  switch (kind) {
    case kernels::CodecKind::kFp32: return 4;
    case kernels::CodecKind::kFp16:
    case kernels::CodecKind::kBf16: return 2;
    default: return 1;
  }
}

}  // namespace

Result<MachineCosts> probe_machine(const std::string& folder) {
  MachineCosts costs{.cores = usable_cores()};
  FLUVIAL_TRY(probe_cipher(costs));
  FLUVIAL_TRY(probe_disk(folder, costs));
  FLUVIAL_ASSIGN(const LoopbackCosts loopback, probe_loopback());
  costs.alpha_s = loopback.alpha_s;
  costs.tcp_s_byte = loopback.cpu_s_byte;
  const std::vector<char> from(kCopyBytes, 'x');
  std::vector<char> to(kCopyBytes);
  costs.copy_s_byte = per_byte(best_seconds(Clock::kWall,
                                            [&] {
                                              std::memcpy(to.data(), from.data(), kCopyBytes);
                                              keep(to.data());
                                            }),
                               kCopyBytes);
  return costs;
}

Result<CodecCosts> probe_codec(const std::string& codec, std::uint64_t params) {
  FLUVIAL_ASSIGN(const kernels::CodecSpec spec, kernels::parse_codec(codec));
  FLUVIAL_ASSIGN(auto made, kernels::make_codec(spec));
  if (made->hands_down()) {
    return Error{Code::kInvalidArgument,
                 codec +
                     " has rounds that hand something down, whose costs are not probed: expected another codec. "
                     "fluvial bench tree measures a round with this one"};
  }
  const auto count = static_cast<std::size_t>(std::min(params, kValuesMax));
  CodecRound round(std::move(made), count);
  CodecCosts costs;
  Status status;
  const auto cost = [&](auto&& work) {
    const double seconds = best_seconds(Clock::kThread, [&] {
      if (status.ok()) status = work();
    });
    return seconds / static_cast<double>(count);
  };
  costs.worker_s = cost([&]() -> Status {
    round.train();
    return {};
  });
  costs.site_s = cost([&] { return round.encode(); });
  costs.parent_s = cost([&] { return round.accumulate(); });
  costs.root_s = cost([&] { return round.finalise(); });
  if (!status.ok()) return status.error();
  costs.update_bytes = costs.entropy_bytes = 0;
  for (const Buffer& chunk : round.chunks()) {
    costs.update_bytes += static_cast<double>(chunk.size()) / static_cast<double>(count);
    costs.entropy_bytes += entropy_bytes(chunk.span(), symbol_bytes(spec.kind)) / static_cast<double>(count);
  }
  return costs;
}

namespace {

DownCosts::Kind kind_of(aggregate::Down::Kind kind) {
  switch (kind) {
    case aggregate::Down::Kind::kWhole: return DownCosts::Kind::kWhole;
    case aggregate::Down::Kind::kRounded: return DownCosts::Kind::kRounded;
    case aggregate::Down::Kind::kDelta: return DownCosts::Kind::kDelta;
  }
  return DownCosts::Kind::kWhole;
}

}  // namespace

Result<DownCosts> probe_down(const std::string& text, std::uint64_t params) {
  FLUVIAL_ASSIGN(const aggregate::Down down, aggregate::parse_down(text));
  DownCosts costs{.kind = kind_of(down.kind)};
  if (costs.kind == DownCosts::Kind::kWhole) return costs;
  FLUVIAL_ASSIGN(const kernels::CodecSpec spec, kernels::parse_codec(down.codec));
  const auto count = static_cast<std::size_t>(std::min(params, kValuesMax));
  FLUVIAL_ASSIGN(const round::Schema schema, round::Schema::make({{"w", round::DType::kF32, {count}}}));
  std::vector<float> before(count), master(count), trained(count);
  fill_model(1, before);
  apply_update({.seed = 1, .round = 1, .site_index = 1}, before, master);
  const MutableByteSpan out = std::as_writable_bytes(std::span(trained));
  std::optional<aggregate::BaseModel> base;
  if (costs.kind == DownCosts::Kind::kDelta) {
    base = {{.run = RunId(1), .version = ModelVersion(0), .digest = {}, .bytes = out.size()},
            std::as_bytes(std::span(before))};
  }
  Serial serial;
  Result<aggregate::EncodedModel> encoded = Error{Code::kInternal, "not encoded"};
  const double root_s = best_seconds(Clock::kThread, [&] {
    encoded = aggregate::encode_model(serial, down, round::Plan{}.chunk_values, {1, 1, 0}, schema,
                                      std::as_bytes(std::span(master)), base, out);
  });
  if (!encoded.ok()) return encoded.error();
  Status decoded;
  const double child_s = best_seconds(Clock::kThread, [&] {
    decoded = aggregate::decode_model(serial, encoded->form, schema, base ? base->bytes : ByteSpan(),
                                      encoded->bytes.span(), out);
  });
  if (!decoded.ok()) return decoded.error();
  const auto values = static_cast<double>(count);
  costs.root_s = root_s / values;
  costs.child_s = child_s / values;
  costs.sent_bytes = static_cast<double>(encoded->form.bytes) / values;
  costs.entropy_bytes = entropy_bytes(encoded->bytes.span(), symbol_bytes(spec.kind)) / values;
  return costs;
}

double probe_addition() {
  constexpr std::size_t kCount = std::size_t{8} << 20;
  std::vector<float> sum(kCount, 0.5F), values(kCount, 0.25F);
  const double seconds = best_seconds(Clock::kThread, [&] {
    for (std::size_t i = 0; i < kCount; ++i) sum[i] += values[i];
  });
  return seconds / static_cast<double>(kCount * sizeof(float));
}

}  // namespace fluvial::cli::bound
