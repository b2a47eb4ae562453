#include "edge/update/encode.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/digest/submission_digest.h"
#include "core/round/integers.h"
#include "core/round/probe.h"
#include "edge/update/encoder.h"
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

void reach_encoding(const UpdateJob& job) {
  reach(job, UpdateJob::Step::kReduced);
  reach(job, UpdateJob::Step::kEncode);
}

// The trailer: the integers, 8 bytes each, little-endian, then the probe.
Result<store::PendingUpdate> finish(const UpdateJob& job, store::PendingWriter& writer, SubmissionDigest& digest,
                                    const std::vector<std::int64_t>& integers, std::optional<double> left_norm) {
  reach(job, UpdateJob::Step::kPersist);
  Buffer trailer(integers.size() * sizeof(std::int64_t) + round::kProbeBytes);
  for (std::size_t i = 0; i < integers.size(); ++i) {
    store_le(trailer.data() + i * sizeof(std::int64_t), static_cast<std::uint64_t>(integers[i]));
  }
  std::ranges::copy(round::probe_bytes(), trailer.data() + integers.size() * sizeof(std::int64_t));
  FLUVIAL_TRY(writer.write_trailer(trailer.span()));
  return writer.finish(digest.finish(trailer.span()), left_norm, job.sealed);
}

// Whether the parent would refuse the training's own update, without the residual, for its norm.
Result<bool> is_too_long_alone(const UpdateJob& job, const kernels::Codec& codec, const Fitting& fitting,
                               std::span<const float> p, store::SiteStore& store, Parallel& parallel) {
  FLUVIAL_ASSIGN(const store::Residual residual, store.open_residual(job.run));
  if (residual.info().zero) return true;
  const kernels::ChunkLayout layout = job.layout();
  Values<float> memory(p.size());
  const std::span<float> update = memory.span();
  FLUVIAL_TRY(parallel.for_each(layout.chunk_count(), [&](std::size_t i) -> Status {
    const std::span<float> chunk = layout.of(update, i);
    Values<float> scratch(chunk.size());
    const std::span<float> of_residual = scratch.span();
    FLUVIAL_TRY(read_usable_residual(residual, layout.first_value(i), of_residual));
    const std::span<const float> whole = layout.of(p, i);
    for (std::size_t k = 0; k < chunk.size(); ++k) chunk[k] = whole[k] - of_residual[k];
    return {};
  }));
  const Encoder::Vector vector{layout, update, update};
  const Encoder::Chunks all{.measures = [](std::size_t) { return true; }};
  FLUVIAL_ASSIGN(const std::unique_ptr<Encoder> encoder, Encoder::make(codec, key_of(job), vector, all, parallel));
  FLUVIAL_TRY(encoder->run(nullptr, parallel));
  return fitting.too_long(encoder->decoded());
}

// Each chunk is made, encoded and measured while it is in the cache. None when the parent would refuse the update
// because of the residual: then every chunk of it is made, and it is encoded again, fitted.
Result<std::optional<store::PendingUpdate>> encode_as_it_is_made(const UpdateJob& job, const kernels::Codec& codec,
                                                                 HostUpdate& update, store::SiteStore& store,
                                                                 Parallel& parallel) {
  const kernels::ChunkLayout layout = job.layout();
  std::vector<std::uint8_t> measured(layout.chunk_count());
  Encoder::Chunks chunks{.digest = job.digest_kind};
  chunks.make = [&](std::size_t chunk) -> Result<bool> {
    FLUVIAL_ASSIGN(const float max_abs, update.make(chunk));
    const Fitting fitting(job.plan, codec.spec(), max_abs);
    measured[chunk] = fitting.must_measure() ? 1 : 0;
    return fitting.fit().whole();
  };
  chunks.measures = [&](std::size_t chunk) { return measured[chunk] != 0; };
  reach(job, UpdateJob::Step::kEncode);
  FLUVIAL_ASSIGN(const std::unique_ptr<store::PendingWriter> writer,
                 store.begin_pending(start_of(job, chunks_are_p(codec), {})));
  const Encoder::Vector vector{layout, update.values(), update.values()};
  FLUVIAL_ASSIGN(const std::unique_ptr<Encoder> encoder,
                 Encoder::make(codec, key_of(job), vector, std::move(chunks), parallel));
  FLUVIAL_TRY(encoder->run(writer.get(), parallel));
  reach(job, UpdateJob::Step::kReduced);
  if (encoder->given_up()) return std::optional<store::PendingUpdate>();
  const Fitting fitting(job.plan, codec.spec(), update.max_abs());
  if (!fitting.accepts(encoder->decoded())) return std::optional<store::PendingUpdate>();
  FLUVIAL_ASSIGN(store::PendingUpdate made,
                 finish(job, *writer, encoder->digest(), update.integers(), encoder->left_norm()));
  return std::optional(std::move(made));
}

