// The rules that choose updates by the distances between them.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "core/base/format.h"
#include "kernels/cpu/robust_loops.h"
#include "kernels/pieces.h"
#include "kernels/robust_parts.h"

namespace fluvial::kernels {
namespace {

// The sum, from the least up, of the `count` least distances from update i to the others that `excluded` does not name.
double nearest_sum(std::span<const double> distances, std::size_t n, std::size_t i, std::size_t count,
                   std::span<const double> excluded, std::span<double> workspace) {
  std::size_t others = 0;
  for (std::size_t j = 0; j < n; ++j) {
    if (j == i || (!excluded.empty() && excluded[j] != 0)) continue;
    workspace[others++] = distances[i < j ? pair_index(i, j) : pair_index(j, i)];
  }
  std::sort(workspace.begin(), workspace.begin() + static_cast<std::ptrdiff_t>(others));
  double sum = 0;
  for (std::size_t k = 0; k < std::min(count, others); ++k) sum += workspace[k];
  return sum;
}

Status check_choice(std::span<const double> distances, std::size_t n, std::size_t f, std::size_t factor) {
  if (n > kUpdatesMax || f > n || n < factor * f + 3) {
    return Error{Code::kInvalidArgument,
                 format_text("{} updates of which {} may be anything, expected at least {} * {} + 3", n, f, factor, f)};
  }
  FLUVIAL_CHECK(distances.size() == pair_count(n), "a distance for each pair");
  for (const double distance : distances) {
    if (!(distance >= 0 && std::isfinite(distance))) {
      return Error{Code::kInvalidArgument, format_text("a squared distance of {}", distance)};
    }
  }
  return {};
}

}  // namespace

Status check_updates(Updates updates, std::size_t value_count) {
  if (updates.empty() || updates.size() > kUpdatesMax) {
    return Error{Code::kInvalidArgument, format_text("{} updates, expected 1 to {}", updates.size(), kUpdatesMax)};
  }
  for (const std::span<const float> update : updates) {
    FLUVIAL_CHECK(update.size() == value_count, "updates of different lengths");
  }
  return {};
}

Status add_distances(Updates updates, std::span<double> distances, cpu::Target target) {
  FLUVIAL_TRY(check_updates(updates, updates.empty() ? 0 : updates[0].size()));
  FLUVIAL_CHECK(distances.size() == pair_count(updates.size()), "a distance for each pair");
  const cpu::RobustLoops& loops = cpu::robust_loops(target);
  for (std::size_t at = 0; at < updates[0].size(); at += kDistancePiece) {
    const std::size_t size = std::min(kDistancePiece, updates[0].size() - at);
    for (std::size_t j = 1; j < updates.size(); ++j) {
      for (std::size_t i = 0; i < j; ++i) {
        std::array<double, cpu::kSquareLanes> lanes{};
        loops.distance(updates[i].data() + at, updates[j].data() + at, size, lanes.data());
        distances[pair_index(i, j)] += sum_lanes(lanes);
      }
    }
  }
  for (std::size_t j = 1; j < updates.size(); ++j) {
    for (std::size_t i = 0; i < j; ++i) {
      if (std::isfinite(distances[pair_index(i, j)])) continue;
      return Error{Code::kDataLoss, format_text("updates {} and {}: their distance is not finite", i, j)};
    }
  }
  return {};
}

Status krum_scores(std::span<const double> distances, std::size_t n, std::size_t f, std::span<double> workspace,
                   std::span<double> scores) {
  FLUVIAL_TRY(check_choice(distances, n, f, 2));
  FLUVIAL_CHECK(workspace.size() >= n && scores.size() == n, "room for a value each update");
  for (std::size_t i = 0; i < n; ++i) scores[i] = nearest_sum(distances, n, i, n - f - 2, {}, workspace);
  return {};
}

Status multi_krum(std::span<const double> distances, std::size_t n, std::size_t f, std::span<double> workspace,
                  std::span<std::size_t> chosen) {
  FLUVIAL_CHECK(workspace.size() >= multi_krum_workspace(n), "a workspace as large as asked");
  if (chosen.empty() || f > n || chosen.size() > n - f) {
    return Error{Code::kInvalidArgument,
                 format_text("{} of {} updates to be chosen, {} of which may be anything", chosen.size(), n, f)};
  }
  const std::span<double> scores = workspace.first(n);
  FLUVIAL_TRY(krum_scores(distances, n, f, workspace.subspan(n, n), scores));
  for (std::size_t& choice : chosen) {
    choice = static_cast<std::size_t>(std::ranges::min_element(scores) - scores.begin());  // the first of equals
    scores[choice] = std::numeric_limits<double>::infinity();
  }
  std::ranges::sort(chosen);
  return {};
}

Status bulyan_select(std::span<const double> distances, std::size_t n, std::size_t f, std::span<double> workspace,
                     std::span<std::size_t> chosen) {
  FLUVIAL_TRY(check_choice(distances, n, f, 4));
  FLUVIAL_CHECK(workspace.size() >= bulyan_workspace(n) && chosen.size() == n - 2 * f, "n - 2f to be chosen");
  const std::span<double> taken = workspace.first(n);
  std::ranges::fill(taken, 0.0);
  for (std::size_t k = 0; k < chosen.size(); ++k) {
    const std::size_t remaining = n - k;
    const std::size_t nearest = remaining > f + 3 ? remaining - f - 2 : 1;
    double least = std::numeric_limits<double>::infinity();
    std::size_t best = 0;
    for (std::size_t i = 0; i < n; ++i) {
      if (taken[i] != 0) continue;
      const double score = nearest_sum(distances, n, i, nearest, taken, workspace.subspan(n, n));
      if (score < least) least = score, best = i;
    }
    taken[best] = 1;
    chosen[k] = best;
  }
  std::ranges::sort(chosen);
  return {};
}

}  // namespace fluvial::kernels
