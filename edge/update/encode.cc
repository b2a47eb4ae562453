#include "edge/update/encode.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/digest/sha256.h"
#include "core/round/integers.h"
#include "core/round/probe.h"
#include "edge/update/gpu_route.h"
#include "edge/update/part_values.h"
#include "edge/update/update.h"
#include "kernels/codec.h"

namespace fluvial::edge {
namespace {

Result<std::unique_ptr<kernels::Codec>> codec_of(const UpdateJob& job) {
  FLUVIAL_ASSIGN(const kernels::CodecSpec spec, kernels::parse_codec(job.plan.codec));
  FLUVIAL_ASSIGN(std::unique_ptr<kernels::Codec> codec, kernels::make_codec(spec));
  if (codec->passes() != 1 || codec->state_bytes({job.layout(), {}}) != 0) {
    return Error{Code::kFailedPrecondition,
                 "codec " + job.plan.codec + " has passes or a state of its own, which sites do not keep"};
  }
  return codec;
}

// Compressed they are not what the store reads p from.
bool chunks_are_p(const kernels::Codec& codec) { return codec.lossless() && codec.spec().zstd_level == 0; }

kernels::StreamKey key_of(const UpdateJob& job) { return {job.run.value(), job.round.value(), job.site.value()}; }

store::PendingStart start_of(const UpdateJob& job, bool lossless) {
  const kernels::ChunkLayout layout = job.layout();
  store::PendingStart start;
  start.run = job.run;
  start.round = job.round;
  start.weight = job.weight;
  start.codec = job.plan.codec;
  start.base = job.base_digest;
  start.metrics = job.metrics;
  start.workers = job.workers;
  start.value_count = layout.value_count;
  start.chunk_count = layout.chunk_count();
  start.integer_count = job.schema.integer_count();
  start.lossless = lossless;
  start.chunk_values = layout.chunk_values;
  return start;
}

// As a parent does it.
Status check_integers(const UpdateJob& job, const std::vector<std::int64_t>& integers) {
  if (integers.empty()) return {};
  std::vector<std::int64_t> base(integers.size());
  round::read_integers(job.schema, job.base, base);
  return round::check_integers(job.schema, base, integers);
}

// The digest of a submission: over the chunks' bytes in order, then the integers', 8 bytes each, little-endian, then the
// probe's.
Result<store::PendingUpdate> finish(store::PendingWriter& writer, Sha256& hash,
                                    const std::vector<std::int64_t>& integers) {
  Buffer trailer(integers.size() * sizeof(std::int64_t) + round::kProbeBytes);
  for (std::size_t i = 0; i < integers.size(); ++i) {
    store_le(trailer.data() + i * sizeof(std::int64_t), static_cast<std::uint64_t>(integers[i]));
  }
  std::ranges::copy(round::probe_bytes(), trailer.data() + integers.size() * sizeof(std::int64_t));
  hash.update(trailer.span());
  FLUVIAL_TRY(writer.write_trailer(trailer.span()));
  return writer.finish(hash.finish());
}

// Chunks are encoded side by side, a few at a time; while one batch is written and hashed, in order, the next is
// encoded.
class Encoder {
 public:
  static Result<std::unique_ptr<Encoder>> make(const UpdateJob& job, std::unique_ptr<kernels::Codec> codec,
                                               Update& update, Parallel& parallel) {
    const kernels::VectorSchema schema{job.layout(), {}};
    Buffer workspace(codec->workspace_bytes(schema));
    const kernels::StreamKey key = key_of(job);
    kernels::PassInput input;
    if (parallel.width() > 1) {
      FLUVIAL_TRY(codec->survey(schema, update.values(), key, workspace.span()));
      FLUVIAL_TRY(parallel.for_each(schema.layout.chunk_count(), [&](std::size_t i) {
        return codec->survey_chunk(schema, key, i, schema.layout.of(update.values(), i), workspace.span());
      }));
      input.surveyed = true;
    }
    FLUVIAL_ASSIGN(const kernels::EncodePlan plan,
                   codec->prepare(schema, update.values(), key, input, {}, workspace.span()));
    return std::unique_ptr<Encoder>(new Encoder(std::move(codec), std::move(workspace), plan, update));
  }

  Status run(store::PendingWriter& writer, Parallel& parallel) {
    const std::size_t count = plan_.layout.chunk_count();
    const std::size_t batch = std::min(parallel.width(), count);
    reserve(batch);
    std::size_t written = 0;
    for (std::size_t encoded = 0; written < count;) {
      const std::size_t to_write = encoded - written;
      const std::size_t to_encode = std::min(batch, count - encoded);
      const std::size_t writing = to_write > 0 ? 1 : 0;
      FLUVIAL_TRY(parallel.for_each(writing + to_encode, [&](std::size_t piece) -> Status {
        if (piece < writing) return write(writer, written, to_write);
        return encode(encoded + (piece - writing));
      }));
      written = encoded;
      encoded += to_encode;
    }
    return {};
  }
  Result<store::PendingUpdate> finish(store::PendingWriter& writer) {
    return edge::finish(writer, hash_, update_.integers);
  }

