#include "edge/update/encode.h"

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/digest/submission_digest.h"
#include "edge/update/codec_state.h"
#include "edge/update/encoder.h"
#include "edge/update/fit.h"
#include "edge/update/gpu_route.h"
#include "edge/update/part_values.h"
#include "edge/update/resolve.h"
#include "edge/update/screen.h"
#include "edge/update/submission.h"
#include "edge/update/update.h"
#include "kernels/codec.h"
#include "kernels/vector.h"

namespace fluvial::edge {
namespace {

// The store cannot read p from compressed chunks.
bool chunks_are_p(const kernels::Codec& codec) { return codec.lossless() && codec.spec().zstd_level == 0; }

// Where an update goes as it is encoded.
struct Out {
  std::unique_ptr<store::PendingWriter> writer;
  std::vector<SharedBytes> fresh;  // chunks that no feed has yet
  std::uint64_t bytes = 0;         // of chunks, so far
  bool unfit = false;              // nothing more is fed: a parent would refuse it, or it is longer than p
};

Result<Out> begin_out(const UpdateJob& job, const kernels::Codec& codec, const store::Fit& fit, store::SiteStore& store,
                      std::uint64_t state_bytes = 0) {
  store::PendingStart start = start_of(job);
  start.fit = fit;
  start.lossless = chunks_are_p(codec) && fit.whole();
  start.late_factor = job.late_factor;
  start.state_bytes = state_bytes;
  Out out;
  FLUVIAL_ASSIGN(out.writer, store.begin_pending(std::move(start)));
  return out;
}

// The whole update, encoded and written: it is to be made durable.
struct Whole {
  Out out;
  Digest digest{};
  std::optional<double> left_norm;
};

Result<Whole> finish(const UpdateJob& job, Out out, SubmissionDigest& digest, const std::vector<std::int64_t>& integers,
                     std::optional<double> left_norm) {
  reach(job, UpdateJob::Step::kPersist);
  const Buffer trailer = trailer_of(integers);
  FLUVIAL_TRY(out.writer->write_trailer(trailer.span()));
  return Whole{std::move(out), digest.finish(trailer.span()), left_norm};
}

// A parent refuses a chunk beyond its bounds, and with it the update. The measure only grows. Longer than p it is not
// kept in memory: its writer does not keep it either.
void feed(Out& out, const Fitting& fitting, const SharedBytes& chunk, const Measure& so_far) {
  out.bytes += chunk.bytes.size();
  const bool fits = fitting.accepts(so_far) && out.bytes <= out.writer->info().start.value_count * sizeof(float);
  out.unfit = out.unfit || !fits;
  if (out.unfit) return out.fresh.clear();
  out.fresh.push_back(chunk);
}

// The training's own update, up to rounding: p less the residual that was added.
Result<Values<float>> own_of(const UpdateJob& job, std::span<const float> p, const store::Residual& residual,
                             Parallel& parallel) {
  const kernels::ChunkLayout layout = job.layout();
  Values<float> memory(p.size());
  FLUVIAL_TRY(parallel.for_each(layout.chunk_count(), [&](std::size_t i) -> Status {
    const std::span<float> chunk = layout.of(memory.span(), i);
    Values<float> scratch(chunk.size());
    const std::span<float> of_residual = scratch.span();
    FLUVIAL_TRY(read_usable_residual(residual, layout.first_value(i), of_residual));
    const std::span<const float> whole = layout.of(p, i);
    for (std::size_t k = 0; k < chunk.size(); ++k) chunk[k] = whole[k] - of_residual[k];
    return {};
  }));
  return memory;
}

// Whether the parent would refuse the training's own update, without the residual, for its norm.
Result<bool> is_too_long_alone(const UpdateJob& job, const kernels::Codec& codec, const Fitting& fitting,
                               Update& update, store::SiteStore& store, Parallel& parallel) {
  FLUVIAL_ASSIGN(const store::Residual residual, store.open_residual(job.run));
  if (residual.info().zero && update.own.empty()) return true;
  const kernels::ChunkLayout layout = job.layout();
  Values<float> memory;
  if (update.own.empty()) {
    FLUVIAL_ASSIGN(memory, own_of(job, update.values(), residual, parallel));
  } else {
    FLUVIAL_TRY(fold_alone(codec, layout, update.own_values()));
  }
  const std::span<const float> own = update.own.empty() ? memory.span() : update.own_values();
  Buffer state = Buffer::copy_of(update.state.span());
  const Encoder::Vector vector{layout, own, own, {}, state.span()};
  const Encoder::Chunks all{.measures = [](std::size_t) { return true; }};
  FLUVIAL_ASSIGN(const std::unique_ptr<Encoder> encoder, Encoder::make(codec, key_of(job), vector, all, parallel));
  FLUVIAL_TRY(encoder->run(nullptr, parallel));
  return fitting.too_long(encoder->decoded());
}

// Each chunk is made, encoded and measured while it is in the cache.
class OnePass {
 public:
  static Result<std::unique_ptr<OnePass>> begin(const UpdateJob& job, const kernels::Codec& codec,
                                                store::SiteStore& store, Parallel& parallel) {
    FLUVIAL_ASSIGN(store::Residual residual, store.open_residual(job.run));
    FLUVIAL_ASSIGN(std::unique_ptr<HostUpdate> update, HostUpdate::of(job, std::move(residual)));
    FLUVIAL_TRY(check_integers(job, update->integers()));
    std::unique_ptr<OnePass> pass(new OnePass(job, codec, std::move(update)));
    reach(job, UpdateJob::Step::kEncode);
    FLUVIAL_ASSIGN(pass->out_, begin_out(job, codec, {}, store));
    FLUVIAL_TRY(pass->make_encoder(parallel));
    return pass;
  }

