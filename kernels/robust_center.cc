// The rules that iterate a mean with coefficients.
#include <algorithm>
#include <array>
#include <cmath>

#include "core/base/format.h"
#include "kernels/cpu/loops.h"
#include "kernels/cpu/robust_loops.h"
#include "kernels/fixed.h"
#include "kernels/pieces.h"
#include "kernels/robust_parts.h"

namespace fluvial::kernels {
namespace {

constexpr std::size_t kCenterPiece = 512;

// The center of a piece, in order in fp64.
void center_of(Updates updates, std::span<const double> coefficients, std::size_t at, std::span<double> center,
               const cpu::Loops& loops) {
  std::ranges::fill(center, 0.0);
  for (std::size_t k = 0; k < updates.size(); ++k) {
    loops.weighted_add(updates[k].data() + at, center.size(), coefficients[k], center.data());
  }
}

Status check_center(Updates updates, std::span<const double> coefficients, std::size_t value_count) {
  FLUVIAL_TRY(check_updates(updates, value_count));
  FLUVIAL_CHECK(coefficients.size() == updates.size(), "a coefficient for each update");
  return {};
}

std::size_t length_of(Updates updates) { return updates.empty() ? 0 : updates[0].size(); }

// All distances to the present center, from zero.
class HostDistances final : public CenterDistances {
 public:
  HostDistances(Updates updates, cpu::Target target) : updates_(updates), target_(target) {}
  Status measure(std::span<const double> coefficients, std::span<double> distances) override {
    std::ranges::fill(distances, 0.0);
    return add_center_distances(updates_, coefficients, distances, target_);
  }

