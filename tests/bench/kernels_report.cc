#include "tests/bench/kernels_report.h"

#include <algorithm>
#include <cstdio>
#include <string_view>

namespace fluvial::bench {
namespace {

constexpr std::size_t kNeededAtValues = 25'000'000;
constexpr double kAvx2Part = 0.75;      // of each figure
constexpr double kTwoThreadPart = 1.8;  // of one thread

// The ratio to memcpy that one thread has to reach at 25 M normally distributed values (AVX-512).
struct Need {
  std::string_view kernel, codec, rounding;
  double ratio;
};
constexpr Need kNeeds[] = {
    {"reduce", "fp32", "", 1.5},
    {"screen", "fp32", "", 1.1},
    {"accumulate", "fp32", "", 0.70},
    {"accumulate", "bf16", "", 0.80},
    {"accumulate", "int8", "", 0.85},
    {"accumulate", "sign", "", 0.90},
    {"decode_accumulate", "fp32", "", 0.42},
    {"decode_accumulate", "bf16", "", 0.46},
    {"decode_accumulate", "int8", "", 0.50},
    {"decode_accumulate", "sign", "", 0.50},
    {"decode_accumulate", "topk", "", 3.0},
    {"encode", "bf16", "", 0.80},
    {"encode", "fp16", "", 0.80},
    {"encode", "int8", "nearest", 0.80},
    {"encode", "int8", "stochastic", 0.70},
    {"encode_residual", "int8", "stochastic", 0.35},
    {"encode", "sign", "", 1.0},
    {"encode_residual", "sign", "", 0.45},
    {"encode", "topk", "", 0.55},
    {"encode_residual", "topk", "", 0.50},
    {"encode", "qsgd", "", 0.50},
    {"encode", "terngrad", "", 0.50},
    {"encode_residual", "powersgd", "", 0.24},
    {"encode_residual", "powersgd:rank=4", "", 0.20},
    {"optimize", "fedadam", "", 0.30},
};

bool same_kernel(const Figures& a, const Figures& b) {
  return a.kernel == b.kernel && a.codec == b.codec && a.backend == b.backend && a.rounding == b.rounding;
}

const Figures* find(const std::vector<Figures>& rows, const Figures& like, std::size_t values, std::string_view target,
                    std::size_t threads) {
  const auto found = std::ranges::find_if(rows, [&](const Figures& row) {
    return same_kernel(row, like) && row.values == values && row.target == target && row.threads == threads;
  });
  return found == rows.end() ? nullptr : &*found;
}

template <typename... Arguments>
std::string print(const char* format, Arguments... arguments) {
  char text[512];
  const int size = std::snprintf(text, sizeof(text), format, arguments...);
  return {text, static_cast<std::size_t>(std::max(size, 0))};
}

}  // namespace

std::optional<double> needed(const Figures& row, const std::vector<Figures>& others) {
  if (row.backend != "cpu" || row.values != kNeededAtValues) return std::nullopt;
  if (row.threads == 2) {
    const Figures* one = find(others, row, row.values, row.target, 1);
    return one == nullptr ? std::nullopt : std::optional(kTwoThreadPart * one->ratio_to_copy);
  }
  const auto need = std::ranges::find_if(kNeeds, [&](const Need& each) {
    return each.kernel == row.kernel && each.codec == row.codec && each.rounding == row.rounding;
  });
  if (need == std::end(kNeeds) || row.threads != 1 || row.target == "baseline") return std::nullopt;
  return row.target == "avx2" ? kAvx2Part * need->ratio : need->ratio;
}

std::string text_header() {
  return print("%-24s %-18s %-10s %-8s %7s %11s %10s %9s %7s %6s\n", "kernel", "codec", "rounding", "target", "threads",
               "values", "ms", "GB/s", "ratio", "needs");
}

std::string text_row(const Figures& row, std::optional<double> needs) {
  std::string text = print("%-24s %-18s %-10s %-8s %7zu %11zu %10.3f %9.2f %7.3f", row.kernel.c_str(),
                           row.codec.c_str(), row.rounding.c_str(), row.target.c_str(), row.threads, row.values,
                           1e3 * row.seconds_median, row.gb_per_s, row.ratio_to_copy);
  if (needs) text += print(" %6.2f%s", *needs, row.ratio_to_copy < *needs ? "  below" : "");
  return text + "\n";
}

std::string json_of(const std::vector<Figures>& rows) {
  std::string text = "[";
  for (const Figures& row : rows) {
    text += text.size() > 1 ? ",\n " : "\n ";
    text += print("{\"kernel\": \"%s\", \"codec\": \"%s\", \"backend\": \"%s\", \"target\": \"%s\", ",
                  row.kernel.c_str(), row.codec.c_str(), row.backend.c_str(), row.target.c_str());
    text += print("\"threads\": %zu, \"rounding\": \"%s\", \"values\": %zu, ", row.threads, row.rounding.c_str(),
                  row.values);
    text += print("\"seconds_median\": %.9g, \"values_per_s\": %.6g, \"gb_per_s\": %.6g, \"ratio_to_copy\": %.4f}",
                  row.seconds_median, row.values_per_s, row.gb_per_s, row.ratio_to_copy);
  }
  return text + "\n]\n";
}

// A line a kernel and codec; the ratios at each size, with AVX2 and on two threads.
std::string markdown_of(const std::vector<Figures>& rows) {
  struct Column {
    const char* title;
    std::size_t values;
    const char* target;
    std::size_t threads;
  };
  constexpr Column kColumns[] = {{"1 M", 1'000'000, "avx512", 1},
                                 {"25 M", kNeededAtValues, "avx512", 1},
                                 {"100 M", 100'000'000, "avx512", 1},
                                 {"25 M, AVX2", kNeededAtValues, "avx2", 1},
                                 {"25 M, two threads", kNeededAtValues, "avx512", 2}};
  std::string text = "| kernel | codec | rounding | at least |";
  for (const Column& column : kColumns) text += print(" %s |", column.title);
  text += "\n|---|---|---|---|---|---|---|---|---|\n";
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Figures& row = rows[i];
    const auto same = [&row](const Figures& other) { return same_kernel(other, row); };
    if (row.backend != "cpu" || std::find_if(rows.begin(), rows.end(), same) != rows.begin() + i) continue;
    Figures usual = row;
    usual.values = kNeededAtValues, usual.target = "avx512", usual.threads = 1;
    const std::optional<double> needs = needed(usual, rows);
    text += print("| %s | %s | %s | %s |", row.kernel.c_str(), row.codec.c_str(), row.rounding.c_str(),
                  needs ? print("%.2f", *needs).c_str() : "");
    for (const Column& column : kColumns) {
      const Figures* found = find(rows, row, column.values, column.target, column.threads);
      text += found == nullptr ? " |" : print(" %.2f |", found->ratio_to_copy);
    }
    text += "\n";
  }
  return text;
}

}  // namespace fluvial::bench