  // False: every chunk is made, and encoded and written unless the parent would refuse the update.
  Result<bool> step(Parallel& parallel) { return encoder_->step(out_.writer.get(), parallel); }
  Out& out() { return out_; }
  // After the last step. None when the parent would refuse the update because of the residual: it is encoded again,
  // fitted.
  Result<std::optional<Whole>> finish() {
    reach(job_, UpdateJob::Step::kReduced);
    if (encoder_->given_up()) return std::optional<Whole>();
    const Fitting fitting(job_.plan, codec_.spec(), update_->max_abs());
    if (!fitting.accepts(encoder_->decoded())) return std::optional<Whole>();
    FLUVIAL_ASSIGN(Whole whole,
                   edge::finish(job_, std::move(out_), encoder_->digest(), update_->integers(), encoder_->left_norm()));
    return std::optional(std::move(whole));
  }
  Update take() { return update_->take(); }

 private:
  OnePass(const UpdateJob& job, const kernels::Codec& codec, std::unique_ptr<HostUpdate> update)
      : job_(job), codec_(codec), update_(std::move(update)), measured_(job.layout().chunk_count()) {}

  Status make_encoder(Parallel& parallel) {
    Encoder::Chunks chunks{.digest = job_.digest_kind};
    chunks.make = [this](std::size_t chunk) -> Result<bool> {
      FLUVIAL_ASSIGN(const float max_abs, update_->make(chunk));
      const Fitting fitting(job_.plan, codec_.spec(), max_abs);
      measured_[chunk] = fitting.must_measure() ? 1 : 0;
      return fitting.fit().whole();
    };
    chunks.measures = [this](std::size_t chunk) { return measured_[chunk] != 0; };
    chunks.encoded = [this](const SharedBytes& chunk, const Measure& so_far) {
      feed(out_, Fitting(job_.plan, codec_.spec(), {}), chunk, so_far);
    };
    const Encoder::Vector vector{job_.layout(), update_->values(), update_->values()};
    FLUVIAL_ASSIGN(encoder_, Encoder::make(codec_, key_of(job_), vector, std::move(chunks), parallel));
    return {};
  }

