#include "edge/update/encode.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/digest/submission_digest.h"
#include "core/round/integers.h"
#include "core/round/probe.h"
#include "edge/update/fit.h"
#include "edge/update/gpu_route.h"
#include "edge/update/part_values.h"
#include "edge/update/resolve.h"
#include "edge/update/screen.h"
#include "edge/update/update.h"
#include "kernels/codec.h"
#include "kernels/stream_key.h"
#include "kernels/vector.h"

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

// The store cannot read p from compressed chunks.
bool chunks_are_p(const kernels::Codec& codec) { return codec.lossless() && codec.spec().zstd_level == 0; }

kernels::StreamKey key_of(const UpdateJob& job) {
  return kernels::stream_key(job.plan.seed, job.round.value(), job.site_name);
}

store::PendingStart start_of(const UpdateJob& job, bool chunks_are_p, const store::Fit& fit) {
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
  start.fit = fit;
  start.bounds = bounds_of(job.plan);
  start.lossless = chunks_are_p && fit.whole();
  start.chunk_values = layout.chunk_values;
  start.digest_kind = job.digest_kind;
  return start;
}

// The check that a parent makes.
Status check_integers(const UpdateJob& job, const std::vector<std::int64_t>& integers) {
  if (integers.empty()) return {};
  std::vector<std::int64_t> base(integers.size());
  round::read_integers(job.schema, job.base, base);
  return round::check_integers(job.schema, base, integers);
}

void reach(const UpdateJob& job, UpdateJob::Step step) {
  if (job.reached) job.reached(step);
}

// The trailer: the integers, 8 bytes each, little-endian, then the probe.
Result<store::PendingUpdate> finish(const UpdateJob& job, store::PendingWriter& writer, SubmissionDigest& digest,
                                    const std::vector<std::int64_t>& integers) {
  reach(job, UpdateJob::Step::kPersist);
  Buffer trailer(integers.size() * sizeof(std::int64_t) + round::kProbeBytes);
  for (std::size_t i = 0; i < integers.size(); ++i) {
    store_le(trailer.data() + i * sizeof(std::int64_t), static_cast<std::uint64_t>(integers[i]));
  }
  std::ranges::copy(round::probe_bytes(), trailer.data() + integers.size() * sizeof(std::int64_t));
  FLUVIAL_TRY(writer.write_trailer(trailer.span()));
  return writer.finish(digest.finish(trailer.span()));
}

// Chunks are encoded side by side, a few at a time; while one batch is written and hashed, in order, the next is
// encoded.
class Encoder {
 public:
  struct Vector {
    std::span<const float> p;
    std::span<const float> sent;  // of p: p itself, or p as it is fitted
  };
  static Result<std::unique_ptr<Encoder>> make(const UpdateJob& job, const kernels::Codec& codec, Vector vector,
                                               bool measures, Parallel& parallel) {
    const kernels::VectorSchema schema{job.layout(), {}};
    Buffer workspace(codec.workspace_bytes(schema));
    const kernels::StreamKey key = key_of(job);
    kernels::PassInput input;
    if (parallel.width() > 1) {
      FLUVIAL_TRY(codec.survey(schema, vector.sent, key, workspace.span()));
      FLUVIAL_TRY(parallel.for_each(schema.layout.chunk_count(), [&](std::size_t i) {
        return codec.survey_chunk(schema, key, i, schema.layout.of(vector.sent, i), workspace.span());
      }));
      input.surveyed = true;
    }
    FLUVIAL_ASSIGN(const kernels::EncodePlan plan,
                   codec.prepare(schema, vector.sent, key, input, {}, workspace.span()));
    return std::unique_ptr<Encoder>(new Encoder(codec, std::move(workspace), plan, vector, measures, job.digest_kind));
  }

