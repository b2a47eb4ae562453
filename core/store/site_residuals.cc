// What a run carries over: its row, and its values wherever they are.
#include <algorithm>
#include <utility>

#include "core/store/site_rows.h"
#include "core/store/site_store.h"

namespace fluvial::store {
namespace {

// No codec takes twice a model's bytes (an index beside each value); the file's size says the rest (check_size).
constexpr std::uint64_t kChunkBytesMax = 4 * round::kModelBytesMax;

constexpr const char* kResidualColumns =
    "SELECT run, file, value_count, age_rounds, norm, chunks_file, chunk_ends, chunk_values, codec, fit_value_max, "
    "fit_factor, factor, state_bytes FROM residuals ";

std::uint64_t chunks_in(std::uint64_t value_count, std::uint64_t chunk_values) {
  return value_count / chunk_values + (value_count % chunk_values == 0 ? 0 : 1);
}

// So that nobody reads or reserves by a row that cannot be one.
Status check_residual(const ResidualRow& row) {
  FLUVIAL_TRY(check_file_name(row.file));
  FLUVIAL_TRY(factor_from(static_cast<double>(row.factor)));
  if (row.info.value_count > round::kModelBytesMax / sizeof(float)) return damaged_row("residual");
  if (row.state_bytes > kStateBytesMax) return damaged_row("residual: the length of its codec's state");
  if (!row.sent) return {};
  FLUVIAL_TRY(check_file_name(row.sent->chunks_file));
  const bool fits = row.sent->chunk_values > 0 &&
                    row.sent->chunk_ends.size() == chunks_in(row.info.value_count, row.sent->chunk_values);
  return fits ? Status{} : Status{damaged_row("residual: its chunks do not fit its length")};
}

// Unchecked, and without the ends of the chunks.
ResidualRow residual_from(const SqlRow& row) {
  ResidualRow found;
  found.file = row.text(1);
  found.info = {false, row.number(2), row.number(3), row.real(4)};
  found.factor = static_cast<float>(row.real(11));
  found.state_bytes = row.number(12);
  if (found.state_bytes > 0) found.state_codec = row.text(8);
  if (row.text(5).empty()) return found;
  const Fit fit{static_cast<float>(row.real(9)), static_cast<float>(row.real(10))};
  found.sent = {row.text(5), {}, row.number(7), row.text(8), fit};
  return found;
}

void keep_state(const PendingRow& pending, ResidualRow& row) {
  row.state_bytes = pending.info.start.state_bytes;
  if (row.state_bytes > 0) row.state_codec = pending.info.start.codec;
}

}  // namespace

Error damaged_row(std::string_view what) { return {Code::kDataLoss, "the store holds a damaged " + std::string(what)}; }

Result<float> factor_from(double value) {
  if (value > 0 && value <= 1) return static_cast<float>(value);
  return damaged_row("factor of a residual");
}

Status check_file_name(const std::string& name) {
  if (name.starts_with("t-") && name.find('/') == std::string::npos) return {};
  return damaged_row("name of a file");
}

Status check_size(File& file, std::uint64_t expected) {
  FLUVIAL_ASSIGN(const std::uint64_t size, file.size());
  return size >= expected ? Status{} : Status{damaged_row("submission: its file is cut short")};
}

Buffer ends_to_bytes(const std::vector<std::uint64_t>& ends) {
  Buffer bytes(ends.size() * 8);
  for (std::size_t i = 0; i < ends.size(); ++i) store_le<std::uint64_t>(bytes.data() + 8 * i, ends[i]);
  return bytes;
}

Result<std::vector<std::uint64_t>> ends_from_bytes(ByteSpan bytes) {
  std::vector<std::uint64_t> ends;
  for (std::size_t at = 0; at + 8 <= bytes.size(); at += 8) ends.push_back(load_le<std::uint64_t>(bytes.data() + at));
  const bool fit =
      bytes.size() % 8 == 0 && std::ranges::is_sorted(ends) && (ends.empty() || ends.back() <= kChunkBytesMax);
  if (!fit) return damaged_row("submission");
  return ends;
}

std::set<std::string> ResidualRow::files() const {
  std::set<std::string> names;
  if (!file.empty()) names.insert(file);
  if (sent) names.insert(sent->chunks_file);
  return names;
}

ResidualRow whole_of(const PendingRow& pending, std::uint64_t age_rounds) {
  const float factor = pending.info.start.late_factor;
  ResidualRow row{
      {false, pending.info.start.value_count, age_rounds, pending.info.p_norm * static_cast<double>(factor)},
      pending.p_file};
  row.factor = factor;
  keep_state(pending, row);
  return row;
}

Result<ResidualRow> left_of(const PendingRow& pending, std::optional<double> norm) {
  if (!norm) return ResidualRow();
  const PendingStart& start = pending.info.start;
  ResidualRow row{{false, start.value_count, 0, *norm}, pending.p_file};
  row.sent = {pending.chunks_file, pending.chunk_ends, start.chunk_values, start.codec, start.fit};
  keep_state(pending, row);
  FLUVIAL_TRY(check_residual(row));
  return row;
}

Result<ResidualRow> residual_row(Database& database, RunId run) {
  ResidualRow found;
  const std::string sql = std::string(kResidualColumns) + "WHERE run = ?";
  FLUVIAL_TRY(database.query(sql.c_str(), {run}, [&](const SqlRow& row) -> Status {
    found = residual_from(row);
    if (found.sent) {
      FLUVIAL_ASSIGN(found.sent->chunk_ends, ends_from_bytes(row.bytes(6)));
    }
    return check_residual(found);
  }));
  return found;
}

// Also of rows that are damaged: they are to be forgotten.
Result<std::map<RunId, ResidualRow>> residuals_before(Database& database, RunId run) {
  std::map<RunId, ResidualRow> found;
  const std::string sql = std::string(kResidualColumns) + "WHERE run < ?";
  FLUVIAL_TRY(database.query(sql.c_str(), {run}, [&](const SqlRow& row) -> Status {
    found[row.id<RunId>(0)] = residual_from(row);
    return {};
  }));
  return found;
}

Status write_residual(Database& database, RunId run, const ResidualRow& row) {
  FLUVIAL_TRY(database.run("DELETE FROM residuals WHERE run = ?", {run}));
  if (row.info.zero) return {};
  const ResidualRow::Sent sent = row.sent.value_or(ResidualRow::Sent());
  return database.run("INSERT INTO residuals VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                      {run, row.file, row.info.value_count, row.info.age_rounds, row.info.norm, sent.chunks_file,
                       ByteSpan(ends_to_bytes(sent.chunk_ends).span()), sent.chunk_values,
                       row.sent ? sent.codec : row.state_codec, static_cast<double>(sent.fit.value_max),
                       static_cast<double>(sent.fit.factor), static_cast<double>(row.factor), row.state_bytes});
}

