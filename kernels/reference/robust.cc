#include "kernels/reference/robust.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace fluvial::kernels::reference {
namespace {

double score(const Vectors& updates, const std::vector<std::size_t>& among, std::size_t i, std::size_t nearest) {
  std::vector<double> distances;
  for (const std::size_t j : among) {
    if (j != i) distances.push_back(squared_distance(updates[i], updates[j]));
  }
  std::sort(distances.begin(), distances.end());
  distances.resize(std::min(distances.size(), nearest));
  return std::accumulate(distances.begin(), distances.end(), 0.0);
}

std::size_t best_of(const Vectors& updates, const std::vector<std::size_t>& among, std::size_t nearest) {
  std::size_t best = among[0];
  for (const std::size_t i : among) {
    if (score(updates, among, i, nearest) < score(updates, among, best, nearest)) best = i;
  }
  return best;
}

std::vector<std::size_t> all_of(std::size_t n) {
  std::vector<std::size_t> all(n);
  std::iota(all.begin(), all.end(), std::size_t{0});
  return all;
}

}  // namespace

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

double trimmed_mean(std::vector<double> values, std::size_t drop) {
  std::sort(values.begin(), values.end());
  double sum = 0;
  for (std::size_t k = drop; k < values.size() - drop; ++k) sum += values[k];
  return sum / static_cast<double>(values.size() - 2 * drop);
}

std::vector<double> repeated(const std::vector<double>& values, const std::vector<std::uint32_t>& weights) {
  std::vector<double> all;
  for (std::size_t k = 0; k < values.size(); ++k) all.insert(all.end(), weights[k], values[k]);
  return all;
}

double mean_around_median(std::vector<double> values, std::size_t count) {
  const double middle = median(values);
  std::sort(values.begin(), values.end(), [middle](double a, double b) {
    return std::pair(std::fabs(a - middle), a) < std::pair(std::fabs(b - middle), b);
  });
  values.resize(count);
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(count);
}

double squared_distance(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return sum;
}

std::vector<std::size_t> multi_krum(const Vectors& updates, std::size_t f, std::size_t m) {
  const std::vector<std::size_t> all = all_of(updates.size());
  std::vector<std::pair<double, std::size_t>> scored;
  for (const std::size_t i : all) scored.emplace_back(score(updates, all, i, updates.size() - f - 2), i);
  std::sort(scored.begin(), scored.end());
  std::vector<std::size_t> chosen;
  for (std::size_t k = 0; k < m; ++k) chosen.push_back(scored[k].second);
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

std::vector<std::size_t> bulyan(const Vectors& updates, std::size_t f) {
  std::vector<std::size_t> left = all_of(updates.size());
  std::vector<std::size_t> chosen;
  while (chosen.size() < updates.size() - 2 * f) {
    const auto wanted = static_cast<std::ptrdiff_t>(left.size()) - static_cast<std::ptrdiff_t>(f) - 2;
    const std::size_t best = best_of(updates, left, static_cast<std::size_t>(std::max<std::ptrdiff_t>(wanted, 1)));
    chosen.push_back(best);
    left.erase(std::find(left.begin(), left.end(), best));
  }
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

std::vector<double> geometric_median(const Vectors& updates, const std::vector<std::uint32_t>& weights) {
  std::vector<double> point(updates[0].size());
  for (std::size_t i = 0; i < point.size(); ++i) {  // from the coordinate-wise median
    std::vector<double> values;
    for (const auto& update : updates) values.push_back(update[i]);
    point[i] = median(values);
  }
  for (int step = 0; step < 20'000; ++step) {
    std::vector<double> next(point.size(), 0.0);
    double sum = 0;
    for (std::size_t k = 0; k < updates.size(); ++k) {
      const double pull = weights[k] / std::max(1e-9, std::sqrt(squared_distance(updates[k], point)));
      for (std::size_t i = 0; i < point.size(); ++i) next[i] += pull * updates[k][i];
      sum += pull;
    }
    for (std::size_t i = 0; i < point.size(); ++i) point[i] = next[i] / sum;
  }
  return point;
}

std::vector<double> centered_clipping(const Vectors& updates, std::vector<double> v, double tau,
                                      std::size_t iterations) {
  for (std::size_t step = 0; step < iterations; ++step) {
    std::vector<double> next = v;
    for (const auto& update : updates) {
      const double factor = std::min(1.0, tau / std::sqrt(squared_distance(update, v)));
      for (std::size_t i = 0; i < v.size(); ++i) {
        next[i] += (update[i] - v[i]) * factor / static_cast<double>(updates.size());
      }
    }
    v = next;
  }
  return v;
}

}  // namespace fluvial::kernels::reference
