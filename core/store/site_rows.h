// Rows of a site's journal. Inside this room only.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/store/site_store.h"
#include "core/store/sqlite.h"

namespace fluvial::store {

struct PendingRow {
  PendingInfo info;
  std::vector<std::uint64_t> chunk_ends;
  std::string p_file;
  std::string chunks_file;
};
Result<std::optional<PendingRow>> pending_row(Database& database, RunId run);
std::string beyond(const ResidualInfo& residual, const ResidualBounds& bounds);  // why it is not kept; empty if it is

}  // namespace fluvial::store