 private:
  struct Slot {
    Buffer bytes;
    std::size_t size = 0;
  };
  Encoder(std::unique_ptr<kernels::Codec> codec, Buffer workspace, const kernels::EncodePlan& plan, Update& update)
      : codec_(std::move(codec)), workspace_(std::move(workspace)), plan_(plan), update_(update) {}

  void reserve(std::size_t batch) {
    const auto values = static_cast<std::size_t>(std::min(plan_.layout.chunk_values, plan_.layout.value_count));
    slots_.clear();
    for (std::size_t i = 0; i < 2 * batch; ++i) slots_.push_back({Buffer(codec_->encoded_bytes_max(values)), 0});
  }
  // A batch is a whole number of slots from the first or from the middle one: it never meets the one before it.
  Slot& slot(std::size_t chunk) { return slots_[chunk % slots_.size()]; }
  std::span<const float> values(std::size_t chunk) const { return plan_.layout.of(update_.values(), chunk); }

  Status encode(std::size_t chunk) {
    Slot& into = slot(chunk);
    FLUVIAL_ASSIGN(into.size, codec_->encode_chunk(plan_, chunk, values(chunk), into.bytes.span()));
    return {};
  }
  Status write(store::PendingWriter& writer, std::size_t first, std::size_t count) {
    for (std::size_t chunk = first; chunk < first + count; ++chunk) {
      const ByteSpan bytes = slot(chunk).bytes.span().first(slot(chunk).size);
      FLUVIAL_TRY(writer.write_p(plan_.layout.first_value(chunk), values(chunk)));
      FLUVIAL_TRY(writer.write_chunk(chunk, bytes));
      hash_.update(bytes);
    }
    return {};
  }

  std::unique_ptr<kernels::Codec> codec_;
  Buffer workspace_;  // which the plan may point into
  kernels::EncodePlan plan_;
  Update& update_;
  std::vector<Slot> slots_;
  Sha256 hash_;
};

Result<store::PendingUpdate> encode_on_gpu(const UpdateJob& job, GpuUpdate& gpu, bool lossless, store::SiteStore& store,
                                           Parallel& parallel) {
  const kernels::ChunkLayout layout = job.layout();
  FLUVIAL_ASSIGN(const std::vector<PartValues> parts, values_of(job.schema, job.parts));
  const std::vector<std::int64_t> integers = joined_integers(parts);
  FLUVIAL_TRY(check_integers(job, integers));
  FLUVIAL_ASSIGN(const std::unique_ptr<store::PendingWriter> writer, store.begin_pending(start_of(job, lossless)));
  FLUVIAL_TRY(make_p(gpu, job, store, parallel, [&](std::size_t chunk, std::span<const float> p) {
    return writer->write_p(layout.first_value(chunk), p);
  }));
  Sha256 hash;
  FLUVIAL_TRY(gpu.encode(key_of(job), [&](std::size_t chunk, ByteSpan bytes) {
    return parallel.for_each(2, [&](std::size_t piece) -> Status {
      if (piece == 0) return writer->write_chunk(chunk, bytes);
      hash.update(bytes);
      return {};
    });
  }));
  return finish(*writer, hash, integers);
}

}  // namespace

Result<store::PendingUpdate> encode_update(const UpdateJob& job, store::SiteStore& store, Parallel& parallel) {
  FLUVIAL_ASSIGN(std::unique_ptr<kernels::Codec> codec, codec_of(job));
  const bool lossless = chunks_are_p(*codec);
  FLUVIAL_ASSIGN(const std::unique_ptr<GpuUpdate> gpu, gpu_update_of(job));
  if (gpu) {
    FLUVIAL_ASSIGN(const bool takes, gpu->takes(codec->spec()));
    if (takes) return encode_on_gpu(job, *gpu, lossless, store, parallel);
  }
  FLUVIAL_ASSIGN(Update update, make_update(job, gpu.get(), store, parallel));
  FLUVIAL_TRY(check_integers(job, update.integers));
  FLUVIAL_ASSIGN(const std::unique_ptr<Encoder> encoder, Encoder::make(job, std::move(codec), update, parallel));
  FLUVIAL_ASSIGN(const std::unique_ptr<store::PendingWriter> writer, store.begin_pending(start_of(job, lossless)));
  FLUVIAL_TRY(encoder->run(*writer, parallel));
  return encoder->finish(*writer);
}

Result<store::ResidualInfo> fold_update(const UpdateJob& job, store::SiteStore& store, Parallel& parallel) {
  FLUVIAL_ASSIGN(const std::unique_ptr<GpuUpdate> gpu, gpu_update_of(job));
  FLUVIAL_ASSIGN(Update update, make_update(job, gpu.get(), store, parallel));
  const kernels::ChunkLayout layout = job.layout();
  FLUVIAL_ASSIGN(std::unique_ptr<store::ResidualWriter> writer, store.begin_residual(job.run));
  for (std::size_t i = 0; i < layout.chunk_count(); ++i) {
    FLUVIAL_TRY(writer->write(layout.first_value(i), layout.of(update.values(), i)));
  }
  return store.fold(job.run, job.round, std::move(writer), job.workers);
}

}  // namespace fluvial::edge
