#include "edge/service/encode.h"

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/digest/sha256.h"
#include "core/tree/sum.h"
#include "edge/service/update.h"
#include "kernels/codec.h"

namespace fluvial::edge {
namespace {

kernels::ChunkLayout layout_of(const EncodeJob& job) {
  return {job.trained.base.schema.value_count(), job.plan.chunk_values};
}

store::PendingStart start_of(const EncodeJob& job, std::string codec, bool lossless) {
  const kernels::ChunkLayout layout = layout_of(job);
  store::PendingStart start;
  start.run = job.run;
  start.round = job.round;
  start.weight = job.trained.weight;
  start.codec = std::move(codec);
  start.base = job.trained.base.ref.digest;
  start.metrics = job.trained.metrics;
  start.value_count = layout.value_count;
  start.chunk_count = layout.chunk_count();
  start.integer_count = job.trained.base.schema.integer_count();
  start.lossless = lossless;
  start.chunk_values = layout.chunk_values;
  return start;
}

// The digest of a submission: over the chunks' bytes in order, then the integers', 8 bytes each, little-endian.
Result<store::PendingUpdate> finish(store::PendingWriter& writer, Sha256& hash,
                                    const std::vector<std::int64_t>& integers) {
  Buffer bytes(integers.size() * sizeof(std::int64_t));
  for (std::size_t i = 0; i < integers.size(); ++i) {
    store_le(bytes.data() + i * sizeof(std::int64_t), static_cast<std::uint64_t>(integers[i]));
  }
  hash.update(bytes.span());
  if (!integers.empty()) FLUVIAL_TRY(writer.write_integers(integers));
  return writer.finish(hash.finish());
}

// Chunks are encoded side by side, a few at a time, and written and hashed in order.
class Encoder {
 public:
  static Result<std::unique_ptr<Encoder>> make(const EncodeJob& job, Update& update) {
    FLUVIAL_ASSIGN(const kernels::CodecSpec spec, kernels::parse_codec(job.plan.codec));
    FLUVIAL_ASSIGN(std::unique_ptr<kernels::Codec> codec, kernels::make_codec(spec));
    const kernels::ChunkLayout layout = layout_of(job);
    const kernels::VectorSchema schema{layout, {}};
    if (codec->passes() != 1 || codec->state_bytes(schema) != 0) {
      return Error{Code::kFailedPrecondition,
                   "codec " + job.plan.codec + " has passes or a state of its own, which sites do not keep"};
    }
    Buffer workspace(codec->workspace_bytes(schema));
    const kernels::StreamKey key{job.run.value(), job.round.value(), job.site.value()};
    FLUVIAL_ASSIGN(const kernels::EncodePlan plan,
                   codec->prepare(schema, update.values(), key, {}, {}, workspace.span()));
    return std::unique_ptr<Encoder>(new Encoder(std::move(codec), std::move(workspace), plan, update));
  }

  bool lossless() const { return codec_->lossless(); }
  std::size_t chunk_count() const { return plan_.layout.chunk_count(); }

