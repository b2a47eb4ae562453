// topk and dgc: a chunk's entries, compacted in the order of their indices, and the indices in a Golomb-Rice code.
#include <algorithm>

#include "kernels/cuda/backend.h"
#include "kernels/cuda/listed.h"
#include "kernels/cuda/select.h"
#include "kernels/cuda/squares.h"
#include "kernels/ops/dgc.h"
#include "kernels/ops/norm.h"
#include "kernels/ops/update.h"

namespace fluvial::kernels::FLUVIAL_GPU {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kScanThreads = 1024;

struct ChunkJob {
  const float* x;
  std::uint32_t n;
  std::uint32_t first_tile;
  std::uint32_t end_tile;
  Tiling tiling;
  SelectMemory memory;
  std::byte* out;
  float* residual;  // or null
  ChunkOutcome* outcome;

  __device__ std::uint32_t entries() const { return memory.tiles[end_tile].above - memory.tiles[first_tile].above; }
};

// Which of a thread's 16 values are sent: of four in a row from 4 (thread + 256 j) on, bits 4 j to 4 j + 3.
struct Flags {
  std::uint32_t sent;
  std::uint32_t ties;
};

__device__ inline Flags flags_of(const float (&values)[16], std::uint32_t length, std::uint32_t threshold) {
  Flags flags{0, 0};
  FLUVIAL_UNROLL
  for (std::uint32_t i = 0; i < 16; ++i) {
    const std::uint32_t at = 4 * (threadIdx.x + i / 4 * kThreads) + i % 4;
    const std::uint32_t bits = ops::magnitude_bits(values[i]);
    if (at < length && bits > threshold) flags.sent |= 1U << i;
    if (at < length && bits == threshold) flags.ties |= 1U << i;
  }
  return flags;
}

// The four counts of a thread's groups of four, 16 bits each (a block has up to 1,024 in a group), before this thread
// and in all.
struct GroupCounts {
  std::uint64_t before;
  std::uint64_t total;
};

__device__ inline GroupCounts count_groups(std::uint32_t flags, std::uint64_t* shared) {
  std::uint64_t counts = 0;
  FLUVIAL_UNROLL
  for (int j = 0; j < 4; ++j) counts |= static_cast<std::uint64_t>(__popc(flags >> (4 * j) & 15U)) << (16 * j);
  std::uint64_t sum = counts;
  for (unsigned step = 1; step < kWarp; step *= 2) {
    const std::uint64_t other = __shfl_up_sync(kFullMask, sum, step);
    if (lane_id() >= step) sum += other;
  }
  if (lane_id() == kWarp - 1) shared[warp_id()] = sum;
  __syncthreads();
  GroupCounts result{sum - counts, 0};
  for (unsigned warp = 0; warp < kThreads / kWarp; ++warp) {
    if (warp < warp_id()) result.before += shared[warp];
    result.total += shared[warp];
  }
  __syncthreads();
  return result;
}

// For group j: the count in the tile before this thread's values of the group.
__device__ inline std::uint32_t before_group(const GroupCounts& counts, int j) {
  std::uint32_t before = static_cast<std::uint32_t>(counts.before >> (16 * j) & 0xffffU);
  for (int i = 0; i < j; ++i) before += static_cast<std::uint32_t>(counts.total >> (16 * i) & 0xffffU);
  return before;
}

// The ties that are sent: the first `wanted` of the vector, of which `before` were in earlier tiles.
__device__ inline std::uint32_t ties_sent(std::uint32_t ties, std::uint32_t before, std::uint32_t wanted,
                                          std::uint64_t* shared) {
  if (before >= wanted) return 0;  // the same for the whole block
  if (wanted - before >= kSelectTile) return ties;
  const GroupCounts counts = count_groups(ties, shared);
  std::uint32_t sent = 0;
  for (int j = 0; j < 4; ++j) {
    std::uint32_t rank = before + before_group(counts, j);
    for (int i = 4 * j; i < 4 * j + 4; ++i) {
      if ((ties >> i & 1U) == 0) continue;
      if (rank++ < wanted) sent |= 1U << i;
    }
  }
  return sent;
}

// Values to the chunk, indices to the workspace, zeros to where the coded indices go.
__global__ void __launch_bounds__(kThreads) put_entries(ChunkJob job, bool by_four) {
  __shared__ std::uint64_t shared[kThreads / kWarp];
  const Selected selected = *job.memory.selected;
  const std::uint32_t entries = job.entries();
  const std::uint32_t first_entry = job.memory.tiles[job.first_tile].above;
  auto* const sent_values = reinterpret_cast<float*>(job.out + kListedHeaderBytes);
  auto* const words = reinterpret_cast<std::uint32_t*>(sent_values + entries);
  const std::uint64_t word_count = (index_bytes_max(entries, job.n, rice_bits(entries, job.n)) + 3) / 4;
  for (std::uint64_t i = thread_in_grid(); i < word_count; i += threads_in_grid()) words[i] = 0;
  for (std::uint32_t tile = job.first_tile + blockIdx.x; tile < job.end_tile; tile += gridDim.x) {
    const std::uint32_t length = job.tiling.length(tile);
    const std::uint32_t begin = (tile - job.first_tile) * kSelectTile;
    float values[16] = {};
    FLUVIAL_UNROLL
    for (std::uint32_t j = 0; j < 4; ++j) {
      const std::uint32_t at = 4 * (threadIdx.x + j * kThreads);
      if (by_four && at + 4 <= length) {
        const auto pack = load_pack<Pack<float, 4>>(job.x + begin + at);
        for (std::uint32_t i = 0; i < 4; ++i) values[4 * j + i] = pack.v[i];
      } else {
        for (std::uint32_t i = 0; i < 4; ++i) {
          if (at + i < length) values[4 * j + i] = job.x[begin + at + i];
        }
      }
    }
    Flags flags = flags_of(values, length, selected.bits);
    flags.sent |= ties_sent(flags.ties, job.memory.tiles[tile].equal, selected.wanted, shared);
    const GroupCounts counts = count_groups(flags.sent, shared);
    FLUVIAL_UNROLL
    for (int j = 0; j < 4; ++j) {
      std::uint32_t rank = job.memory.tiles[tile].above - first_entry + before_group(counts, j);
      const std::uint32_t at = 4 * (threadIdx.x + static_cast<std::uint32_t>(j) * kThreads);
      FLUVIAL_UNROLL
      for (int i = 0; i < 4; ++i) {
        float& value = values[4 * j + i];
        if ((flags.sent >> (4 * j + i) & 1U) != 0) {
          sent_values[rank] = value;
          job.memory.indices[rank++] = begin + at + static_cast<std::uint32_t>(i);
          value = 0;
        }
        if (job.residual != nullptr && !by_four && at + static_cast<std::uint32_t>(i) < length) {
          job.residual[begin + at + static_cast<std::uint32_t>(i)] = value;
        }
      }
      if (job.residual == nullptr || !by_four) continue;
      if (at + 4 <= length) {
        store_pack(job.residual + begin + at,
                   Pack<float, 4>{{values[4 * j], values[4 * j + 1], values[4 * j + 2], values[4 * j + 3]}});
      } else {
        for (std::uint32_t i = 0; i < 4 && at + i < length; ++i)
          job.residual[begin + at + i] = values[4 * j + static_cast<int>(i)];
      }
    }
  }
}

__device__ inline std::uint32_t gap_before(const std::uint32_t* indices, std::uint32_t entry) {
  return entry == 0 ? indices[0] : indices[entry] - indices[entry - 1] - 1;
}

// Of four entries of a thread, from 4 (thread of the tile) on.
__device__ inline std::uint32_t quotients_of(const ChunkJob& job, std::uint32_t first, std::uint32_t entries,
                                             unsigned bits) {
  std::uint32_t sum = 0;
  for (std::uint32_t entry = first; entry < first + 4 && entry < entries; ++entry) {
    sum += gap_before(job.memory.indices, entry) >> bits;
  }
  return sum;
}

__global__ void __launch_bounds__(kThreads) sum_gaps(ChunkJob job) {
  __shared__ std::uint32_t shared[kWarp + 1];
  const std::uint32_t entries = job.entries();
  const unsigned bits = rice_bits(entries, job.n);
  for (std::uint32_t tile = blockIdx.x; tile * kGapTile < entries; tile += gridDim.x) {
    std::uint32_t total = 0;
    block_sum_before(quotients_of(job, tile * kGapTile + 4 * threadIdx.x, entries, bits), shared, &total);
    if (threadIdx.x == 0) job.memory.gap_sums[tile] = total;
    __syncthreads();
  }
}

// One block: sums of tiles to sums before them; the header and the outcome.
__global__ void __launch_bounds__(kScanThreads) scan_gaps(ChunkJob job) {
  __shared__ std::uint32_t shared[kWarp + 1];
  const std::uint32_t entries = job.entries();
  const unsigned bits = rice_bits(entries, job.n);
  const std::uint32_t tiles = (entries + kGapTile - 1) / kGapTile;
  const std::uint32_t each = (tiles + kScanThreads - 1) / kScanThreads;
  const std::uint32_t begin = threadIdx.x * each < tiles ? threadIdx.x * each : tiles;
  const std::uint32_t end = begin + each < tiles ? begin + each : tiles;
  std::uint32_t sum = 0;
  for (std::uint32_t tile = begin; tile < end; ++tile) sum += job.memory.gap_sums[tile];
  std::uint32_t total = 0;
  std::uint32_t before = block_sum_before(sum, shared, &total);
  for (std::uint32_t tile = begin; tile < end; ++tile) {
    const std::uint32_t here = job.memory.gap_sums[tile];
    job.memory.gap_sums[tile] = before;
    before += here;
  }
  if (threadIdx.x != 0) return;
  const std::uint64_t unary_bits = static_cast<std::uint64_t>(total) + entries;
  put_listed_header(job.out, entries, bits);
  job.outcome->bytes = kListedHeaderBytes + 4 * static_cast<std::uint64_t>(entries) + remainder_bytes(entries, bits) +
                       (unary_bits + 7) / 8;
  job.outcome->not_finite_at = job.memory.selected->not_finite_at;
}

__global__ void __launch_bounds__(kThreads) put_gaps(ChunkJob job) {
  __shared__ std::uint32_t shared[kWarp + 1];
  const std::uint32_t entries = job.entries();
  const unsigned bits = rice_bits(entries, job.n);
  auto* const words =
      reinterpret_cast<std::uint32_t*>(job.out + kListedHeaderBytes + 4 * static_cast<std::uint64_t>(entries));
  const std::uint64_t unary_begin = 8 * static_cast<std::uint64_t>(remainder_bytes(entries, bits));
  for (std::uint32_t tile = blockIdx.x; tile * kGapTile < entries; tile += gridDim.x) {
    const std::uint32_t first = tile * kGapTile + 4 * threadIdx.x;
    std::uint32_t total = 0;
    std::uint32_t before =
        job.memory.gap_sums[tile] + block_sum_before(quotients_of(job, first, entries, bits), shared, &total);
    for (std::uint32_t entry = first; entry < first + 4 && entry < entries; ++entry) {
      const std::uint32_t gap = gap_before(job.memory.indices, entry);
      before += gap >> bits;
      set_bits(words, static_cast<std::uint64_t>(entry) * bits, gap & ((1U << bits) - 1));
      set_bits(words, unary_begin + before + entry, 1);
    }
    __syncthreads();
  }
}

class GpuTopkCodec : public EntryCodec<ListedForm> {
 public:
  using EntryCodec::EntryCodec;

