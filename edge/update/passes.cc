#include "edge/update/passes.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>

#include "core/aggregate/pass_mean.h"
#include "core/aggregate/shapes.h"
#include "core/base/in_turn.h"
#include "core/digest/submission_digest.h"
#include "core/store/plan_json.h"
#include "edge/update/fit.h"
#include "edge/update/gpu_route.h"
#include "edge/update/submission.h"
#include "edge/update/update.h"
#include "kernels/codec.h"
#include "kernels/stream_key.h"
#include "kernels/vector.h"

namespace fluvial::edge {
namespace {

constexpr int kTriesMax = 8;  // to make what is sent fit: rounding moves it by a few units in the last place

Result<std::unique_ptr<kernels::Codec>> codec_with_passes(const std::string& text) {
  FLUVIAL_ASSIGN(std::unique_ptr<kernels::Codec> codec, codec_of(text));
  if (codec->passes() > 1) return codec;
  return Error{Code::kFailedPrecondition, "codec " + text + " has one pass"};
}

// What a pass sends of p, within the bounds of the plan: of p times a factor, as far as they call for that. Products
// with factors may be larger than p, and the parent's check is of what travels.
class Fitted {
 public:
  Fitted(const kernels::Codec& codec, const aggregate::Shapes& shapes, const round::Plan& plan,
         const kernels::StreamKey& key)
      : codec_(codec),
        shapes_(shapes),
        plan_(plan),
        key_(key),
        state_(codec.state_bytes(shapes.schema())),
        workspace_(codec.workspace_bytes(shapes.schema())) {
    std::ranges::fill(state_.span(), std::byte{0});
  }

  // `p` outlives it.
  Status make(std::span<const float> p, const kernels::PassInput& input, ByteSpan state, Parallel& parallel) {
    p_ = p;
    if (!state.empty() && state.size() != state_.size()) {
      return Error{Code::kInvalidArgument, "a codec state of " + std::to_string(state.size()) + " bytes, expected " +
                                               std::to_string(state_.size())};
    }
    std::ranges::copy(state, state_.data());
    for (int tries = 0; tries < kTriesMax; ++tries) {
      FLUVIAL_TRY(scale(parallel));
      FLUVIAL_ASSIGN(plan_of_pass_,
                     codec_.prepare(shapes_.schema(), vector(), key_, input, state_.span(), workspace_.span()));
      FLUVIAL_TRY(parallel.for_each(plan_of_pass_.parts,
                                    [&](std::size_t part) { return codec_.prepare_part(plan_of_pass_, part); }));
      FLUVIAL_ASSIGN(const bool fits, measure());
      if (fits) return {};
    }
    return Error{Code::kDataLoss, "codec and plan do not fit together: what is sent stays beyond their bounds"};
  }

  const kernels::EncodePlan& plan() const { return plan_of_pass_; }
  float factor() const { return factor_; }
  // Chunk `index` of p becomes what is left of it once this is counted.
  Status leave(std::size_t index, std::span<float> chunk) const {
    if (factor_ == 1) return codec_.leave_chunk(plan_of_pass_, index, chunk, chunk);
    const std::span<const float> sent = shapes_.layout().of(std::span<const float>(scaled_), index);
    Values<float> memory(chunk.size());
    const std::span<float> of_sent = memory.span();
    FLUVIAL_TRY(codec_.leave_chunk(plan_of_pass_, index, sent, of_sent));
    for (std::size_t i = 0; i < chunk.size(); ++i) chunk[i] = of_sent[i] + (chunk[i] - sent[i]);
    return {};
  }

 private:
  std::span<const float> vector() const { return factor_ == 1 ? p_ : scaled_; }
  Status scale(Parallel& parallel) {
    if (factor_ == 1) return {};
    if (scaled_.empty()) {
      memory_ = Values<float>(p_.size());
      scaled_ = memory_.span();
    }
    const kernels::ChunkLayout& layout = shapes_.layout();
    return parallel.for_each(layout.chunk_count(), [&](std::size_t i) -> Status {
      const std::span<float> out = layout.of(scaled_, i);
      std::ranges::transform(layout.of(p_, i), out.begin(), [this](float value) { return value * factor_; });
      return {};
    });
  }
  // As the parent measures it, chunk by chunk. False: what is sent is beyond the bounds, and the factor is smaller now.
  Result<bool> measure() {
    Measure measured;
    for (std::size_t i = 0; i < plan_of_pass_.layout.chunk_count(); ++i) {
      FLUVIAL_ASSIGN(const kernels::ScreenReport report,
                     kernels::screen(plan_of_pass_.layout.of(plan_of_pass_.values, i)));
      measured.add(report);
    }
    const double norm = std::sqrt(measured.norm_squared);
    double within = std::min(1.0, plan_.value_abs_max / static_cast<double>(measured.max_abs));
    if (plan_.update_norm_max > 0) within = std::min(within, plan_.update_norm_max / norm);
    if (!(within < 1)) return true;
    factor_ = static_cast<float>(static_cast<double>(factor_) * within * (1 - 0x1p-16));
    return false;
  }

