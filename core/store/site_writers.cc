// The streams into and out of a SiteStore's tensor files.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "core/round/probe.h"
#include "core/store/site_store.h"

namespace fluvial::store {
namespace {

// Four partial sums, so that the additions do not wait for each other.
double square_sum(std::span<const float> values) {
  double sums[4] = {};
  std::size_t i = 0;
  for (; i + 4 <= values.size(); i += 4) {
    for (std::size_t lane = 0; lane < 4; ++lane) {
      const double value = static_cast<double>(values[i + lane]);
      sums[lane] += value * value;
    }
  }
  for (; i < values.size(); ++i) sums[0] += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// The same over bytes that need not be aligned.
double square_sum(ByteSpan bytes) {
  float block[1024];
  double sum = 0;
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(block)) {
    const std::size_t count = std::min(sizeof(block), bytes.size() - at);
    std::memcpy(block, bytes.data() + at, count);
    sum += square_sum(std::span<const float>(block, count / sizeof(float)));
  }
  return sum;
}

Error out_of_order(std::string_view what, std::uint64_t given, std::uint64_t expected) {
  return {Code::kFailedPrecondition, std::string(what) + " " + std::to_string(given) + " where " +
                                         std::to_string(expected) + " is next, or more than was announced"};
}

}  // namespace

PendingWriter::~PendingWriter() {
  if (finished_) return;
  store_->remove_file(chunks_name_);
  if (p_name_ != chunks_name_) store_->remove_file(p_name_);
}

Status PendingWriter::write_p(std::uint64_t first_value, std::span<const float> values) {
  if (info_.start.lossless) return {};
  if (first_value != values_written_ || values.size() > info_.start.value_count - values_written_) {
    return out_of_order("value", first_value, values_written_);
  }
  FLUVIAL_TRY(p_.file->write_at(first_value * sizeof(float), std::as_bytes(values)));
  values_written_ += values.size();
  square_sum_ += square_sum(values);
  return {};
}

Status PendingWriter::write_state(ByteSpan state) {
  if (state_written_ || state.size() != info_.start.state_bytes) {
    return Error{Code::kFailedPrecondition, "codec's state: expected " + std::to_string(info_.start.state_bytes) +
                                                " bytes, once, and these are " + std::to_string(state.size())};
  }
  state_written_ = true;
  return p_.file->write_at(info_.start.value_count * sizeof(float), state);
}

Status PendingWriter::write_chunk(std::uint64_t index, ByteSpan encoded) {
  if (index != chunk_ends_.size() || index >= info_.start.chunk_count) {
    return out_of_order("chunk", index, chunk_ends_.size());
  }
  FLUVIAL_TRY(chunks_.file->write_at(info_.chunk_bytes, encoded));
  info_.chunk_bytes += encoded.size();
  chunk_ends_.push_back(info_.chunk_bytes);
  if (info_.start.lossless) {
    values_written_ += encoded.size() / sizeof(float);
    square_sum_ += square_sum(encoded);
  }
  return {};
}

// The encoded update is kept only as a whole, and only if it takes no more memory than the update itself did.
Status PendingWriter::keep_chunk(std::uint64_t index, SharedBytes encoded) {
  FLUVIAL_TRY(write_chunk(index, encoded.bytes));
  kept_bytes_ += encoded.bytes.size();
  if (kept_.size() == index && kept_bytes_ <= info_.start.value_count * sizeof(float)) {
    kept_.push_back(std::move(encoded));
  } else {
    kept_.clear();
  }
  return {};
}

Status PendingWriter::write_trailer(ByteSpan trailer) {
  const std::uint64_t expected = info_.start.integer_count * sizeof(std::int64_t) + round::kProbeBytes;
  if (info_.trailer_bytes > 0 || chunk_ends_.size() != info_.start.chunk_count || trailer.size() != expected) {
    return Error{Code::kFailedPrecondition,
                 "trailer: expected " + std::to_string(expected) + " bytes, once, after the last chunk"};
  }
  FLUVIAL_TRY(chunks_.file->write_at(info_.chunk_bytes, trailer));
  info_.trailer_bytes = expected;
  if (kept_.size() == chunk_ends_.size()) kept_.push_back(SharedBytes::from(Buffer::copy_of(trailer)));
  return {};
}

PendingUpdate PendingWriter::update() const {
  PendingUpdate update;
  update.info_ = info_;
  update.chunk_ends_ = chunk_ends_;
  update.memory_ = memory_;
  update.p_ = p_.file;
  update.chunks_ = chunks_.file;
  return update;
}

Result<PendingUpdate> PendingWriter::finish(const Digest& digest, std::optional<double> left_norm) {
  const PendingStart& start = info_.start;
  const bool bytes_fit = !start.lossless || info_.chunk_bytes == start.value_count * sizeof(float);
  if (finished_ || chunk_ends_.size() != start.chunk_count || values_written_ != start.value_count || !bytes_fit ||
      info_.trailer_bytes == 0 || state_written_ != (start.state_bytes > 0)) {
    return Error{Code::kFailedPrecondition, "a submission that is not whole: " + std::to_string(values_written_) +
                                                " of " + std::to_string(start.value_count) + " values, " +
                                                std::to_string(chunk_ends_.size()) + " of " +
                                                std::to_string(start.chunk_count) + " chunks"};
  }
  info_.digest = digest;
  info_.left_norm = pass_ ? std::optional(std::sqrt(square_sum_)) : left_norm;
  if (!pass_) info_.p_norm = std::sqrt(square_sum_);
  if (kept_.size() > start.chunk_count) memory_ = std::make_shared<const std::vector<SharedBytes>>(std::move(kept_));
  return store_->finish(*this);
}

ResidualWriter::~ResidualWriter() {
  if (!kept_) store_->remove_file(name_);
}

Status ResidualWriter::write(std::uint64_t first_value, std::span<const float> values) {
  if (first_value != value_count_) return out_of_order("value", first_value, value_count_);
  FLUVIAL_TRY(slot_.file->write_at(first_value * sizeof(float), std::as_bytes(values)));
  value_count_ += values.size();
  square_sum_ += square_sum(values);
  return {};
}

Status ResidualWriter::write_state(const std::string& codec, ByteSpan state) {
  FLUVIAL_TRY(slot_.file->write_at(value_count_ * sizeof(float), state));
  codec_ = codec;
  state_bytes_ = state.size();
  return {};
}

std::uint64_t PendingUpdate::chunk_size_bytes(std::uint64_t index) const {
  return chunk_ends_.at(index) - (index == 0 ? 0 : chunk_ends_[index - 1]);
}

Status PendingUpdate::read_chunk(std::uint64_t index, MutableByteSpan into) const {
  FLUVIAL_CHECK(into.size() == chunk_size_bytes(index), "a buffer that does not fit the chunk");
  return read_exactly(*chunks_, chunk_ends_[index] - into.size(), into, "the encoded update");
}

Result<Buffer> PendingUpdate::read_chunk(std::uint64_t index) const {
  Buffer chunk(chunk_size_bytes(index));
  FLUVIAL_TRY(read_chunk(index, chunk.span()));
  return chunk;
}

Result<Buffer> PendingUpdate::read_trailer() const {
  Buffer trailer(info_.trailer_bytes);
  FLUVIAL_TRY(read_exactly(*chunks_, info_.chunk_bytes, trailer.span(), "the encoded update"));
  return trailer;
}

Result<SharedBytes> PendingUpdate::chunk(std::uint64_t index) const {
  if (memory_) return memory_->at(index);
  FLUVIAL_ASSIGN(Buffer chunk, read_chunk(index));
  return SharedBytes::from(std::move(chunk));
}

Result<SharedBytes> PendingUpdate::trailer() const {
  if (memory_) return memory_->back();
  FLUVIAL_ASSIGN(Buffer trailer, read_trailer());
  return SharedBytes::from(std::move(trailer));
}

Status PendingUpdate::read_integers(std::span<std::int64_t> into) const {
  FLUVIAL_CHECK(into.size() == info_.start.integer_count, "a span that does not fit the integers");
  return read_exactly(*chunks_, info_.chunk_bytes, std::as_writable_bytes(into), "the encoded update");
}

Status PendingUpdate::read_p(std::uint64_t first_value, std::span<float> into) const {
  const std::uint64_t count = info_.start.value_count;
  if (first_value > count || into.size() > count - first_value) {
    return Error{Code::kFailedPrecondition, "the update has " + std::to_string(count) + " values"};
  }
  return read_exactly(*p_, first_value * sizeof(float), std::as_writable_bytes(into), "the update");
}

}  // namespace fluvial::store