  // As the CPU's, plus the bytes by which the last word of the indices may overrun.
  std::size_t encoded_bytes_max(std::size_t value_count) const override {
    return (kListedHeaderBytes + value_count * sizeof(float) + (value_count + 7) / 8 + 1 + 3) / 4 * 4;
  }
  std::size_t workspace_bytes(const VectorSchema& schema) const override {
    return sizes_of(schema.layout, Tiling::of(schema.layout), 0).bytes();  // no round sends more than the first
  }

  Result<DevicePlan> prepare(const VectorSchema& schema, DeviceSpan<const float> vector, const StreamKey& key,
                             DeviceSpan<std::byte>, DeviceSpan<std::byte> workspace, Stream& stream) const override {
    if (vector.size() != schema.layout.value_count || vector.size() >= std::uint64_t{1} << 32) {
      return Error{Code::kInvalidArgument, "a vector of another length than the schema's, or of 2^32 values or more"};
    }
    const Tiling tiling = Tiling::of(schema.layout);
    if (workspace.size() < workspace_bytes(schema) || reinterpret_cast<std::uintptr_t>(workspace.data()) % 8 != 0) {
      return Error{Code::kInvalidArgument, "a workspace of " + std::to_string(workspace.size()) + " bytes, expected " +
                                               std::to_string(workspace_bytes(schema)) + ", aligned to 8"};
    }
    if (!vector.empty()) {
      const SelectMemory memory = memory_of(workspace, sizes_of(schema.layout, tiling, key.round));
      FLUVIAL_TRY(
          launch_select(vector, wanted(vector.size(), key.round), sample_of(vector.size()), tiling, memory, stream));
    }
    return DevicePlan{.layout = schema.layout, .key = key, .values = vector, .workspace = workspace, .host = {}};
  }