 private:
  Updates updates_;
  cpu::Target target_;
};

Status measure(CenterDistances& center, std::span<const double> coefficients, std::span<double> distances) {
  FLUVIAL_TRY(center.measure(coefficients, distances));
  for (std::size_t k = 0; k < distances.size(); ++k) {
    if (std::isfinite(distances[k])) continue;
    return Error{Code::kDataLoss, format_text("update {}: its distance from the center is not finite", k)};
  }
  return {};
}

double weight_of(std::span<const std::uint32_t> weights, std::size_t k) {
  return weights.empty() ? 1.0 : static_cast<double>(weights[k]);
}

}  // namespace

Status add_center_distances(Updates updates, std::span<const double> coefficients, std::span<double> distances,
                            cpu::Target target) {
  const std::size_t value_count = length_of(updates);
  FLUVIAL_TRY(check_center(updates, coefficients, value_count));
  FLUVIAL_CHECK(distances.size() == updates.size(), "a distance for each update");
  std::array<double, kCenterPiece> center;
  for (std::size_t at = 0; at < value_count; at += kCenterPiece) {
    const std::size_t size = std::min(kCenterPiece, value_count - at);
    center_of(updates, coefficients, at, std::span(center).first(size), cpu::loops(target));
    for (std::size_t k = 0; k < updates.size(); ++k) {
      std::array<double, cpu::kSquareLanes> lanes{};
      cpu::robust_loops(target).distance_to(center.data(), updates[k].data() + at, size, lanes.data());
      distances[k] += sum_lanes(lanes);
    }
  }
  return {};
}

Status combine(Updates updates, std::span<const double> coefficients, std::span<float> out, cpu::Target target) {
  FLUVIAL_TRY(check_center(updates, coefficients, out.size()));
  std::array<double, kCenterPiece> center;
  for (std::size_t at = 0; at < out.size(); at += kCenterPiece) {
    const std::size_t size = std::min(kCenterPiece, out.size() - at);
    center_of(updates, coefficients, at, std::span(center).first(size), cpu::loops(target));
    for (std::size_t i = 0; i < size; ++i) out[at + i] = static_cast<float>(center[i]);
  }
  return {};
}

WeiszfeldStep weiszfeld_step(std::span<const double> squared_distances, std::span<const std::uint32_t> weights,
                             double nu, std::span<double> coefficients) {
  FLUVIAL_CHECK(squared_distances.size() == coefficients.size(), "a distance for each coefficient");
  double objective = 0, total = 0, pulls = 0;
  for (std::size_t k = 0; k < coefficients.size(); ++k) {
    const double distance = std::sqrt(squared_distances[k]);
    const double weight = weight_of(weights, k);
    total += weight;
    objective += weight * (distance < nu ? (squared_distances[k] / nu + nu) * 0.5 : distance);
    pulls += weight / std::max(nu, distance);
  }
  // The center moves by sum((next - present) * (x_k - center)).
  double move = 0;
  for (std::size_t k = 0; k < coefficients.size(); ++k) {
    const double distance = std::sqrt(squared_distances[k]);
    const double next = weight_of(weights, k) / std::max(nu, distance) / pulls;
    move += std::fabs(next - coefficients[k]) * distance;
    coefficients[k] = next;
  }
  return {.objective = objective / total, .move = move / (total / pulls)};
}

Result<WeiszfeldReport> iterate_weiszfeld(CenterDistances& center, std::span<const std::uint32_t> weights,
                                          const WeiszfeldOptions& options, std::span<double> distances,
                                          std::span<double> coefficients) {
  if (!(options.nu > 0 && std::isfinite(options.nu) && options.tolerance >= 0) || options.iterations_max == 0) {
    return Error{Code::kInvalidArgument,
                 format_text("nu {}, tolerance {}, {} iterations: expected nu above 0, and some", options.nu,
                             options.tolerance, options.iterations_max)};
  }
  const std::size_t n = coefficients.size();
  double total = static_cast<double>(n);  // exact, as the sum of weights is
  if (!weights.empty()) {
    FLUVIAL_ASSIGN(const std::uint64_t sum, sum_of_weights(weights, n));
    total = static_cast<double>(sum);
  }
  for (std::size_t k = 0; k < n; ++k) coefficients[k] = weight_of(weights, k) / total;
  WeiszfeldReport report;
  while (report.iterations < options.iterations_max && !report.converged) {
    FLUVIAL_TRY(measure(center, coefficients, distances));
    const WeiszfeldStep step = weiszfeld_step(distances, weights, options.nu, coefficients);
    report.converged = step.move <= options.tolerance;
    report.objective = step.objective;
    ++report.iterations;
  }
  return report;
}

Status iterate_clipping(CenterDistances& center, double tau, std::size_t iterations, std::span<double> distances,
                        std::span<double> coefficients) {
  if (!(tau > 0 && std::isfinite(tau)) || coefficients.size() < 2) {
    return Error{Code::kInvalidArgument,
                 format_text("tau {} with {} vectors, expected tau above 0, some updates, and a start", tau,
                             coefficients.size())};
  }
  const std::size_t n = coefficients.size() - 1;
  std::ranges::fill(coefficients, 0.0);
  coefficients[n] = 1;
  for (std::size_t iteration = 0; iteration < iterations; ++iteration) {
    FLUVIAL_TRY(measure(center, coefficients, distances));
    double sum = 0;
    for (std::size_t k = 0; k < n; ++k) {
      const double distance = std::sqrt(distances[k]);
      distances[k] = distance > tau ? tau / distance : 1.0;
      sum += distances[k];
    }
    const double kept = 1 - sum / static_cast<double>(n);
    for (double& coefficient : coefficients) coefficient *= kept;
    for (std::size_t k = 0; k < n; ++k) coefficients[k] += distances[k] / static_cast<double>(n);
  }
  return {};
}

Result<WeiszfeldReport> geometric_median(Updates updates, std::span<const std::uint32_t> weights,
                                         const WeiszfeldOptions& options, std::span<double> distances,
                                         std::span<double> coefficients, cpu::Target target) {
  FLUVIAL_TRY(check_center(updates, coefficients, length_of(updates)));
  FLUVIAL_CHECK(distances.size() == updates.size(), "a distance for each update");
  HostDistances center(updates, target);
  return iterate_weiszfeld(center, weights, options, distances, coefficients);
}

Status centered_clipping(Updates updates, double tau, std::size_t iterations, std::span<double> distances,
                         std::span<double> coefficients, cpu::Target target) {
  FLUVIAL_TRY(check_center(updates, coefficients, length_of(updates)));
  FLUVIAL_CHECK(distances.size() == updates.size(), "a distance for each update");
  HostDistances center(updates, target);
  return iterate_clipping(center, tau, iterations, distances, coefficients);
}

}  // namespace fluvial::kernels