  const kernels::Codec& codec_;
  const aggregate::Shapes& shapes_;
  const round::Plan& plan_;
  kernels::StreamKey key_;
  Buffer state_;
  Buffer workspace_;
  std::span<const float> p_;
  float factor_ = 1;
  Values<float> memory_;
  std::span<float> scaled_;  // p times the factor, unless that is 1
  kernels::EncodePlan plan_of_pass_;
};

// Factors are few, beside p.
Status write_chunks(const kernels::Codec& codec, const kernels::EncodePlan& plan, SubmissionDigest& digest,
                    store::PendingWriter& writer) {
  for (std::size_t i = 0; i < plan.layout.chunk_count(); ++i) {
    const std::span<const float> values = plan.layout.of(plan.values, i);
    Buffer room(codec.encoded_bytes_max(values.size()));
    FLUVIAL_ASSIGN(const std::size_t size, codec.encode_chunk(plan, i, values, room.span()));
    SharedBytes chunk = SharedBytes::from(std::move(room)).part(0, size);
    digest.side_by_side(i, chunk.bytes);
    digest.in_order(chunk.bytes);
    FLUVIAL_TRY(writer.keep_chunk(i, std::move(chunk)));
  }
  return {};
}

// What is left of p in the place of p, and written.
Status write_left(const Fitted& fitted, const kernels::ChunkLayout& layout, std::span<float> p,
                  store::PendingWriter& writer, Parallel& parallel) {
  InTurn writing(layout.chunk_count(),
                 [&](std::size_t i) { return writer.write_p(layout.first_value(i), layout.of(p, i)); });
  return parallel.for_each(layout.chunk_count(), [&](std::size_t i) -> Status {
    FLUVIAL_TRY(fitted.leave(i, layout.of(p, i)));
    return writing.done(i);
  });
}

}  // namespace

Result<store::PendingUpdate> encode_first_pass(const UpdateJob& job, ByteSpan state, store::SiteStore& store,
                                               Parallel& parallel) {
  FLUVIAL_ASSIGN(const std::unique_ptr<kernels::Codec> codec, codec_with_passes(job.plan.codec));
  FLUVIAL_ASSIGN(const std::unique_ptr<GpuUpdate> gpu, gpu_update_of(job));
  FLUVIAL_ASSIGN(const store::Residual residual, store.open_residual(job.run));
  FLUVIAL_ASSIGN(Update update, make_update(job, gpu.get(), residual, parallel));
  FLUVIAL_TRY(check_integers(job, update.integers));
  reach_encoding(job);
  const aggregate::Shapes shapes(job.schema, job.plan.chunk_values);
  Fitted fitted(*codec, shapes, job.plan, key_of(job));
  FLUVIAL_TRY(fitted.make(update.values(), {}, state, parallel));
  if (job.pass_factor != nullptr) *job.pass_factor = fitted.factor();
  const kernels::ChunkLayout& sent = fitted.plan().layout;
  store::PendingStart start = start_of(job);
  start.passes = codec->passes();
  start.schema = store::schema_to_json(job.schema);
  start.sent_values = sent.value_count;
  start.chunk_count = sent.chunk_count();
  FLUVIAL_ASSIGN(const std::unique_ptr<store::PendingWriter> writer, store.begin_pending(std::move(start)));
  SubmissionDigest digest(job.digest_kind, sent.chunk_count());
  FLUVIAL_TRY(write_chunks(*codec, fitted.plan(), digest, *writer));
  for (std::size_t i = 0; i < shapes.layout().chunk_count(); ++i) {
    FLUVIAL_TRY(writer->write_p(shapes.layout().first_value(i), shapes.layout().of(update.values(), i)));
  }
  reach(job, UpdateJob::Step::kPersist);
  const Buffer trailer = trailer_of(update.integers);
  FLUVIAL_TRY(writer->write_trailer(trailer.span()));
  return writer->finish(digest.finish(trailer.span()));
}

Result<store::PendingUpdate> encode_pass(const PassJob& job, store::SiteStore& store, Parallel& parallel) {
  FLUVIAL_ASSIGN(const std::optional<store::PendingUpdate> pending, store.pending(job.run));
  if (!pending || pending->info().start.round != job.round) {
    return Error{Code::kFailedPrecondition, "its submission is not here"};
  }
  FLUVIAL_TRY(aggregate::check_mean({job.epoch, job.attempt, job.from.pass - 1}, job.mean));
  const store::PendingStart& first = pending->info().start;
  FLUVIAL_ASSIGN(const std::unique_ptr<kernels::Codec> codec, codec_with_passes(first.codec));
  FLUVIAL_ASSIGN(const round::Schema schema, store::schema_from_json(first.schema));
  const aggregate::Shapes shapes(schema, first.chunk_values);
  Values<float> memory(first.value_count);
  const std::span<float> p = memory.span();
  FLUVIAL_TRY(pending->read_p(0, p));
  Fitted fitted(*codec, shapes, job.plan, kernels::stream_key(job.plan.seed, job.round.value(), job.site_name));
  FLUVIAL_TRY(fitted.make(p, {.pass = job.from.pass, .reduced = aggregate::mean_values(job.mean)}, {}, parallel));
  if (job.pass_factor != nullptr) *job.pass_factor = fitted.factor();
  const kernels::ChunkLayout& sent = fitted.plan().layout;
  FLUVIAL_ASSIGN(const std::unique_ptr<store::PendingWriter> writer,
                 store.begin_pass({job.run, job.round, job.from, job.epoch, job.attempt, sent.value_count,
                                   sent.chunk_count(), job.digest_kind}));
  SubmissionDigest digest(job.digest_kind, sent.chunk_count());
  FLUVIAL_TRY(write_chunks(*codec, fitted.plan(), digest, *writer));
  FLUVIAL_TRY(write_left(fitted, shapes.layout(), p, *writer, parallel));
  FLUVIAL_ASSIGN(const Buffer trailer, pending->read_trailer());
  FLUVIAL_TRY(writer->write_trailer(trailer.span()));
  return writer->finish(digest.finish(trailer.span()));
}

}  // namespace fluvial::edge
