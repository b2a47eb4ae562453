// A committed round as the admin API gives it, for the audit of bench_audit.h.
#pragma once

#include <cstdint>

#include "cli/json.h"

namespace fluvial::cli {

// The entry of a site, in any of a round's lists; null: it is not there.
const json::value* entry_of(const json::array& entries, std::uint32_t node);
// Whether the site's update was refused for what it is; after any other refusal it is late.
bool is_dropped(const json::value& round, std::uint32_t node);
Status check_weight(const json::value& round, std::uint64_t journalled, std::uint64_t expected);
// The contributors of pass 0. kDataLoss: there are not as many passes as the codec has.
Result<json::array> first_pass_of(const json::value& round);

}  // namespace fluvial::cli
