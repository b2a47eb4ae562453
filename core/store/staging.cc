#include "core/store/staging.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace fluvial::store {

namespace {

// A fault of this node's disk is no fault of the update, so codes that would drop the update are not passed on.
Error disk_error(const std::string& folder, const Error& error) {
  const bool full = error.code == Code::kResourceExhausted;
  return {full ? Code::kResourceExhausted : Code::kUnavailable,
          "the disk that updates wait on (" + folder + ") " + (full ? "is full: " : "failed: ") + error.message};
}

}  // namespace

std::uint64_t staging_bytes_for(std::uint64_t value_count) {
  constexpr std::uint64_t kBytesPerValue = 8;
  const std::uint64_t most = std::numeric_limits<std::uint64_t>::max() / kBytesPerValue;
  return std::max(kStagingBytesLeast, kBytesPerValue * std::min(value_count, most));
}

bool StagingBudget::try_take(std::uint64_t bytes) {
  const std::uint64_t most = bytes_max();
  std::uint64_t used = used_.load(std::memory_order_relaxed);
  do {
    if (bytes > most || used > most - bytes) return false;
  } while (!used_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
  return true;
}

void StagingBudget::give_back(std::uint64_t bytes) {
  const std::uint64_t before = used_.fetch_sub(bytes, std::memory_order_relaxed);
  FLUVIAL_CHECK(before >= bytes, "more given back than taken");
}

StagedUpdate::StagedUpdate(StagingBudget& budget, FileSystem& files, std::string folder, std::uint64_t bytes_max)
    : budget_(&budget), files_(&files), folder_(std::move(folder)), bytes_max_(bytes_max) {}

StagedUpdate::StagedUpdate(StagedUpdate&& other) noexcept
    : budget_(other.budget_),
      files_(other.files_),
      folder_(std::move(other.folder_)),
      bytes_max_(other.bytes_max_),
      chunks_(std::exchange(other.chunks_, {})),
      file_(std::move(other.file_)),
      reading_(std::move(other.reading_)),
      file_failed_(std::exchange(other.file_failed_, false)),
      total_bytes_(std::exchange(other.total_bytes_, 0)),
      spilled_bytes_(std::exchange(other.spilled_bytes_, 0)) {}

StagedUpdate::~StagedUpdate() { clear(); }

void StagedUpdate::clear() {
  budget_->give_back(total_bytes_ - spilled_bytes_);
  budget_->note_dropped(spilled_bytes_);
  chunks_.clear();
  if (file_ && !file_failed_) budget_->files().keep(*files_, folder_, std::move(file_));
  file_.reset();
  file_failed_ = false;
  total_bytes_ = 0;
  spilled_bytes_ = 0;
}

Status StagedUpdate::append(Buffer chunk) {
  const std::uint64_t size = chunk.size();
  if (size > bytes_max_ - total_bytes_) {
    return Error{Code::kResourceExhausted, "an update of more than " + std::to_string(bytes_max_) + " bytes"};
  }
  if (budget_->try_take(size)) {
    chunks_.push_back({std::move(chunk), 0, size});
    total_bytes_ += size;
    return {};
  }
  const Status written = write_beyond(chunk.span());
  if (!written.ok()) return disk_error(folder_, written.error());
  chunks_.push_back({Buffer(), spilled_bytes_, size});
  total_bytes_ += size;
  spilled_bytes_ += size;
  budget_->note_spilled(size);
  return {};
}

Status StagedUpdate::write_beyond(ByteSpan chunk) {
  if (!file_) {
    FLUVIAL_ASSIGN(file_, budget_->files().take(*files_, folder_));
    reading_ = std::make_unique<std::mutex>();
  }
  Status written = file_->write_at(spilled_bytes_, chunk);
  const bool full = !written.ok() && written.error().code == Code::kResourceExhausted;
  if (full && budget_->files().close_kept()) written = file_->write_at(spilled_bytes_, chunk);
  if (!written.ok()) file_failed_ = true;
  return written;
}

Result<ByteSpan> StagedUpdate::read(std::uint64_t index, Buffer& scratch) const {
  const Chunk& chunk = chunks_.at(index);
  if (chunk.memory.size() == chunk.size_bytes) return chunk.memory.span();
  if (scratch.size() < chunk.size_bytes) scratch = Buffer(chunk.size_bytes);
  const MutableByteSpan into = scratch.span().first(chunk.size_bytes);
  const std::lock_guard lock(*reading_);
  const Status read = read_exactly(*file_, chunk.file_offset, into, "its file");
  if (!read.ok()) {
    file_failed_ = true;
    return disk_error(folder_, read.error());
  }
  return ByteSpan(into);
}

Status StagedUpdate::for_each(const std::function<Status(std::uint64_t, ByteSpan)>& visit) const {
  Buffer scratch;
  for (std::uint64_t i = 0; i < chunks_.size(); ++i) {
    FLUVIAL_ASSIGN(const ByteSpan chunk, read(i, scratch));
    FLUVIAL_TRY(visit(i, chunk));
  }
  return {};
}

}  // namespace fluvial::store