// Encodes once, usually; and again, from the beginning, while the parent would refuse the update because of the
// residual.
Result<store::PendingUpdate> encode_on_host(const UpdateJob& job, const kernels::Codec& codec, Update update,
                                            store::SiteStore& store, Parallel& parallel) {
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
    const Encoder::Vector vector{layout, p, fit.whole() ? p : std::span<const float>(fitted.span()), fit};
    const Encoder::Chunks chunks{.measures = [&](std::size_t) { return fitting.must_measure(); },
                                 .digest = job.digest_kind};
    FLUVIAL_ASSIGN(const std::unique_ptr<Encoder> encoder, Encoder::make(codec, key_of(job), vector, chunks, parallel));
    FLUVIAL_ASSIGN(const std::unique_ptr<store::PendingWriter> writer,
                   store.begin_pending(start_of(job, chunks_are_p(codec), fit)));
    FLUVIAL_TRY(encoder->run(writer.get(), parallel));
    if (first && fitting.too_long(encoder->decoded())) {
      FLUVIAL_ASSIGN(const bool own, is_too_long_alone(job, codec, fitting, p, store, parallel));
      if (own) fitting.allow_any_norm();
    }
    if (fitting.accepts(encoder->decoded())) {
      return finish(job, *writer, encoder->digest(), update.integers, encoder->left_norm());
    }
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
  reach_encoding(job);
  const Fitting fitting(job.plan, codec.spec(), max_abs);
  if (!fitting.fit().whole()) return std::optional<store::PendingUpdate>();
  SubmissionDigest digest(job.digest_kind, layout.chunk_count());
  Measure decoded;
  FLUVIAL_TRY(gpu.encode(key_of(job), [&](std::size_t chunk, ByteSpan bytes) {
    return parallel.for_each(fitting.must_measure() ? 3 : 2, [&](std::size_t piece) -> Status {
      if (piece == 0) return writer->keep_chunk(chunk, SharedBytes::from(Buffer::copy_of(bytes)));
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
  FLUVIAL_ASSIGN(store::PendingUpdate update, finish(job, *writer, digest, integers, {}));
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
  if (!gpu && Encoder::takes_chunks_as_they_come(*codec, job.layout())) {
    FLUVIAL_ASSIGN(const std::unique_ptr<HostUpdate> update, HostUpdate::of(job, store));
    FLUVIAL_TRY(check_integers(job, update->integers()));
    FLUVIAL_ASSIGN(std::optional<store::PendingUpdate> made,
                   encode_as_it_is_made(job, *codec, *update, store, parallel));
    if (made) return std::move(*made);
    return encode_on_host(job, *codec, update->take(), store, parallel);
  }
  FLUVIAL_ASSIGN(Update update, make_update(job, gpu.get(), store, parallel));
  FLUVIAL_TRY(check_integers(job, update.integers));
  reach_encoding(job);
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
