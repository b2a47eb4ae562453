// The figures of kernels_bench: as rows of text, as JSON, as the table of docs/benchmarks.md.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace fluvial::bench {

// One measured row. The JSON holds exactly these.
struct Figures {
  std::string kernel, codec, backend, target;
  std::size_t threads = 1;
  std::string rounding;
  std::size_t values = 0;
  double seconds_median = 0;
  double values_per_s = 0;
  double gb_per_s = 0;  // bytes that have to be read and written
  double ratio_to_copy = 0;
};

// The least ratio that a row must reach, if any: `others` holds the rows measured so far (two threads are compared with
// one).
std::optional<double> needed(const Figures& row, const std::vector<Figures>& others);

std::string text_header();
std::string text_row(const Figures& row, std::optional<double> needs);
std::string json_of(const std::vector<Figures>& rows);
std::string markdown_of(const std::vector<Figures>& rows);

}  // namespace fluvial::bench