  const UpdateJob& job_;
  const kernels::Codec& codec_;
  std::unique_ptr<HostUpdate> update_;
  std::vector<std::uint8_t> measured_;  // by chunk
  Out out_;
  std::unique_ptr<Encoder> encoder_;
};

// Encodes once, usually; and again, from the beginning, while the parent would refuse the update because of the
// residual.
Result<Whole> encode_on_host(const UpdateJob& job, const kernels::Codec& codec, Update update, store::SiteStore& store,
                             Parallel& parallel) {
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
    Buffer state = Buffer::copy_of(update.state.span());  // each time from the same one
    const Encoder::Vector vector{layout, p, fit.whole() ? p : std::span<const float>(fitted.span()), fit, state.span()};
    FLUVIAL_ASSIGN(Out out, begin_out(job, codec, fit, store, state.size()));
    const Encoder::Chunks chunks{
        .measures = [&](std::size_t) { return fitting.must_measure(); },
        .encoded = [&](const SharedBytes& chunk, const Measure& so_far) { feed(out, fitting, chunk, so_far); },
        .digest = job.digest_kind};
    FLUVIAL_ASSIGN(const std::unique_ptr<Encoder> encoder, Encoder::make(codec, key_of(job), vector, chunks, parallel));
    FLUVIAL_TRY(encoder->run(out.writer.get(), parallel));
    if (first && fitting.too_long(encoder->decoded())) {
      FLUVIAL_ASSIGN(const bool own, is_too_long_alone(job, codec, fitting, update, store, parallel));
      if (own) fitting.allow_any_norm();
    }
    if (fitting.accepts(encoder->decoded())) {
      if (!state.empty()) FLUVIAL_TRY(out.writer->write_state(state.span()));
      return finish(job, std::move(out), encoder->digest(), update.integers, encoder->left_norm());
    }
    FLUVIAL_TRY(fitting.tighten(encoder->decoded()));
  }
}

// None when the parent would refuse all of p at once: then the host fits it.
Result<std::optional<Whole>> encode_on_gpu(const UpdateJob& job, const kernels::Codec& codec, GpuUpdate& gpu,
                                           const std::vector<std::int64_t>& integers, store::SiteStore& store,
                                           Parallel& parallel) {
  const kernels::ChunkLayout layout = job.layout();
  FLUVIAL_ASSIGN(Out out, begin_out(job, codec, {}, store));
  const auto write_p = [&](std::size_t chunk, std::span<const float> p) {
    return out.writer->write_p(layout.first_value(chunk), p);
  };
  FLUVIAL_ASSIGN(const store::Residual residual, store.open_residual(job.run));
  FLUVIAL_ASSIGN(const float max_abs, make_p(gpu, job, residual, parallel, write_p));
  reach_encoding(job);
  const Fitting fitting(job.plan, codec.spec(), max_abs);
  if (!fitting.fit().whole()) return std::optional<Whole>();
  SubmissionDigest digest(job.digest_kind, layout.chunk_count());
  Measure decoded;
  FLUVIAL_TRY(gpu.encode(key_of(job), [&](std::size_t chunk, ByteSpan bytes) -> Status {
    const SharedBytes kept = SharedBytes::from(Buffer::copy_of(bytes));
    FLUVIAL_TRY(parallel.for_each(fitting.must_measure() ? 3 : 2, [&](std::size_t piece) -> Status {
      if (piece == 0) return out.writer->keep_chunk(chunk, kept);
      if (piece == 1) {
        digest.side_by_side(chunk, bytes);
        digest.in_order(bytes);
        return {};
      }
      FLUVIAL_ASSIGN(const kernels::ScreenReport of_chunk,
                     codec.screen_chunk(bytes, layout.size(chunk), layout.first_value(chunk)));
      decoded.add(of_chunk);
      return {};
    }));
    feed(out, fitting, kept, decoded);
    return {};
  }));
  if (!fitting.accepts(decoded)) return std::optional<Whole>();
  FLUVIAL_ASSIGN(Whole whole, finish(job, std::move(out), digest, integers, {}));
  return std::optional(std::move(whole));
}

Result<Update> p_from_gpu(const UpdateJob& job, GpuUpdate& gpu, std::vector<std::int64_t> integers) {
  Update update{.p = Buffer(static_cast<std::size_t>(job.schema.value_count()) * sizeof(float)),
                .integers = std::move(integers)};
  FLUVIAL_TRY(gpu.read_p(update.values()));
  FLUVIAL_ASSIGN(const kernels::ScreenReport report, kernels::screen(update.values()));
  update.max_abs = report.max_abs;
  return update;
}

// p, ready to be encoded, with the state if the codec keeps one. `key`: as for fold_in().
Result<Update> p_of(const UpdateJob& job, const kernels::Codec& codec, const kernels::StreamKey& key, GpuUpdate* gpu,
                    store::SiteStore& store, Parallel& parallel) {
  FLUVIAL_ASSIGN(store::Residual residual, store.open_residual(job.run));
  if (!keeps_state(codec, job.layout())) return make_update(job, gpu, residual, parallel);
  FLUVIAL_ASSIGN(Update own, make_update(job, gpu, {}, parallel));
  return fold_in(job, codec, key, std::move(own), residual, parallel);
}

}  // namespace

