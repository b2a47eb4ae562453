// qsgd in both forms: elias.h reads the Elias-gamma one, here it is written.
#include "kernels/cuda/elias.h"

namespace fluvial::kernels::FLUVIAL_GPU {
namespace {

constexpr unsigned kScanThreads = 1024;

enum class Form : std::uint32_t { kPacked, kElias, kNone };

// In the workspace, of one chunk at a time.
struct EliasMemory {
  Form* form;
  std::uint32_t* bits;    // that a block's codes take
  std::uint32_t* starts;  // bytes before a block's
  std::int8_t* codes;

  static constexpr std::size_t kHeadBytes = 16;
  static std::size_t bytes(std::uint64_t values, std::uint64_t blocks) { return kHeadBytes + 8 * blocks + values; }
  static EliasMemory of(DeviceSpan<std::byte> workspace, std::uint64_t blocks) {
    auto* const bits = reinterpret_cast<std::uint32_t*>(workspace.data() + kHeadBytes);
    return {.form = reinterpret_cast<Form*>(workspace.data()),
            .bits = bits,
            .starts = bits + blocks,
            .codes = reinterpret_cast<std::int8_t*>(bits + 2 * blocks)};
  }
};

// The form for encode_blocks(): steps go to their places, codes and their lengths in bits to the workspace.
struct EliasFormat {
  QsgdFormat packed;
  Blocks blocks;
  EliasMemory memory;

  __device__ bool is_random() const { return true; }
  __device__ void put_header(std::byte*, std::uint64_t) const {}  // lay_out() does
  __device__ bool has_sum() const { return true; }
  __device__ double term(float value) const { return packed.term(value); }
  __device__ QsgdCoder coder(double sum, std::uint32_t length, std::uint32_t max_bits) const {
    return packed.coder(sum, length, max_bits);
  }
  __device__ void put_scale(std::byte* out, std::uint64_t block, const QsgdCoder& coder) const {
    packed.put_scale(out, block, coder);
  }
  __device__ void put_codes(std::byte*, std::uint64_t, std::uint64_t block, std::uint32_t offset, std::uint32_t length,
                            const Eight<std::int32_t>& codes) const {
    std::int8_t* const to = memory.codes + block * blocks.values + offset;
    std::uint32_t bits = 0;
    FLUVIAL_UNROLL
    for (int i = 0; i < 8; ++i) {
      if (offset + offset_of(i) >= length) continue;
      to[offset_of(i)] = static_cast<std::int8_t>(codes.v[i]);
      bits += ops::elias_word(codes.v[i]).length;
    }
    const std::uint32_t before = warp_sum_before(bits);
    if (lane_id() == kWarp - 1) memory.bits[block] = before + bits + (offset == 0 ? 0 : memory.bits[block]);
  }
};

struct EliasJob {
  QsgdFormat packed;
  EliasMemory memory;
  std::uint64_t n;
  std::byte* out;
  ChunkOutcome* outcome;