  // Null: only encodes and measures.
  Status run(store::PendingWriter* writer, Parallel& parallel) {
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
  const Measure& decoded() const { return decoded_; }  // if it measures
  SubmissionDigest& digest() { return digest_; }

 private:
  struct Slot {
    Buffer bytes;
    std::size_t size = 0;
    kernels::ScreenReport decoded;
  };
  Encoder(const kernels::Codec& codec, Buffer workspace, const kernels::EncodePlan& plan, Vector vector, bool measures,
          DigestKind digest_kind)
      : codec_(codec),
        workspace_(std::move(workspace)),
        plan_(plan),
        vector_(vector),
        measures_(measures),
        digest_(digest_kind, plan.layout.chunk_count()) {}

  void reserve(std::size_t batch) {
    const auto values = static_cast<std::size_t>(std::min(plan_.layout.chunk_values, plan_.layout.value_count));
    slots_.clear();
    for (std::size_t i = 0; i < 2 * batch; ++i) slots_.push_back({Buffer(codec_.encoded_bytes_max(values)), 0, {}});
  }
  // A batch is a whole number of slots from the first or from the middle one: it never meets the one before it.
  Slot& slot(std::size_t chunk) { return slots_[chunk % slots_.size()]; }

  Status encode(std::size_t chunk) {
    Slot& into = slot(chunk);
    const std::span<const float> values = plan_.layout.of(vector_.sent, chunk);
    FLUVIAL_ASSIGN(into.size, codec_.encode_chunk(plan_, chunk, values, into.bytes.span()));
    const ByteSpan bytes = into.bytes.span().first(into.size);
    digest_.side_by_side(chunk, bytes);
    if (!measures_) return {};
    FLUVIAL_ASSIGN(into.decoded, codec_.screen_chunk(bytes, values.size(), plan_.layout.first_value(chunk)));
    return {};
  }
  Status write(store::PendingWriter* writer, std::size_t first, std::size_t count) {
    for (std::size_t chunk = first; chunk < first + count; ++chunk) {
      decoded_.add(slot(chunk).decoded);
      if (writer == nullptr) continue;
      const ByteSpan bytes = slot(chunk).bytes.span().first(slot(chunk).size);
      FLUVIAL_TRY(writer->write_p(plan_.layout.first_value(chunk), plan_.layout.of(vector_.p, chunk)));
      FLUVIAL_TRY(writer->write_chunk(chunk, bytes));
      digest_.in_order(bytes);
    }
    return {};
  }

  const kernels::Codec& codec_;
  Buffer workspace_;  // which the plan may point into
  kernels::EncodePlan plan_;
  Vector vector_;
  bool measures_;
  std::vector<Slot> slots_;
  Measure decoded_;
  SubmissionDigest digest_;
};

// Whether the parent would refuse the training's own update, without the residual, for its norm.
Result<bool> is_too_long_alone(const UpdateJob& job, const kernels::Codec& codec, const Fitting& fitting,
                               std::span<const float> p, store::SiteStore& store, Parallel& parallel) {
  FLUVIAL_ASSIGN(const store::ResidualInfo residual, store.residual(job.run));
  if (residual.zero) return true;
  const kernels::ChunkLayout layout = job.layout();
  Values<float> memory(p.size());
  const std::span<float> update = memory.span();
  FLUVIAL_TRY(parallel.for_each(layout.chunk_count(), [&](std::size_t i) -> Status {
    const std::span<float> chunk = layout.of(update, i);
    Values<float> scratch(chunk.size());
    const std::span<float> of_residual = scratch.span();
    FLUVIAL_TRY(read_usable_residual(store, job.run, layout.first_value(i), of_residual));
    const std::span<const float> whole = layout.of(p, i);
    for (std::size_t k = 0; k < chunk.size(); ++k) chunk[k] = whole[k] - of_residual[k];
    return {};
  }));
  FLUVIAL_ASSIGN(const std::unique_ptr<Encoder> encoder, Encoder::make(job, codec, {update, update}, true, parallel));
  FLUVIAL_TRY(encoder->run(nullptr, parallel));
  return fitting.too_long(encoder->decoded());
}

// Encodes once, usually; and again, from the beginning, while the parent would refuse the update because of the
// residual.
Result<store::PendingUpdate> encode_on_host(const UpdateJob& job, const kernels::Codec& codec, Update update,
                                            store::SiteStore& store, Parallel& parallel) {
  reach(job, UpdateJob::Step::kEncode);
  const kernels::ChunkLayout layout = job.layout();
  const std::span<const float> p = update.values();
  Fitting fitting(job.plan, codec.spec(), update.max_abs);
  Values<float> fitted;
  for (bool first = true;; first = false) {
    const store::Fit fit = fitting.fit();
    if (!fit.whole()) {
      if (fitted.empty()) fitted = Values<float>(p.size());
      FLUVIAL_TRY(parallel.for_each(layout.chunk_count(), [&](std::size_t i) -> Status {
        fit_values(layout.of(p, i), fit, layout.of(fitted.span(), i));
        return {};
      }));
    }
    const Encoder::Vector vector{p, fit.whole() ? p : std::span<const float>(fitted.span())};
    FLUVIAL_ASSIGN(const std::unique_ptr<Encoder> encoder,
                   Encoder::make(job, codec, vector, fitting.must_measure(), parallel));
    FLUVIAL_ASSIGN(const std::unique_ptr<store::PendingWriter> writer,
                   store.begin_pending(start_of(job, chunks_are_p(codec), fit)));
    FLUVIAL_TRY(encoder->run(writer.get(), parallel));
    if (first && fitting.too_long(encoder->decoded())) {
      FLUVIAL_ASSIGN(const bool own, is_too_long_alone(job, codec, fitting, p, store, parallel));
      if (own) fitting.allow_any_norm();
    }
    if (fitting.accepts(encoder->decoded())) return finish(job, *writer, encoder->digest(), update.integers);
    FLUVIAL_TRY(fitting.tighten(encoder->decoded()));
  }
}

// None when the parent would refuse all of p at once: then the host fits it.
Result<std::optional<store::PendingUpdate>> encode_on_gpu(const UpdateJob& job, const kernels::Codec& codec,
                                                          GpuUpdate& gpu, const std::vector<std::int64_t>& integers,
                                                          store::SiteStore& store, Parallel& parallel) {
  const kernels::ChunkLayout layout = job.layout();
  FLUVIAL_ASSIGN(const std::unique_ptr<store::PendingWriter> writer,
                 store.begin_pending(start_of(job, chunks_are_p(codec), {})));
  const auto write_p = [&](std::size_t chunk, std::span<const float> p) {
    return writer->write_p(layout.first_value(chunk), p);
  };
  FLUVIAL_ASSIGN(const float max_abs, make_p(gpu, job, store, parallel, write_p));
  reach(job, UpdateJob::Step::kEncode);
  const Fitting fitting(job.plan, codec.spec(), max_abs);
  if (!fitting.fit().whole()) return std::optional<store::PendingUpdate>();
  SubmissionDigest digest(job.digest_kind, layout.chunk_count());
  Measure decoded;
  FLUVIAL_TRY(gpu.encode(key_of(job), [&](std::size_t chunk, ByteSpan bytes) {
    return parallel.for_each(fitting.must_measure() ? 3 : 2, [&](std::size_t piece) -> Status {
      if (piece == 0) return writer->write_chunk(chunk, bytes);
      if (piece == 1) {
        digest.side_by_side(chunk, bytes);
        digest.in_order(bytes);
        return {};
      }
      FLUVIAL_ASSIGN(const kernels::ScreenReport of_chunk,
                     codec.screen_chunk(bytes, layout.size(chunk), layout.first_value(chunk)));
      decoded.add(of_chunk);
      return {};
    });
  }));
  if (!fitting.accepts(decoded)) return std::optional<store::PendingUpdate>();
  FLUVIAL_ASSIGN(store::PendingUpdate update, finish(job, *writer, digest, integers));
  return std::optional(std::move(update));
}

Result<Update> p_from_gpu(const UpdateJob& job, GpuUpdate& gpu, std::vector<std::int64_t> integers) {
  Update update{.p = Buffer(static_cast<std::size_t>(job.schema.value_count()) * sizeof(float)),
                .integers = std::move(integers)};
  FLUVIAL_TRY(gpu.read_p(update.values()));
  FLUVIAL_ASSIGN(const kernels::ScreenReport report, kernels::screen(update.values()));
  update.max_abs = report.max_abs;
  return update;
}

}  // namespace

