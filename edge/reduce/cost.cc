#include "edge/reduce/cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include "edge/reduce/reduce.h"

namespace fluvial::edge {
namespace {

constexpr std::size_t kUnknowns = 3;
using Row = std::array<double, kUnknowns>;

// The features of each unknown, divided by the measured time, so that the target of the fit is 1.
Row row_of(const Timing& timing) {
  return {timing.work.sums / timing.seconds, timing.work.bytes / timing.seconds,
          timing.work.additions / timing.seconds};
}

// Solves the normal equations of the unknowns in `used`, by elimination with pivots; none when they are singular.
std::optional<Row> solve(const std::vector<Row>& rows, unsigned used) {
  std::vector<std::size_t> of;
  for (std::size_t k = 0; k < kUnknowns; ++k) {
    if ((used >> k & 1U) != 0) of.push_back(k);
  }
  const std::size_t n = of.size();
  std::vector<std::vector<double>> a(n, std::vector<double>(n + 1, 0.0));
  Row scale{};  // columns differ by many orders of magnitude
  for (const Row& row : rows) {
    for (std::size_t k = 0; k < kUnknowns; ++k) scale[k] = std::max(scale[k], std::fabs(row[k]));
  }
  for (const std::size_t k : of) {
    if (scale[k] == 0) return std::nullopt;
  }
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < n; ++i) {
      const double value = row[of[i]] / scale[of[i]];
      for (std::size_t j = 0; j < n; ++j) a[i][j] += value * row[of[j]] / scale[of[j]];
      a[i][n] += value;
    }
  }
  for (std::size_t i = 0; i < n; ++i) {
    const auto pivot =
        std::max_element(a.begin() + static_cast<std::ptrdiff_t>(i), a.end(),
                         [i](const auto& x, const auto& y) { return std::fabs(x[i]) < std::fabs(y[i]); });
    std::iter_swap(a.begin() + static_cast<std::ptrdiff_t>(i), pivot);
    if (std::fabs(a[i][i]) < 1e-12) return std::nullopt;
    for (std::size_t k = 0; k < n; ++k) {
      if (k == i) continue;
      const double factor = a[k][i] / a[i][i];
      for (std::size_t j = i; j <= n; ++j) a[k][j] -= factor * a[i][j];
    }
  }
  Row solution{};
  for (std::size_t i = 0; i < n; ++i) solution[of[i]] = a[i][n] / a[i][i] / scale[of[i]];
  return solution;
}

double squared_error(const std::vector<Row>& rows, const Row& solution) {
  double error = 0;
  for (const Row& row : rows) {
    double predicted = 0;
    for (std::size_t k = 0; k < kUnknowns; ++k) predicted += row[k] * solution[k];
    error += (predicted - 1) * (predicted - 1);
  }
  return error;
}

}  // namespace

Work work_of(const std::vector<Step>& steps) {
  Work work;
  for (const Step& step : steps) {
    for (const Sum& sum : step) {
      const auto count = static_cast<double>(sum.count);
      work.sums += 1;
      work.bytes += count * static_cast<double>((sum.of.size() + 1) * sizeof(float));
      work.additions += count * static_cast<double>(sum.of.size() - 1);
    }
  }
  return work;
}

double predict(const CostModel& model, const Work& work) {
  return model.alpha * work.sums + model.beta * work.bytes + model.gamma * work.additions;
}

CostModel fit(std::span<const Timing> timings) {
  std::vector<Row> rows;
  for (const Timing& timing : timings) {
    if (timing.seconds > 0) rows.push_back(row_of(timing));
  }
  if (rows.size() < kUnknowns) return {};
  Row best{};
  double least = std::numeric_limits<double>::infinity();
  for (unsigned used = 1; used < 1U << kUnknowns; ++used) {  // leaves out what would be negative
    const std::optional<Row> solution = solve(rows, used);
    if (!solution || std::ranges::any_of(*solution, [](double value) { return value < 0; })) continue;
    const double error = squared_error(rows, *solution);
    if (error < least) std::tie(least, best) = std::pair(error, *solution);
  }
  return {best[0], best[1], best[2]};
}

std::vector<Timing> measure(std::size_t ranks, const std::function<double()>& seconds) {
  constexpr std::size_t kLog2Least = 12;
  constexpr std::size_t kLog2Most = 19;
  constexpr int kRuns = 3;
  const std::size_t most = std::size_t{1} << kLog2Most;
  const std::vector<std::vector<float>> made(ranks, std::vector<float>(most, 1.0F));
  const std::vector<std::uint32_t> weights(ranks, 1);
  std::vector<float> out(most);
  std::vector<Timing> timings;
  for (std::size_t log2 = kLog2Least; log2 <= kLog2Most; ++log2) {
    const std::size_t values = std::size_t{1} << log2;
    std::vector<std::span<const float>> vectors;
    for (const std::vector<float>& vector : made) vectors.push_back(std::span(vector).first(values));
    for (const Algorithm algorithm : {Algorithm::kDirect, Algorithm::kTree}) {
      Timing timing{work_of(make_schedule(algorithm, ranks, values)), std::numeric_limits<double>::infinity()};
      for (int run = 0; run < kRuns; ++run) {
        const double begun = seconds();
        const Status reduced = reduce_mean(algorithm, vectors, weights, std::span(out).first(values));
        FLUVIAL_CHECK(reduced.ok(), "vectors of ones have a mean");
        timing.seconds = std::min(timing.seconds, seconds() - begun);
      }
      timings.push_back(timing);
    }
  }
  return timings;
}

Choice choose(const CostModel& model, std::size_t ranks, std::size_t values) {
  Choice choice;
  for (std::size_t i = 0; i < kAlgorithms.size(); ++i) {
    choice.seconds[i] = predict(model, work_of(make_schedule(kAlgorithms[i], ranks, values)));
  }
  const auto least = std::ranges::min_element(choice.seconds);  // the first of equals: the simpler one
  choice.algorithm = kAlgorithms[static_cast<std::size_t>(least - choice.seconds.begin())];
  for (std::size_t i = 0; i < kAlgorithms.size(); ++i) {
    choice.reason +=
        fmt::format("{}{} {:.2f} ms", i == 0 ? "" : ", ", algorithm_name(kAlgorithms[i]), choice.seconds[i] * 1e3);
  }
  return choice;
}

}  // namespace fluvial::edge
