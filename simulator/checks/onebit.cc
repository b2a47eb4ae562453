#include "simulator/checks/onebit.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include "core/base/check.h"
#include "kernels/reference/sign.h"
#include "simulator/checks/optimizer.h"
#include "simulator/checks/widths.h"

namespace fluvial::simulator {
namespace {

double option(std::string_view codec, std::string_view key, double fallback) {
  const std::size_t at = codec.find(key);
  return at == std::string_view::npos ? fallback : std::stod(std::string(codec.substr(at + key.size())));
}

}  // namespace

std::optional<Onebit> Onebit::of(const round::Plan& plan) {
  const std::string_view codec = plan.codec;
  if (codec != "onebit_adam" && !codec.starts_with("onebit_adam:")) return std::nullopt;
  Onebit own;
  own.freeze_ = static_cast<std::uint64_t>(option(codec, "freeze=", 100));
  own.beta1_ = option(codec, "beta1=", 0.9);
  own.block_ = static_cast<std::size_t>(option(codec, "block=", 256));
  own.chunk_ = static_cast<std::size_t>(plan.chunk_values);
  return own;
}

Onebit::Momentum Onebit::compressed(std::span<const float> vector) const {
  Momentum made;
  for (std::size_t first = 0; first < vector.size(); first += chunk_) {
    const std::span<const float> chunk = vector.subspan(first, std::min(chunk_, vector.size() - first));
    const std::vector<std::byte> encoded = kernels::reference::encode_sign(chunk, block_);
    const auto decoded = kernels::reference::decode_sign(encoded, chunk.size());
    FLUVIAL_CHECK(decoded.has_value(), "the reference decodes what it encodes");
    for (const double value : *decoded) made.values.push_back(narrow(value));
    made.bytes.insert(made.bytes.end(), encoded.begin(), encoded.end());
    while (made.bytes.size() % 4 != 0) made.bytes.push_back(std::byte{0});
  }
  return made;
}

std::optional<Onebit::Momentum> Onebit::step(const round::ServerOptimizer& o, double lr, RoundId round,
                                             std::span<const float> mean, OptimizerState& s) const {
  const double beta1 = beta1_, rest1 = 1 - beta1_, beta2 = o.beta2, rest2 = 1 - o.beta2;
  std::vector<float> by;  // what moves the model
  std::optional<Momentum> down;
  if (warms_up(round)) {
    for (std::size_t i = 0; i < mean.size(); ++i) {
      const double d = wide(mean[i]);
      s.moment[i] = narrow(beta1 * wide(s.moment[i]) + rest1 * d);
      s.variance[i] = narrow(beta2 * wide(s.variance[i]) + rest2 * (d * d));
    }
    by = s.moment;
  } else {
    for (std::size_t i = 0; i < mean.size(); ++i) s.moment[i] = narrow(rest1 * wide(mean[i])) + s.moment[i];
  }
  if (round.value() >= freeze_) {
    down = compressed(s.moment);
    for (std::size_t i = 0; i < mean.size(); ++i) s.moment[i] = s.moment[i] - down->values[i];
  }
  if (!warms_up(round)) by = down->values;
  for (std::size_t i = 0; i < mean.size(); ++i) {
    if (s.variance[i] == 0) continue;
    const float ratio = by[i] / (narrow(std::sqrt(s.variance[i])) + narrow(o.tau));
    s.model[i] = narrow(wide(s.model[i]) - lr * wide(ratio));
  }
  return down;
}

std::vector<float> Onebit::sent(RoundId round, std::span<const float> vector) const {
  if (warms_up(round)) return {vector.begin(), vector.end()};
  return compressed(vector).values;
}

std::vector<float> Onebit::lent(std::span<const float> momentum) const {
  const double factor = beta1_ / (1 - beta1_);
  std::vector<float> out;
  for (const float value : momentum) out.push_back(narrow(factor * wide(value)));
  return out;
}

}  // namespace fluvial::simulator