Result<store::PendingUpdate> encode_update(const UpdateJob& job, store::SiteStore& store, Parallel& parallel) {
  FLUVIAL_ASSIGN(const std::unique_ptr<kernels::Codec> codec, codec_of(job));
  FLUVIAL_ASSIGN(const std::unique_ptr<GpuUpdate> gpu, gpu_update_of(job));
  if (gpu) {
    FLUVIAL_ASSIGN(const bool takes, gpu->takes(codec->spec()));
    if (takes) {
      FLUVIAL_ASSIGN(const std::vector<PartValues> parts, values_of(job.schema, job.parts));
      const std::vector<std::int64_t> integers = joined_integers(parts);
      FLUVIAL_TRY(check_integers(job, integers));
      FLUVIAL_ASSIGN(std::optional<store::PendingUpdate> encoded,
                     encode_on_gpu(job, *codec, *gpu, integers, store, parallel));
      if (encoded) return std::move(*encoded);
      FLUVIAL_ASSIGN(Update update, p_from_gpu(job, *gpu, integers));
      return encode_on_host(job, *codec, std::move(update), store, parallel);
    }
  }
  FLUVIAL_ASSIGN(Update update, make_update(job, gpu.get(), store, parallel));
  FLUVIAL_TRY(check_integers(job, update.integers));
  return encode_on_host(job, *codec, std::move(update), store, parallel);
}

Result<store::Carried> fold_update(const UpdateJob& job, store::SiteStore& store, Parallel& parallel) {
  FLUVIAL_ASSIGN(const std::unique_ptr<GpuUpdate> gpu, gpu_update_of(job));
  FLUVIAL_ASSIGN(Update update, make_update(job, gpu.get(), store, parallel));
  const kernels::ChunkLayout layout = job.layout();
  FLUVIAL_ASSIGN(std::unique_ptr<store::ResidualWriter> writer, store.begin_residual(job.run));
  for (std::size_t i = 0; i < layout.chunk_count(); ++i) {
    FLUVIAL_TRY(writer->write(layout.first_value(i), layout.of(update.values(), i)));
  }
  return store.fold(job.run, job.round, std::move(writer), bounds_of(job.plan), job.workers, job.lost);
}

}  // namespace fluvial::edge