  void reserve(std::size_t batch) {
    slots_.clear();
    const auto values = static_cast<std::size_t>(std::min(plan_.layout.chunk_values, plan_.layout.value_count));
    for (std::size_t i = 0; i < batch; ++i) slots_.push_back({Buffer(codec_->encoded_bytes_max(values)), 0});
  }
  Status encode(std::size_t slot, std::size_t chunk) {
    FLUVIAL_ASSIGN(slots_[slot].size, codec_->encode_chunk(plan_, chunk, values(chunk), slots_[slot].bytes.span()));
    return {};
  }
  Status write(std::size_t slot, std::size_t chunk, store::PendingWriter& writer) {
    const ByteSpan bytes = slots_[slot].bytes.span().first(slots_[slot].size);
    FLUVIAL_TRY(writer.write_p(plan_.layout.first_value(chunk), values(chunk)));
    FLUVIAL_TRY(writer.write_chunk(chunk, bytes));
    hash_.update(bytes);
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
  std::span<const float> values(std::size_t chunk) const { return plan_.layout.of(update_.values(), chunk); }

  std::unique_ptr<kernels::Codec> codec_;
  Buffer workspace_;  // which the plan may point into
  kernels::EncodePlan plan_;
  Update& update_;
  std::vector<Slot> slots_;
  Sha256 hash_;
};

Result<store::ResidualInfo> write_and_fold(store::SiteStore& store, const EncodeJob& job, Update& update) {
  const kernels::ChunkLayout layout = layout_of(job);
  FLUVIAL_ASSIGN(const std::unique_ptr<store::PendingWriter> writer,
                 store.begin_pending(start_of(job, kernels::to_string(kernels::CodecSpec{}), /*lossless=*/true)));
  Sha256 hash;
  for (std::size_t i = 0; i < layout.chunk_count(); ++i) {
    const ByteSpan bytes = std::as_bytes(layout.of(update.values(), i));
    FLUVIAL_TRY(writer->write_chunk(i, bytes));
    hash.update(bytes);
  }
  const Result<store::PendingUpdate> finished = finish(*writer, hash, update.integers);
  if (!finished.ok()) return finished.error();
  return store.resolve(job.run, job.round, store::Outcome::kLate);
}

}  // namespace

// NOLINTNEXTLINE(cppcoreguidelines-avoid-reference-coroutine-parameters): runtime and store outlive every task
net::Awaitable<Result<store::PendingUpdate>> encode_update(tree::Runtime* runtime, store::SiteStore* store,
                                                           EncodeJob job) {
  Result<Update> update = co_await make_update(runtime, store, &job.trained, layout_of(job), job.plan.value_abs_max);
  if (!update.ok()) co_return update.error();
  Result<std::unique_ptr<Encoder>> made = co_await runtime->pool.run([&] { return Encoder::make(job, *update); });
  if (!made.ok()) co_return made.error();
  Encoder& encoder = **made;
  Result<std::unique_ptr<store::PendingWriter>> begun = co_await runtime->pool.run(
      [&] { return store->begin_pending(start_of(job, job.plan.codec, encoder.lossless())); });
  if (!begun.ok()) co_return begun.error();
  store::PendingWriter& writer = **begun;

  const std::size_t batch_max = std::min(std::max<std::size_t>(1, runtime->pool_threads), encoder.chunk_count());
  encoder.reserve(batch_max);
  for (std::size_t first = 0; first < encoder.chunk_count(); first += batch_max) {
    const std::size_t batch = std::min(batch_max, encoder.chunk_count() - first);
    const Status encoded = co_await tree::for_each_chunk(
        *runtime, batch, [&encoder, first](std::size_t slot) { return encoder.encode(slot, first + slot); });
    if (!encoded.ok()) co_return encoded.error();
    const Status written = co_await runtime->pool.run([&]() -> Status {
      for (std::size_t slot = 0; slot < batch; ++slot) FLUVIAL_TRY(encoder.write(slot, first + slot, writer));
      return {};
    });
    if (!written.ok()) co_return written.error();
  }
  co_return co_await runtime->pool.run([&] { return encoder.finish(writer); });
}

// NOLINTNEXTLINE(cppcoreguidelines-avoid-reference-coroutine-parameters): runtime and store outlive every task
net::Awaitable<Result<store::ResidualInfo>> fold_update(tree::Runtime* runtime, store::SiteStore* store,
                                                        EncodeJob job) {
  Result<Update> update = co_await make_update(runtime, store, &job.trained, layout_of(job), job.plan.value_abs_max);
  if (!update.ok()) co_return update.error();
  co_return co_await runtime->pool.run([&] { return write_and_fold(*store, job, *update); });
}

}  // namespace fluvial::edge