Result<ResidualInfo> SiteStore::residual(RunId run) {
  const std::lock_guard lock(mutex_);
  FLUVIAL_ASSIGN(const ResidualRow row, residual_row(*database_, run));
  return row.info;
}

Result<Residual> SiteStore::open_residual(RunId run) {
  const std::lock_guard lock(mutex_);
  FLUVIAL_ASSIGN(ResidualRow row, residual_row(*database_, run));
  Residual residual;
  residual.info_ = row.info;
  residual.factor_ = row.factor;
  residual.codec_ = row.state_codec;
  residual.state_bytes_ = row.state_bytes;
  if (row.info.zero) return residual;
  FLUVIAL_ASSIGN(residual.file_, files_.open(path_of(row.file), OpenMode::kRead));
  spares_.reads(row.file, residual.file_);
  if (!row.sent) return residual;
  FLUVIAL_ASSIGN(residual.chunks_, files_.open(path_of(row.sent->chunks_file), OpenMode::kRead));
  spares_.reads(row.sent->chunks_file, residual.chunks_);
  FLUVIAL_ASSIGN(residual.chunks_bytes_, residual.chunks_->size());
  if (!leave_) return Error{Code::kFailedPrecondition, "the store was opened without the codec of its residual"};
  FLUVIAL_ASSIGN(residual.leave_, leave_(row.sent->codec, row.sent->fit));
  residual.chunk_ends_ = std::move(row.sent->chunk_ends);
  residual.chunk_values_ = row.sent->chunk_values;
  return residual;
}

Status SiteStore::read_residual(RunId run, std::uint64_t first_value, std::span<float> into) {
  FLUVIAL_ASSIGN(const Residual residual, open_residual(run));
  return residual.read(first_value, into);
}

Status Residual::read_chunk(std::uint64_t index, std::span<float> into) const {
  FLUVIAL_ASSIGN(const Buffer chunk, counted_chunk(index));
  FLUVIAL_TRY(read_exactly(*file_, index * chunk_values_ * sizeof(float), std::as_writable_bytes(into), "the update"));
  return leave_(chunk.span(), into);
}

Result<Buffer> Residual::counted_chunk(std::size_t index) const {
  if (chunk_ends_[index] > chunks_bytes_) return damaged_row("residual: the file of its chunks is cut short");
  const std::uint64_t begin = index == 0 ? 0 : chunk_ends_[index - 1];
  Buffer chunk(chunk_ends_[index] - begin);
  FLUVIAL_TRY(read_exactly(*chunks_, begin, chunk.span(), "the encoded update"));
  return chunk;
}

Status Residual::read_state(MutableByteSpan into) const {
  FLUVIAL_CHECK(into.size() == state_bytes_, "memory that does not fit the codec's state");
  if (into.empty()) return {};
  return read_exactly(*file_, info_.value_count * sizeof(float), into, "the codec's state");
}

Status Residual::read(std::uint64_t first_value, std::span<float> into) const {
  if (info_.zero) {
    std::ranges::fill(into, 0.0F);
    return {};
  }
  if (first_value > info_.value_count || into.size() > info_.value_count - first_value) {
    return Error{Code::kFailedPrecondition,
                 "the residual has " + std::to_string(info_.value_count) + " values, not those asked for"};
  }
  if (!chunks_) {
    FLUVIAL_TRY(read_exactly(*file_, first_value * sizeof(float), std::as_writable_bytes(into), "the residual"));
    if (factor_ == 1) return {};
    for (float& value : into) value *= factor_;
    return {};
  }
  for (std::size_t done = 0; done < into.size();) {
    const std::uint64_t index = (first_value + done) / chunk_values_;
    const std::uint64_t begin = index * chunk_values_;
    const std::uint64_t offset = first_value + done - begin;
    const std::uint64_t size = std::min(chunk_values_, info_.value_count - begin);
    const std::uint64_t count = std::min<std::uint64_t>(size - offset, into.size() - done);
    if (count == size) {
      FLUVIAL_TRY(read_chunk(index, into.subspan(done, count)));
    } else {
      Values<float> whole(size);
      FLUVIAL_TRY(read_chunk(index, whole.span()));
      std::ranges::copy(whole.span().subspan(offset, count), into.subspan(done, count).begin());
    }
    done += count;
  }
  return {};
}

}  // namespace fluvial::store