 protected:
  // The part of the values that is sent in a round.
  virtual double ratio(std::uint64_t) const { return spec().ratio; }

  Status encode(const DevicePlan& plan, std::size_t chunk_index, DeviceSpan<const float> chunk,
                DeviceSpan<std::byte> out, DeviceSpan<float> residual, ChunkOutcome* outcome,
                Stream& stream) const override {
    const Tiling tiling = Tiling::of(plan.layout);
    const SelectSizes sizes = sizes_of(plan.layout, tiling, plan.key.round);
    const auto first_tile = static_cast<std::uint32_t>(chunk_index) * tiling.tiles_in_chunk;
    const ChunkJob job{.x = chunk.data(),
                       .n = static_cast<std::uint32_t>(chunk.size()),
                       .first_tile = first_tile,
                       .end_tile = std::min(first_tile + tiling.tiles_in_chunk, tiling.tiles),
                       .tiling = tiling,
                       .memory = memory_of(plan.workspace, sizes),
                       .out = out.data(),
                       .residual = residual.empty() ? nullptr : residual.data(),
                       .outcome = outcome};
    const bool by_four = fits_four(job.x) && fits_four(job.residual);
    FLUVIAL_TRY(launch(put_entries, blocks_for(job.end_tile - job.first_tile, stream), kThreads, stream, job, by_four));
    const unsigned gap_blocks = blocks_for((sizes.entries + kGapTile - 1) / kGapTile, stream);
    FLUVIAL_TRY(launch(sum_gaps, gap_blocks, kThreads, stream, job));
    FLUVIAL_TRY(launch(scan_gaps, 1U, kScanThreads, stream, job));
    return launch(put_gaps, gap_blocks, kThreads, stream, job);
  }

