#include "cli/round_export.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/serialize.hpp>

namespace fluvial::cli {
namespace {

constexpr std::uint64_t kFirstPage = 16;
constexpr std::uint64_t kPageMax = 1000;
constexpr std::uint64_t kContributorsOfAPage = 20'000;

constexpr const char* kOfTheRound[] = {"run",          "round",      "attempt", "committed_at", "seconds",
                                       "participants", "late",       "weight",  "model_sha256", "sum_sha256",
                                       "bytes_up",     "bytes_down", "metrics", "evaluation",   "master_sha256"};

std::string csv_quoted(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

// A peer's words: what a spreadsheet would take for a formula is text.
std::string quoted_words(std::string_view text) {
  const bool formula = !text.empty() && std::string_view("=+-@\t\r").find(text.front()) != std::string_view::npos;
  return csv_quoted(formula ? "'" + std::string(text) : std::string(text));
}

std::string cell(const json::value& value) {
  if (value.is_null()) return "";
  if (const auto* text = value.if_string()) return csv_quoted(*text);
  if (const double* number = value.if_double()) return fmt::format("{}", *number);
  return csv_quoted(one_line(value));
}

std::uint64_t next_limit(const json::array& rounds) {
  std::uint64_t contributors = rounds.size();
  for (const json::value& round : rounds) contributors += array_member(round, "contributors").size();
  return std::clamp<std::uint64_t>(kContributorsOfAPage * rounds.size() / contributors, 1, kPageMax);
}

}  // namespace

std::string csv_header() {
  return fmt::format(
      "{},site,outcome,site_weight,update_sha256,site_metrics,code,message,staleness,own_round,share,parent\n",
      fmt::join(kOfTheRound, ","));
}

std::string csv_lines(const json::value& round) {
  std::string start;
  for (const char* key : kOfTheRound) start += cell(member(round, key)) + ",";
  std::string lines;
  for (const json::value& one : array_member(round, "contributors")) {
    lines += fmt::format("{}{},counted,{},{},{},,,{},{},{},{}\n", start, cell(member(one, "name")),
                         cell(member(one, "weight")), cell(member(one, "digest")), cell(member(one, "metrics")),
                         cell(member(one, "staleness")), cell(member(one, "own_round")), cell(member(one, "share")),
                         cell(member(one, "parent")));
  }
  for (const json::value& one : array_member(round, "refused")) {
    lines += fmt::format("{}{},refused,,,,{},{},,,,\n", start, cell(member(one, "name")), cell(member(one, "code")),
                         quoted_words(text_member(one, "message")));
  }
  return lines;
}

Result<Exported> export_rounds(const FetchRounds& fetch, const WriteText& write, std::uint64_t from,
                               ExportFormat format) {
  Exported exported;
  if (format == ExportFormat::kCsv) FLUVIAL_TRY(write(csv_header()));
  std::uint64_t next = from;
  for (std::uint64_t limit = kFirstPage;;) {
    FLUVIAL_ASSIGN(const json::value page, fetch(next, limit));
    const json::array& rounds = array_member(page, "rounds");
    if (next == from) exported.pruned = count_member(page, "pruned");
    if (rounds.empty()) return exported;
    for (const json::value& round : rounds) {
      const std::uint64_t number = count_member(round, "round");
      if (number < next) return Error{Code::kDataLoss, "the coordinator answered with rounds that nobody asked for"};
      if (exported.rounds > 0 && number != next) {
        return Error{Code::kDataLoss,
                     fmt::format("rounds {} to {} were pruned before they were exported", next, number - 1)};
      }
      FLUVIAL_TRY(write(format == ExportFormat::kCsv ? csv_lines(round) : one_line(round) + "\n"));
      if (exported.rounds++ == 0) exported.first = number;
      exported.last = number;
      next = number + 1;
    }
    limit = next_limit(rounds);
  }
}

}  // namespace fluvial::cli
