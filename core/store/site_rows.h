// Rows of a site's journal. Inside this room only.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/store/site_store.h"
#include "core/store/sqlite.h"

namespace fluvial::store {

inline constexpr std::uint64_t kStateBytesMax = 4 * round::kModelBytesMax;  // no codec keeps more

struct PendingRow {
  PendingInfo info;
  std::vector<std::uint64_t> chunk_ends;
  std::string p_file;
  std::string chunks_file;
};
// A later pass of a submission. Its info is that of an update that is sent.
struct PassRow {
  PendingInfo info;
  Epoch epoch;
  AttemptId attempt;
  double left_norm = 0;
  std::vector<std::uint64_t> chunk_ends;
  std::string left_file;
  std::string chunks_file;
};
Result<std::vector<PassRow>> pass_rows(Database& database, const PendingRow& pending);  // in order
// What is left of it, with its later passes, when it is counted; `norm` where there are none.
Result<struct ResidualRow> left_by(const PendingRow& pending, const std::vector<PassRow>& passes,
                                   std::optional<double> norm);
std::set<std::string> files_of(const PendingRow& pending, const std::vector<PassRow>& passes);

// What a run carries over: a file of its own, or a counted submission's p and the chunks that were sent of it.
struct ResidualRow {
  ResidualInfo info;
  std::string file;  // the residual, or p
  struct Sent {
    std::string chunks_file;
    std::vector<std::uint64_t> chunk_ends;
    std::uint64_t chunk_values = 0;  // of each chunk but the last
    std::string codec;
    Fit fit;
  };
  std::optional<Sent> sent = {};
  float factor = 1;               // what the file holds, times this, is the residual; 1 where there is a `sent`
  std::uint64_t state_bytes = 0;  // of the codec's state, behind the values in the file
  std::string state_codec = {};   // whose it is; empty: none

  std::set<std::string> files() const;
};
ResidualRow whole_of(const PendingRow& pending, std::uint64_t age_rounds);           // p, damped: it was late
Result<ResidualRow> left_of(const PendingRow& pending, std::optional<double> norm);  // it was counted
Result<ResidualRow> residual_row(Database& database, RunId run);
Result<std::map<RunId, ResidualRow>> residuals_before(Database& database, RunId run);  // unchecked; no chunk_ends
Status write_residual(Database& database, RunId run, const ResidualRow& row);          // in the place of what there is

Result<float> factor_from(double value);  // above 0, at most 1
Error damaged_row(std::string_view what);
Status check_file_name(const std::string& name);  // as the store names its files, and so within the folder
Status check_size(File& file, std::uint64_t expected);
Buffer ends_to_bytes(const std::vector<std::uint64_t>& ends);
Result<std::vector<std::uint64_t>> ends_from_bytes(ByteSpan bytes);  // that a submission can have

Result<std::optional<PendingRow>> pending_row(Database& database, RunId run);
std::string beyond(const ResidualInfo& residual, const ResidualBounds& bounds);  // why it is not kept; empty if it is

}  // namespace fluvial::store
