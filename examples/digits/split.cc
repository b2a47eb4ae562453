#include "examples/digits/split.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "examples/digits/random.h"

namespace fluvial::digits {
namespace {

constexpr int kDraws = 20;
constexpr double kAlphaMin = 1e-3;
constexpr double kAlphaMax = 1e6;

using Sites = std::vector<std::vector<std::uint32_t>>;

// Logarithm of a Gamma(alpha, 1) draw: for small alpha the draw itself is often below what a double can hold.
// Marsaglia and Tsang, "A Simple Method for Generating Gamma Variables", 2000, with their boost for alpha < 1.
double log_gamma_draw(double alpha, Rng& rng) {
  if (alpha < 1) return log_gamma_draw(alpha + 1, rng) + std::log(1 - rng.uniform()) / alpha;
  const double d = alpha - 1.0 / 3;
  const double c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = normal(rng);
    const double root = 1 + c * x;
    if (root <= 0) continue;
    const double v = root * root * root;
    if (std::log(1 - rng.uniform()) < 0.5 * x * x + d - d * v + d * std::log(v)) return std::log(d * v);
  }
}

Sites draw(const std::array<std::vector<std::uint32_t>, kClasses>& by_class, const SplitOptions& options, int attempt) {
  Sites sites(options.sites);
  for (std::size_t c = 0; c < kClasses; ++c) {
    const std::uint64_t seed = mix({options.seed, static_cast<std::uint64_t>(attempt), c});
    std::vector<std::uint32_t> images = by_class[c];
    Rng rng(seed);
    shuffle(images, rng);
    const std::vector<double> shares = draw_dirichlet(options.sites, options.alpha, mix({seed, options.sites}));
    double sum = 0;
    std::size_t begin = 0;
    for (std::size_t site = 0; site < options.sites; ++site) {
      sum += shares[site];
      const auto cut = static_cast<std::size_t>(std::llround(sum * static_cast<double>(images.size())));
      const std::size_t end = site + 1 == options.sites ? images.size() : std::clamp(cut, begin, images.size());
      for (; begin < end; ++begin) sites[site].push_back(images[begin]);
    }
  }
  return sites;
}

bool by_size(const std::vector<std::uint32_t>& a, const std::vector<std::uint32_t>& b) { return a.size() < b.size(); }

}  // namespace

std::vector<double> draw_dirichlet(std::size_t count, double alpha, std::uint64_t seed) {
  Rng rng(seed);
  std::vector<double> shares(count);
  for (double& share : shares) share = log_gamma_draw(alpha, rng);
  const double largest = *std::max_element(shares.begin(), shares.end());
  double sum = 0;
  for (double& share : shares) sum += share = std::exp(share - largest);
  for (double& share : shares) share /= sum;
  return shares;
}

Result<Sites> split_over_sites(const Examples& train, const SplitOptions& options) {
  if (!(options.alpha >= kAlphaMin && options.alpha <= kAlphaMax)) {
    return Error{Code::kInvalidArgument,
                 fmt::format("alpha {}: expected {} to {}", options.alpha, kAlphaMin, kAlphaMax)};
  }
  const std::size_t sites_max = train.count() / std::max<std::size_t>(options.images_min, 1);
  if (options.sites == 0 || options.sites > sites_max) {
    return Error{Code::kInvalidArgument, fmt::format("{} sites: expected 1 to {}, for at least {} of {} images a site",
                                                     options.sites, sites_max, options.images_min, train.count())};
  }
  std::array<std::vector<std::uint32_t>, kClasses> by_class;
  for (std::uint32_t i = 0; i < train.count(); ++i) by_class[train.labels[i]].push_back(i);

  Sites sites;
  for (int attempt = 0; attempt < kDraws; ++attempt) {
    sites = draw(by_class, options, attempt);
    if (std::min_element(sites.begin(), sites.end(), by_size)->size() >= options.images_min) break;
  }
  // With many sites no draw may suffice: then the largest sites give to the smallest.
  for (;;) {
    const auto [smallest, largest] = std::minmax_element(sites.begin(), sites.end(), by_size);
    if (smallest->size() >= options.images_min) break;
    smallest->push_back(largest->back());
    largest->pop_back();
  }
  for (std::vector<std::uint32_t>& site : sites) std::sort(site.begin(), site.end());
  return sites;
}

}  // namespace fluvial::digits
