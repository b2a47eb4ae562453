#include "edge/update/encoder.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace fluvial::edge {

bool Encoder::takes_chunks_as_they_come(const kernels::Codec& codec, kernels::ChunkLayout layout) {
  // What it finds out about a whole vector is kept in the workspace.
  return codec.workspace_bytes({layout, {}}) == 0 && codec.state_bytes({layout, {}}) == 0;
}

Encoder::Encoder(const kernels::Codec& codec, Buffer workspace, const kernels::EncodePlan& plan, Vector vector,
                 Chunks chunks)
    : codec_(codec),
      workspace_(std::move(workspace)),
      plan_(plan),
      vector_(vector),
      chunks_(std::move(chunks)),
      digest_(chunks_.digest, plan.layout.chunk_count()) {}

Result<std::unique_ptr<Encoder>> Encoder::make(const kernels::Codec& codec, const kernels::StreamKey& key,
                                               Vector vector, Chunks chunks, Parallel& parallel) {
  const kernels::VectorSchema schema{vector.layout, {}};
  Buffer workspace(codec.workspace_bytes(schema));
  kernels::PassInput input;
  if (parallel.width() > 1 && !chunks.make) {
    FLUVIAL_TRY(codec.survey(schema, vector.sent, key, workspace.span()));
    FLUVIAL_TRY(parallel.for_each(schema.layout.chunk_count(), [&](std::size_t i) {
      return codec.survey_chunk(schema, key, i, schema.layout.of(vector.sent, i), workspace.span());
    }));
    input.surveyed = true;
  }
  FLUVIAL_ASSIGN(const kernels::EncodePlan plan,
                 codec.prepare(schema, vector.sent, key, input, vector.state, workspace.span()));
  return std::unique_ptr<Encoder>(new Encoder(codec, std::move(workspace), plan, vector, std::move(chunks)));
}

Result<bool> Encoder::step(store::PendingWriter* writer, Parallel& parallel) {
  const std::size_t count = plan_.layout.chunk_count();
  if (slots_.empty()) slots_.assign(2 * std::min(parallel.width(), count), {});
  const std::size_t to_write = encoded_ - written_;
  const std::size_t to_encode = std::min(slots_.size() / 2, count - encoded_);
  const std::size_t writing = to_write > 0 ? 1 : 0;
  FLUVIAL_TRY(parallel.for_each(writing + to_encode, [&](std::size_t piece) -> Status {
    if (piece < writing) return write(writer, written_, to_write);
    return encode(encoded_ + (piece - writing));
  }));
  take_in(encoded_, to_encode);
  written_ = encoded_;
  encoded_ += to_encode;
  return written_ < count;
}

Status Encoder::run(store::PendingWriter* writer, Parallel& parallel) {
  for (bool more = true; more;) {
    FLUVIAL_ASSIGN(more, step(writer, parallel));
  }
  return {};
}

void Encoder::take_in(std::size_t first, std::size_t count) {
  for (std::size_t chunk = first; chunk < first + count && !given_up_; ++chunk) {
    const Slot& done = slot(chunk);
    decoded_.add(done.decoded);
    left_ += done.left;
    if (chunks_.encoded) chunks_.encoded(done.bytes, decoded_);
  }
}

double Encoder::left_norm() const { return std::sqrt(left_); }

Status Encoder::encode(std::size_t chunk) {
  if (chunks_.make) {
    FLUVIAL_ASSIGN(const bool makes_sense, chunks_.make(chunk));
    if (!makes_sense) given_up_ = true;
  }
  if (given_up_) return {};
  Slot& into = slot(chunk);
  const std::span<const float> values = plan_.layout.of(vector_.sent, chunk);
  Buffer memory(codec_.encoded_bytes_max(values.size()));
  FLUVIAL_ASSIGN(const std::size_t size, encode(chunk, values, memory.span(), into.left));
  const bool is_full = size > memory.size() / 4 * 3;
  memory.shrink(size);
  into.bytes = SharedBytes::from(is_full ? std::move(memory) : Buffer::copy_of(memory.span()));
  digest_.side_by_side(chunk, into.bytes.bytes);
  if (!chunks_.measures || !chunks_.measures(chunk)) return {};
  FLUVIAL_ASSIGN(into.decoded, codec_.screen_chunk(into.bytes.bytes, values.size(), plan_.layout.first_value(chunk)));
  return {};
}

// What the chunk leaves is measured while it is in the cache.
Result<std::size_t> Encoder::encode(std::size_t chunk, std::span<const float> values, MutableByteSpan out,
                                    double& left) {
  if (leaves_nothing(codec_, vector_.fit)) return codec_.encode_chunk(plan_, chunk, values, out);
  Values<float> memory(values.size());
  const std::span<float> residual = memory.span();
  std::size_t size = 0;
  if (vector_.fit.whole()) {
    FLUVIAL_ASSIGN(size, codec_.encode_residual_chunk(plan_, chunk, values, out, residual));
  } else {
    FLUVIAL_ASSIGN(size, codec_.encode_chunk(plan_, chunk, values, out));
    std::ranges::copy(plan_.layout.of(vector_.p, chunk), residual.begin());
    FLUVIAL_TRY(leave_residual(codec_, vector_.fit, out.first(size), residual));
  }
  left = square_sum(residual);
  return size;
}

Status Encoder::write(store::PendingWriter* writer, std::size_t first, std::size_t count) {
  for (std::size_t chunk = first; chunk < first + count && !given_up_; ++chunk) {
    Slot done = std::exchange(slot(chunk), {});
    if (writer == nullptr) continue;
    FLUVIAL_TRY(writer->write_p(plan_.layout.first_value(chunk), plan_.layout.of(vector_.p, chunk)));
    digest_.in_order(done.bytes.bytes);
    FLUVIAL_TRY(writer->keep_chunk(chunk, std::move(done.bytes)));
  }
  return {};
}

}  // namespace fluvial::edge