class Encoding::Work {
 public:
  Work(const UpdateJob& job, store::SiteStore& store, Parallel& parallel)
      : job_(job), store_(store), parallel_(parallel) {}

  Result<std::optional<store::PendingUpdate>> step() {
    if (whole_) {
      FLUVIAL_ASSIGN(store::PendingUpdate durable, whole_->out.writer->finish(whole_->digest, whole_->left_norm));
      return std::optional(std::move(durable));
    }
    if (to_fit_) {
      FLUVIAL_TRY(encode(*std::exchange(to_fit_, std::nullopt)));
      return std::optional<store::PendingUpdate>();
    }
    FLUVIAL_TRY(one_pass_ ? Status() : begin());
    FLUVIAL_TRY(one_pass_ ? go_on() : Status());
    return std::optional<store::PendingUpdate>();
  }
  Out* out() {  // null: there is none yet, or no more
    if (whole_) return &whole_->out;
    return one_pass_ ? &one_pass_->out() : nullptr;
  }

 private:
  Status begin() {
    FLUVIAL_ASSIGN(codec_, codec_of(job_.plan.codec));
    if (codec_->passes() > 1) {
      return Error{Code::kFailedPrecondition, "codec " + job_.plan.codec + " has several passes: encode_first_pass()"};
    }
    FLUVIAL_ASSIGN(const std::unique_ptr<GpuUpdate> gpu, gpu_update_of(job_));
    if (!gpu && Encoder::takes_chunks_as_they_come(*codec_, job_.layout())) {
      FLUVIAL_ASSIGN(one_pass_, OnePass::begin(job_, *codec_, store_, parallel_));
      return {};
    }
    bool gpu_encodes = false;
    if (gpu && !keeps_state(*codec_, job_.layout())) {
      FLUVIAL_ASSIGN(gpu_encodes, gpu->takes(codec_->spec()));
    }
    if (gpu_encodes) return encode_by(*gpu);
    FLUVIAL_ASSIGN(Update update, p_of(job_, *codec_, key_of(job_), gpu.get(), store_, parallel_));
    FLUVIAL_TRY(check_integers(job_, update.integers));
    reach_encoding(job_);
    return encode(std::move(update));
  }

  Status go_on() {
    FLUVIAL_ASSIGN(const bool more, one_pass_->step(parallel_));
    if (more) return {};
    FLUVIAL_ASSIGN(whole_, one_pass_->finish());
    if (!whole_) to_fit_ = one_pass_->take();
    one_pass_.reset();
    return {};
  }