 private:
  std::uint64_t wanted(std::uint64_t value_count, std::uint64_t round) const {
    return entries_wanted(ratio(round), value_count);
  }
  SamplePlan sample_of(std::uint64_t value_count) const {
    return spec().sampled ? sample_plan(value_count, entries_wanted(spec().ratio, value_count)) : SamplePlan{};
  }
  SelectSizes sizes_of(const ChunkLayout& layout, const Tiling& tiling, std::uint64_t round) const {
    const std::uint64_t in_chunk = std::min(layout.chunk_values, layout.value_count);
    const SamplePlan sample = sample_of(layout.value_count);
    const std::uint64_t most = (sample.rank > 0 ? 2 : 1) * wanted(layout.value_count, round);
    return {.tiles = tiling.tiles, .entries = std::min(most, in_chunk), .sample = sample.size};
  }
};

// u = momentum * u + clipped update; out = residual + u.
struct DgcFoldOp {
  const float* update;
  const float* residual;  // or null: all zero
  const float* factor;    // or null: not clipped
  float momentum;
  float* moment;
  float* out;

  template <int kCount>
  __device__ void run(At<kCount> at) const {
    const Pack<float, kCount> updates = at.load(update);
    Pack<float, kCount> moments = at.load(moment);
    Pack<float, kCount> outs{};
    if (residual != nullptr) outs = at.load(residual);
    const float by = factor == nullptr ? 1.0F : *factor;
    for (int i = 0; i < kCount; ++i) {
      moments.v[i] = ops::dgc_moment(momentum, moments.v[i], updates.v[i], by);
      outs.v[i] = ops::folded(outs.v[i], moments.v[i]);
    }
    at.store(moment, moments);
    at.store(out, outs);
  }
};

__global__ void __launch_bounds__(kWarp) find_clip_factor(double* lanes, double bound, float* factor) {
  if (threadIdx.x != 0) return;
  *factor = static_cast<float>(ops::clip_factor(ops::add_lanes(lanes, kSquareLanes), bound));
}

struct ClearEntry {
  float* out;
  __device__ void entry(std::uint32_t index, float) const { out[index] = 0; }
};

class GpuDgcCodec final : public GpuTopkCodec {
 public:
  using GpuTopkCodec::GpuTopkCodec;
  std::size_t state_bytes(const VectorSchema& schema) const override {
    return static_cast<std::size_t>(schema.layout.value_count) * sizeof(float);
  }

