#include "kernels/reference/dgc.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

namespace fluvial::kernels::reference {

std::vector<double> Dgc::round(std::span<const double> gradient, std::size_t k) {
  u.resize(gradient.size(), 0.0);
  v.resize(gradient.size(), 0.0);
  const double norm = std::sqrt(std::inner_product(gradient.begin(), gradient.end(), gradient.begin(), 0.0));
  const double factor = clip > 0 && norm > clip ? clip / norm : 1.0;
  for (std::size_t i = 0; i < u.size(); ++i) {
    u[i] = momentum * u[i] + factor * gradient[i];
    v[i] += u[i];
  }
  std::vector<std::size_t> order(v.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return std::fabs(v[a]) != std::fabs(v[b]) ? std::fabs(v[a]) > std::fabs(v[b]) : a < b;
  });
  std::vector<double> sent(v.size(), 0.0);
  for (std::size_t i = 0; i < std::min(k, order.size()); ++i) {
    sent[order[i]] = v[order[i]];
    u[order[i]] = v[order[i]] = 0;
  }
  return sent;
}

std::optional<DgcOptions> dgc_options(std::string_view codec) {
  if (codec != "dgc" && !codec.starts_with("dgc:")) return std::nullopt;
  const auto number = [&](std::string_view key, double fallback) {
    const std::size_t at = codec.find(key);
    return at == std::string_view::npos ? fallback : std::stod(std::string(codec.substr(at + key.size())));
  };
  return DgcOptions{.momentum = number("momentum=", 0.9), .clip = number("clip=", 0)};
}

void dgc_moment(const DgcOptions& options, std::span<float> moment, std::span<float> gradient) {
  const auto [momentum, clip] = options;
  double squares = 0;
  for (const float value : gradient) squares += static_cast<double>(value) * static_cast<double>(value);
  const auto factor = static_cast<float>(clip > 0 && std::sqrt(squares) > clip ? clip / std::sqrt(squares) : 1.0);
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    const float clipped = gradient[i] * factor;
    const float kept = static_cast<float>(momentum) * moment[i];
    gradient[i] = moment[i] = kept + clipped;
  }
}

double dgc_ratio(double ratio, std::uint32_t warmup_rounds, std::uint64_t round) {
  for (const double part : {0.25, 0.0625, 0.015625, 0.004, 0.001}) {
    if (round <= warmup_rounds) return std::max(part, ratio);
    round -= warmup_rounds;
  }
  return ratio;
}

}  // namespace fluvial::kernels::reference