  Status encode_by(GpuUpdate& gpu) {
    FLUVIAL_ASSIGN(const std::vector<PartValues> parts, values_of(job_.schema, job_.parts));
    const std::vector<std::int64_t> integers = joined_integers(parts);
    FLUVIAL_TRY(check_integers(job_, integers));
    FLUVIAL_ASSIGN(whole_, encode_on_gpu(job_, *codec_, gpu, integers, store_, parallel_));
    if (whole_) return {};
    FLUVIAL_ASSIGN(Update update, p_from_gpu(job_, gpu, integers));
    return encode(std::move(update));
  }

  Status encode(Update update) {
    FLUVIAL_ASSIGN(whole_, encode_on_host(job_, *codec_, std::move(update), store_, parallel_));
    return {};
  }

  const UpdateJob& job_;
  store::SiteStore& store_;
  Parallel& parallel_;
  std::unique_ptr<kernels::Codec> codec_;
  std::unique_ptr<OnePass> one_pass_;  // from its first step to its last
  std::optional<Update> to_fit_;       // what a parent would refuse as it was encoded
  std::optional<Whole> whole_;
};

Encoding::Encoding(const UpdateJob& job, store::SiteStore& store, Parallel& parallel)
    : work_(std::make_unique<Work>(job, store, parallel)) {}
Encoding::~Encoding() {
  if (feed_) feed_->close();
}

Result<std::optional<store::PendingUpdate>> Encoding::step() {
  FLUVIAL_CHECK(work_, "a step after the last one");
  Result<std::optional<store::PendingUpdate>> made = work_->step();
  if (!made.ok() || *made) work_.reset();  // files are closed here, where that may take its time
  return made;
}

std::shared_ptr<const Feed> Encoding::feed() {
  Out* const out = work_ ? work_->out() : nullptr;
  if (feed_ && (out == nullptr || out->writer->submission() != feed_->info().submission)) {
    feed_->close();
    feed_.reset();
  }
  if (out == nullptr) return nullptr;
  if (!feed_) feed_ = std::make_shared<Feed>(out->writer->info());
  for (SharedBytes& chunk : std::exchange(out->fresh, {})) feed_->add(std::move(chunk));
  if (out->unfit) feed_->close();
  return feed_;
}

Result<store::PendingUpdate> encode_update(const UpdateJob& job, store::SiteStore& store, Parallel& parallel) {
  Encoding encoding(job, store, parallel);
  for (;;) {
    FLUVIAL_ASSIGN(std::optional<store::PendingUpdate> durable, encoding.step());
    if (durable) return std::move(*durable);
  }
}

Result<store::Carried> fold_update(const UpdateJob& job, store::SiteStore& store, Parallel& parallel) {
  FLUVIAL_ASSIGN(const std::unique_ptr<kernels::Codec> codec, codec_of(job.plan.codec));
  FLUVIAL_ASSIGN(const std::unique_ptr<GpuUpdate> gpu, gpu_update_of(job));
  FLUVIAL_ASSIGN(Update update, p_of(job, *codec, {}, gpu.get(), store, parallel));
  const kernels::ChunkLayout layout = job.layout();
  FLUVIAL_ASSIGN(std::unique_ptr<store::ResidualWriter> writer, store.begin_residual(job.run));
  for (std::size_t i = 0; i < layout.chunk_count(); ++i) {
    FLUVIAL_TRY(writer->write(layout.first_value(i), layout.of(update.values(), i)));
  }
  if (!update.state.empty()) FLUVIAL_TRY(writer->write_state(job.plan.codec, update.state.span()));
  const float factor = job.lost ? 1 : job.late_factor;  // a restore took its round away: it was not too late for it
  return store.fold(job.run, job.round, std::move(writer), bounds_of(job.plan), job.workers, job.lost, factor);
}

}  // namespace fluvial::edge