  std::size_t workspace_bytes(const VectorSchema& schema) const override {
    const auto values = static_cast<std::size_t>(schema.layout.value_count);
    return std::max(GpuTopkCodec::workspace_bytes(schema), kNormBytes + device_squares_workspace_bytes(values));
  }

 protected:
  static constexpr std::size_t kNormBytes = kSquareLanes * sizeof(double) + sizeof(double);

  double ratio(std::uint64_t round) const override { return ops::dgc_ratio(spec().ratio, spec().warmup_rounds, round); }

  // The workspace, before prepare() takes it: lanes of squares, and the factor that they give.
  Status fold_state(const VectorSchema&, DeviceSpan<const float> update, DeviceSpan<const float> residual,
                    DeviceSpan<std::byte> state, DeviceSpan<std::byte> workspace, DeviceSpan<float> out,
                    Stream& stream) const override {
    auto* const lanes = reinterpret_cast<double*>(workspace.data());
    const DeviceSpan<std::byte> pieces = workspace.subspan(kNormBytes);
    float* factor = nullptr;
    if (spec().clip > 0) {
      factor = reinterpret_cast<float*>(lanes + kSquareLanes);
      FLUVIAL_TRY(stream.backend().zero(lanes, kSquareLanes * sizeof(double), stream.get()));
      FLUVIAL_TRY(launch_squares(VectorAt{update.data()}, update.size(), {lanes, kSquareLanes}, pieces, stream));
      FLUVIAL_TRY(launch(find_clip_factor, 1U, kWarp, stream, lanes, spec().clip, factor));
    }
    const DgcFoldOp op{.update = update.data(),
                       .residual = residual.empty() ? nullptr : residual.data(),
                       .factor = factor,
                       .momentum = static_cast<float>(spec().momentum),
                       .moment = reinterpret_cast<float*>(state.data()),
                       .out = out.data()};
    const bool by_four = fits_four(op.update) && fits_four(op.residual) && fits_four(op.moment) && fits_four(op.out);
    return launch_each(op, out.size(), by_four, stream);
  }

  Status settle_state(const ChunkLayout& layout, std::size_t chunk_index, DeviceSpan<const std::byte> bytes,
                      DeviceSpan<std::byte> state, Stream& stream) const override {
    float* const moment = reinterpret_cast<float*>(state.data()) + layout.first_value(chunk_index);
    return ListedForm::walk(bytes, layout.size(chunk_index), ClearEntry{moment}, nullptr, stream);
  }
};

}  // namespace

MadeCodec make_topk_codec(const CodecSpec& spec) {
  if (spec.kind == CodecKind::kDgc) return std::unique_ptr<DeviceCodec>(std::make_unique<GpuDgcCodec>(spec));
  return std::unique_ptr<DeviceCodec>(std::make_unique<GpuTopkCodec>(spec));
}

}  // namespace fluvial::kernels::FLUVIAL_GPU
