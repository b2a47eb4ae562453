// randk: one coordinate of each stratum, drawn by a generator whose seed is in the chunk. A thread goes over the four
// strata of a counter.
#include "kernels/cuda/dense.h"
#include "kernels/cuda/entries.h"
#include "kernels/ops/strata.h"
#include "kernels/topk_sample.h"

namespace fluvial::kernels::FLUVIAL_GPU {
namespace {

constexpr unsigned kThreads = 256;
constexpr std::uint32_t kHeaderBytes = 16;
constexpr std::uint32_t kVersion = 1;
constexpr std::uint32_t kWords = 4;  // of a counter

// Calls visit(entry, stratum, index within the chunk) for this thread's part of the strata.
template <typename Visit>
__device__ void for_each_drawn(std::uint64_t seed, std::uint32_t entries, std::uint32_t n, Visit visit) {
  for (std::uint64_t group = thread_in_grid(); kWords * group < entries; group += threads_in_grid()) {
    const ops::Random4 random = ops::philox4x32_10(group, 0, seed);
    FLUVIAL_UNROLL
    for (std::uint32_t i = 0; i < kWords; ++i) {
      const std::uint64_t entry = kWords * group + i;
      if (entry >= entries) break;
      const ops::Stratum stratum = ops::stratum_at(entry, entries, n);
      visit(static_cast<std::uint32_t>(entry), stratum, ops::drawn_from(stratum, random.word[i]));
    }
  }
}

unsigned blocks_for_entries(std::uint64_t entries, Stream& stream) {
  return blocks_for((entries + kWords * kThreads - 1) / (kWords * kThreads), stream);
}

template <typename Op>
__global__ void __launch_bounds__(kThreads)
    walk_drawn(const std::byte* bytes, std::uint64_t size, std::uint32_t n, Op op, ChunkOutcome* outcome) {
  std::uint32_t entries = 0;
  std::uint64_t seed = 0;
  bool fine = size >= kHeaderBytes;
  if (fine) {
    const auto header = load_pack<Pack<std::uint64_t, 2>>(reinterpret_cast<const std::uint64_t*>(bytes));
    entries = static_cast<std::uint32_t>(header.v[0] >> 32);
    seed = header.v[1];
    fine = static_cast<std::uint32_t>(header.v[0]) == kVersion && entries <= n && (entries > 0 || n == 0) &&
           size == kHeaderBytes + 4 * static_cast<std::uint64_t>(entries);
  }
  if (!fine) {
    if (thread_in_grid() == 0 && outcome != nullptr) outcome->malformed = ChunkOutcome::kMalformed;
    return;
  }
  const auto* const values = reinterpret_cast<const float*>(bytes + kHeaderBytes);
  for_each_drawn(seed, entries, n, [&](std::uint32_t entry, const ops::Stratum&, std::uint32_t index) {
    op.entry(index, load_pack<Pack<float, 1>>(values + entry).v[0]);
  });
}

struct DrawnForm {
  static constexpr std::uint32_t kHeaderBytes = FLUVIAL_GPU::kHeaderBytes;
  template <typename Op>
  static Status walk(DeviceSpan<const std::byte> bytes, std::size_t n, const Op& op, ChunkOutcome* outcome,
                     Stream& stream) {
    return launch(walk_drawn<Op>, blocks_for_entries(bytes.size() / sizeof(float), stream), kThreads, stream,
                  bytes.data(), bytes.size(), n, op, outcome);
  }
};

// The residual holds the chunk already, unless values stand for their strata: then there is none.
__global__ void __launch_bounds__(kThreads)
    encode_drawn(EncodeJob job, std::uint32_t entries, std::uint64_t seed, bool unbiased) {
  if (thread_in_grid() == 0) {
    const std::uint64_t begin = kVersion | static_cast<std::uint64_t>(entries) << 32;
    store_pack(reinterpret_cast<std::uint64_t*>(job.out), Pack<std::uint64_t, 2>{{begin, seed}});
    job.outcome->bytes = kHeaderBytes + 4 * static_cast<std::uint64_t>(entries);
  }
  auto* const values = reinterpret_cast<float*>(job.out + kHeaderBytes);
  const auto n = static_cast<std::uint32_t>(job.n);
  for_each_drawn(seed, entries, n, [&](std::uint32_t entry, const ops::Stratum& stratum, std::uint32_t index) {
    const float value = job.x[index];
    if (ops::magnitude_bits(value) >= ops::kInfinityBits) report_not_finite(job, index);
    store_pack(values + entry, Pack<float, 1>{{unbiased ? ops::stratum_value(value, stratum.size) : value}});
    if (job.residual != nullptr) job.residual[index] = value - value;
  });
}

class GpuRandkCodec final : public EntryCodec<DrawnForm> {
 public:
  using EntryCodec::EntryCodec;

  std::size_t encoded_bytes_max(std::size_t value_count) const override {
    return kHeaderBytes + entries_of(value_count) * sizeof(float);
  }
  std::size_t workspace_bytes(const VectorSchema&) const override { return 0; }

  Result<DevicePlan> prepare(const VectorSchema& schema, DeviceSpan<const float> vector, const StreamKey& key,
                             DeviceSpan<std::byte>, DeviceSpan<std::byte> workspace, Stream&) const override {
    return DevicePlan{.layout = schema.layout, .key = key, .values = vector, .workspace = workspace, .host = {}};
  }

 protected:
  Status encode(const DevicePlan& plan, std::size_t chunk_index, DeviceSpan<const float> chunk,
                DeviceSpan<std::byte> out, DeviceSpan<float> residual, ChunkOutcome* outcome,
                Stream& stream) const override {
    const std::uint64_t first_value = plan.layout.first_value(chunk_index);
    const bool keeps_rest = !residual.empty() && !spec().unbiased;
    if (keeps_rest && residual.data() != chunk.data()) {
      FLUVIAL_TRY(stream.backend().copy(residual.data(), chunk.data(), chunk.size_bytes(), stream.get()));
    }
    const EncodeJob job{.x = chunk.data(),
                        .n = chunk.size(),
                        .first_value = first_value,
                        .out = out.data(),
                        .residual = keeps_rest ? residual.data() : nullptr,
                        .outcome = outcome};
    const std::uint64_t entries = entries_of(chunk.size());
    FLUVIAL_TRY(launch(encode_drawn, blocks_for_entries(entries, stream), kThreads, stream, job, entries,
                       ops::strata_seed(plan.key.run, plan.key.round, first_value), spec().unbiased));
    if (residual.empty() || keeps_rest) return {};
    return stream.backend().zero(residual.data(), residual.size_bytes(), stream.get());
  }
  Status residual(DeviceSpan<const float> values, DeviceSpan<const std::byte> bytes, DeviceSpan<float> out,
                  Stream& stream) const override {
    if (!spec().unbiased) return EntryCodec::residual(values, bytes, out, stream);
    return stream.backend().zero(out.data(), out.size_bytes(), stream.get());
  }

 private:
  std::uint64_t entries_of(std::uint64_t value_count) const {
    return value_count == 0 ? 0 : entries_wanted(spec().ratio, value_count);
  }
};

}  // namespace

MadeCodec make_randk_codec(const CodecSpec& spec) {
  return std::unique_ptr<DeviceCodec>(std::make_unique<GpuRandkCodec>(spec));
}

}  // namespace fluvial::kernels::FLUVIAL_GPU
