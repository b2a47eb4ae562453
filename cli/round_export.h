// A run's committed rounds as JSON lines or CSV, page by page: no more than a page is in memory.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "cli/json.h"

namespace fluvial::cli {

enum class ExportFormat { kJsonLines, kCsv };

struct Exported {
  std::uint64_t rounds = 0;
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  std::uint64_t pruned = 0;  // the coordinator's journal does not hold rounds up to here any more
};

// `fetch` gives the answer of GET /v1/rounds; `write` takes whole lines. kDataLoss: rounds were pruned while they were
// being exported, and are in neither.
using FetchRounds = std::function<Result<json::value>(std::uint64_t from, std::uint64_t limit)>;
using WriteText = std::function<Status(std::string_view text)>;
Result<Exported> export_rounds(const FetchRounds& fetch, const WriteText& write, std::uint64_t from,
                               ExportFormat format);

// A round as lines of CSV (RFC 4180): one for each contributor and each refusal.
std::string csv_header();
std::string csv_lines(const json::value& round);

}  // namespace fluvial::cli