  __host__ __device__ BlockLayout<QsgdFormat> layout() const { return {packed, n}; }
  __device__ std::uint32_t stream_bytes(std::uint64_t block) const { return (memory.bits[block] + 7) / 8; }
};

// One block: where each block's codes begin, and whether the form is worth it.
__global__ void __launch_bounds__(kScanThreads) lay_out(EliasJob job) {
  // A block with a value that cannot be encoded has left no codes, nor how many bits they take.
  if (job.outcome->not_finite_at != ChunkOutcome::kNone) {
    if (threadIdx.x == 0) *job.memory.form = Form::kNone;
    return;
  }
  __shared__ std::uint32_t shared[kWarp + 1];
  const auto blocks = static_cast<std::uint32_t>(job.layout().count());
  const std::uint32_t each = (blocks + kScanThreads - 1) / kScanThreads;
  const std::uint32_t begin = threadIdx.x * each < blocks ? threadIdx.x * each : blocks;
  const std::uint32_t end = begin + each < blocks ? begin + each : blocks;
  std::uint32_t sum = 0;
  for (std::uint32_t block = begin; block < end; ++block) sum += job.stream_bytes(block);
  std::uint32_t total = 0;
  std::uint32_t before = block_sum_before(sum, shared, &total);
  for (std::uint32_t block = begin; block < end; ++block) {
    job.memory.starts[block] = before;
    before += job.stream_bytes(block);
  }
  if (threadIdx.x != 0) return;
  const std::uint64_t elias_bytes = EliasSource::streams_begin(blocks) + total;
  const std::uint64_t packed_bytes = job.layout().bytes();
  const bool is_shorter = elias_bytes < packed_bytes;
  job.packed.put_header(job.out, job.n, is_shorter ? QsgdFormat::kElias : QsgdFormat::kPacked);
  job.outcome->bytes = is_shorter ? elias_bytes : packed_bytes;
  *job.memory.form = is_shorter ? Form::kElias : Form::kPacked;
}

// A warp's work: bits of 256 codes at a time into shared memory, from there as bytes.
__device__ inline void put_stream(const EliasJob& job, std::uint64_t block) {
  constexpr std::uint32_t kWords = kBlockMost * 16 / 32;  // no code takes more than 16 bits
  __shared__ std::uint32_t streams[kBlockThreads / kWarp][kWords];
  std::uint32_t* const words = streams[warp_id()];
  const std::uint32_t size = job.stream_bytes(block);
  const std::uint32_t length = job.layout().length(block);
  const std::int8_t* const codes = job.memory.codes + block * job.packed.blocks.values;
  for (std::uint32_t i = lane_id(); 4 * i < size; i += kWarp) words[i] = 0;
  __syncwarp();
  std::uint32_t bits = 0;
  for (std::uint32_t offset = 0; offset < length; offset += kStepValues) {
    ops::EliasWord own[8] = {};
    std::uint32_t sum = 0;
    FLUVIAL_UNROLL
    for (std::uint32_t i = 0; i < 8; ++i) {
      const std::uint32_t at = offset + 8 * lane_id() + i;
      if (at < length) own[i] = ops::elias_word(codes[at]);
      sum += own[i].length;
    }
    std::uint32_t at = bits + warp_sum_before(sum);
    bits = __shfl_sync(kFullMask, at + sum, kWarp - 1);
    FLUVIAL_UNROLL
    for (int i = 0; i < 8; ++i) {
      set_bits(words, at, own[i].bits);
      at += own[i].length;
    }
  }
  __syncwarp();
  const std::uint64_t blocks = job.layout().count();
  std::byte* const to = job.out + EliasSource::streams_begin(blocks) + job.memory.starts[block];
  for (std::uint32_t i = lane_id(); i < size; i += kWarp) to[i] = static_cast<std::byte>(words[i / 4] >> (8 * (i % 4)));
  if (lane_id() == 0) {
    auto* const lengths = reinterpret_cast<std::uint16_t*>(job.out + kEliasHeader + 4 * blocks);
    store_pack(lengths + block, Pack<std::uint16_t, 1>{{static_cast<std::uint16_t>(size)}});
  }
  __syncwarp();
}

__device__ inline void put_packed(const EliasJob& job, std::uint64_t block) {
  const std::uint32_t length = job.layout().length(block);
  const std::int8_t* const from = job.memory.codes + block * job.packed.blocks.values;
  for (std::uint32_t offset = 0; offset < length; offset += kStepValues) {
    Eight<std::int32_t> codes;
    FLUVIAL_UNROLL
    for (int i = 0; i < 8; ++i) {
      const std::uint32_t at = offset + offset_of(i);
      codes.v[i] = at < length ? from[at] : 0;
    }
    job.packed.put_codes(job.out, job.n, block, offset, length, codes);
  }
}

__global__ void __launch_bounds__(kBlockThreads) put_blocks(EliasJob job) {
  const Form form = *job.memory.form;
  if (form == Form::kNone) return;
  for (std::uint64_t block = thread_in_grid() / kWarp; block < job.layout().count();
       block += threads_in_grid() / kWarp) {
    if (form == Form::kElias) {
      put_stream(job, block);
    } else {
      put_packed(job, block);
    }
  }
}

// An Elias-gamma chunk is shorter than a packed one, so the length says which it must be.
class GpuQsgdCodec final : public GpuDenseCodec<QsgdFormat> {
 public:
  using GpuDenseCodec::GpuDenseCodec;

  std::size_t workspace_bytes(const VectorSchema& schema) const override {
    if (!spec().elias) return 0;
    const std::uint64_t values = std::min(schema.layout.chunk_values, schema.layout.value_count);
    return EliasMemory::bytes(values, format().blocks.count(values));
  }
  Result<DevicePlan> prepare(const VectorSchema& schema, DeviceSpan<const float> vector, const StreamKey& key,
                             DeviceSpan<std::byte> state, DeviceSpan<std::byte> workspace,
                             Stream& stream) const override {
    if (workspace.size() < workspace_bytes(schema) || reinterpret_cast<std::uintptr_t>(workspace.data()) % 4 != 0) {
      return Error{Code::kInvalidArgument, "a workspace of " + std::to_string(workspace.size()) + " bytes, expected " +
                                               std::to_string(workspace_bytes(schema)) + ", aligned to 4"};
    }
    return GpuDenseCodec::prepare(schema, vector, key, state, workspace, stream);
  }
  Status decode_chunk(DeviceSpan<const std::byte> bytes, DeviceSpan<float> out, Stream& stream) const override {
    if (!is_elias(bytes, out.size())) return GpuDenseCodec::decode_chunk(bytes, out, stream);
    return each(DecodeOp<EliasSource>{source(bytes, out.size()), out.data()}, out.size(), fits_four(out.data()),
                stream);
  }
  Status decode_add_chunk(DeviceSpan<const std::byte> bytes, float weight, DeviceSpan<float> sum,
                          Stream& stream) const override {
    if (!is_elias(bytes, sum.size())) return GpuDenseCodec::decode_add_chunk(bytes, weight, sum, stream);
    return each(AddOp<EliasSource>{source(bytes, sum.size()), weight, sum.data()}, sum.size(), fits_four(sum.data()),
                stream);
  }

