#include "simulator/run/calibrate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

namespace fluvial::simulator {
namespace {

// ns for each value, ns for each byte, and the start of a process in ms, which is in the measurements but is no round's
// cost.
enum Unknown : std::size_t { kEncode, kMerge, kFinalise, kByte, kStart, kUnknowns };
using Vector = std::array<double, kUnknowns>;

constexpr double kStartMs = 20;
constexpr double kTrust = 1e-3;  // weight of the earlier values, against one equation

struct Equation {
  Vector factor{};
  double measured = 0;  // ns for each value and round
};

void add_equations(const MeasuredRun& run, std::vector<Equation>& out) {
  const auto values = static_cast<double>(run.values);
  const auto rounds = static_cast<double>(run.rounds);
  const double model_bytes = 4 * values;
  const double start = 1e6 / (rounds * values);
  const auto measured = [&](double cpu_s) { return cpu_s * 1e9 / (rounds * values); };
  const auto sites = static_cast<double>(run.sites);
  const auto aggregators = static_cast<double>(run.aggregators);
  // A site's worker is a process too.
  out.push_back({{1, 0, 0, (run.update_bytes + model_bytes) / values, 2 * start}, measured(run.site_cpu_s)});
  if (run.aggregators > 0) {
    const double below = sites / aggregators;
    const double bytes = below * (run.update_bytes + model_bytes) + model_bytes + run.root_up_bytes / aggregators;
    // It packs its own partial, which costs as much as adding one.
    out.push_back({{0, below + 1, 0, bytes / values, start}, measured(run.aggregator_cpu_s)});
  }
  const double children = run.aggregators > 0 ? aggregators : sites;
  out.push_back(
      {{0, children, 1, (run.root_up_bytes + run.root_down_bytes) / values, start}, measured(run.coordinator_cpu_s)});
}

// The least squares over the unknowns in `used`, the others 0. By elimination; the trust makes it regular.
Vector solve(const std::vector<Equation>& equations, const Vector& before, const std::array<bool, kUnknowns>& used) {
  std::array<std::array<double, kUnknowns + 1>, kUnknowns> rows{};
  for (std::size_t i = 0; i < kUnknowns; ++i) {
    if (!used[i]) {
      rows[i][i] = 1;
      continue;
    }
    rows[i][i] = kTrust;
    rows[i][kUnknowns] = kTrust * before[i];
    for (const Equation& equation : equations) {
      for (std::size_t j = 0; j < kUnknowns; ++j) {
        if (used[j]) rows[i][j] += equation.factor[i] * equation.factor[j];
      }
      rows[i][kUnknowns] += equation.factor[i] * equation.measured;
    }
  }
  for (std::size_t i = 0; i < kUnknowns; ++i) {  // positive definite: no pivot is 0
    for (std::size_t j = 0; j < kUnknowns; ++j) {
      if (j == i) continue;
      const double times = rows[j][i] / rows[i][i];
      for (std::size_t k = i; k <= kUnknowns; ++k) rows[j][k] -= times * rows[i][k];
    }
  }
  Vector out{};
  for (std::size_t i = 0; i < kUnknowns; ++i) out[i] = rows[i][kUnknowns] / rows[i][i];
  return out;
}

double miss(const std::vector<Equation>& equations, const Vector& before, const Vector& x) {
  double sum = 0;
  for (const Equation& equation : equations) {
    double left = -equation.measured;
    for (std::size_t i = 0; i < kUnknowns; ++i) left += equation.factor[i] * x[i];
    sum += left * left;
  }
  for (std::size_t i = 0; i < kUnknowns; ++i) sum += kTrust * (x[i] - before[i]) * (x[i] - before[i]);
  return sum;
}

}  // namespace

Result<ComputeScenario> calibrate(const std::vector<MeasuredRun>& runs, const ComputeScenario& before) {
  std::vector<Equation> equations;
  for (const MeasuredRun& run : runs) {
    if (run.sites == 0 || run.values == 0 || run.rounds == 0) {
      return Error{Code::kInvalidArgument, "a measured run without sites, values or rounds"};
    }
    add_equations(run, equations);
  }
  const Vector start{before.encode_ns, before.merge_ns, before.finalise_ns, before.byte_ns, kStartMs};
  Vector best{};
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t subset = 0; subset < std::size_t{1} << kUnknowns; ++subset) {  // none below 0: try which are 0
    std::array<bool, kUnknowns> used{};
    for (std::size_t i = 0; i < kUnknowns; ++i) used[i] = (subset >> i & 1U) != 0;
    const Vector x = solve(equations, start, used);
    const double missed = miss(equations, start, x);
    if (std::ranges::any_of(x, [](double one) { return one < 0; }) || missed >= least) continue;
    least = missed;
    best = x;
  }
  ComputeScenario compute = before;
  compute.encode_ns = best[kEncode];
  compute.merge_ns = best[kMerge];
  compute.finalise_ns = best[kFinalise];
  compute.byte_ns = best[kByte];
  return compute;
}

}  // namespace fluvial::simulator