 protected:
  Status encode(const DevicePlan& plan, std::size_t chunk_index, DeviceSpan<const float> chunk,
                DeviceSpan<std::byte> out, DeviceSpan<float> residual, ChunkOutcome* outcome,
                Stream& stream) const override {
    if (!spec().elias) return GpuDenseCodec::encode(plan, chunk_index, chunk, out, residual, outcome, stream);
    const std::uint64_t blocks = format().blocks.count(chunk.size());
    const EliasJob job{.packed = format(),
                       .memory = EliasMemory::of(plan.workspace, blocks),
                       .n = chunk.size(),
                       .out = out.data(),
                       .outcome = outcome};
    FLUVIAL_TRY(launch_encode_blocks(EliasFormat{format(), format().blocks, job.memory},
                                     job_of(plan, chunk_index, chunk, out, residual, outcome), plan.key, stream));
    FLUVIAL_TRY(launch(lay_out, 1U, kScanThreads, stream, job));
    constexpr std::uint64_t kWarps = kBlockThreads / kWarp;
    return launch(put_blocks, blocks_for((blocks + kWarps - 1) / kWarps, stream), kBlockThreads, stream, job);
  }
  Status screen(DeviceSpan<const std::byte> bytes, std::size_t value_count, std::uint64_t first_value,
                DeviceSpan<std::byte> workspace, ChunkOutcome* outcome, Stream& stream) const override {
    if (!is_elias(bytes, value_count)) {
      return GpuDenseCodec::screen(bytes, value_count, first_value, workspace, outcome, stream);
    }
    return launch_screen(source(bytes, value_count), value_count, first_value, by_four(), workspace, outcome, stream);
  }
  Status accumulate(DeviceSpan<const std::byte> bytes, std::uint32_t weight, int scale_bits,
                    DeviceSpan<std::int64_t> sum, DeviceSpan<std::byte> workspace, ChunkOutcome* outcome,
                    Stream& stream) const override {
    if (!is_elias(bytes, sum.size())) {
      return GpuDenseCodec::accumulate(bytes, weight, scale_bits, sum, workspace, outcome, stream);
    }
    const double factor = std::ldexp(static_cast<double>(weight), scale_bits);
    FLUVIAL_ASSIGN(const std::uint32_t* const may_add, launch_verdict(factor, workspace, outcome, stream));
    return each(AccumulateOp<EliasSource>{source(bytes, sum.size()), factor, sum.data(), may_add}, sum.size(),
                fits_four(sum.data()), stream);
  }
  Status residual(DeviceSpan<const float> values, DeviceSpan<const std::byte> bytes, DeviceSpan<float> out,
                  Stream& stream) const override {
    if (!is_elias(bytes, out.size())) return GpuDenseCodec::residual(values, bytes, out, stream);
    return each(ResidualOp<EliasSource>{source(bytes, out.size()), values.data(), out.data()}, out.size(),
                fits_four(values.data()) && fits_four(out.data()), stream);
  }

 private:
  bool by_four() const { return format().blocks.values % 4 == 0; }
  bool is_elias(DeviceSpan<const std::byte> bytes, std::size_t n) const {
    return n > 0 && bytes.size() < format().bytes(n) &&
           bytes.size() >= EliasSource::streams_begin(format().blocks.count(n));
  }
  EliasSource source(DeviceSpan<const std::byte> bytes, std::size_t n) const {
    return {bytes.data(), bytes.size(), {format(), n}};
  }
  template <typename Op>
  Status each(const Op& op, std::size_t n, bool others_by_four, Stream& stream) const {
    return launch_each_of_tiles(op, n, others_by_four && by_four(), stream);
  }
};

std::uint32_t bits_of(std::uint32_t value) {
  std::uint32_t bits = 0;
  for (; value != 0; value >>= 1) ++bits;
  return bits;
}

}  // namespace

MadeCodec make_qsgd_codec(const CodecSpec& spec) {
  const QsgdFormat format{Blocks::of(spec.block_values), static_cast<std::int32_t>(spec.levels),
                          bits_of(spec.levels) + 1};
  return std::unique_ptr<DeviceCodec>(std::make_unique<GpuQsgdCodec>(spec, format));
}

}  // namespace fluvial::kernels::FLUVIAL_GPU
