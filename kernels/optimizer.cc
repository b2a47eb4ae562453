#include "kernels/optimizer.h"

#include "kernels/cpu/optimizer_loops.h"
#include "kernels/pieces.h"

namespace fluvial::kernels {
namespace {

void check_lengths(std::size_t expected, std::initializer_list<std::size_t> lengths) {
  for (const std::size_t length : lengths) FLUVIAL_CHECK(length == expected, "vectors of different lengths");
}

float narrow(double factor) { return static_cast<float>(factor); }

// base^exponent by repeated squaring: the same bits everywhere, which a library's pow() does not promise.
double power(double base, std::uint64_t exponent) {
  double result = 1;
  for (; exponent != 0; exponent >>= 1) {
    if ((exponent & 1) != 0) result *= base;
    base *= base;
  }
  return result;
}

}  // namespace

ops::LambFactors lamb_factors(const LambOptions& options, double rate) {
  FLUVIAL_CHECK(options.step >= 1, "steps are counted from 1");
  return {.adaptive = ops::adaptive_factors(rate, options.beta1, options.beta2, options.epsilon),
          .moment_correction = narrow(1.0 / (1.0 - power(options.beta1, options.step))),
          .variance_correction = narrow(1.0 / (1.0 - power(options.beta2, options.step))),
          .weight_decay = narrow(options.weight_decay)};
}

void apply_adaptive(AdaptiveRule rule, const AdaptiveOptions& options, std::span<const float> mean,
                    std::span<float> moment, std::span<float> variance, std::span<float> model, cpu::Target target) {
  check_lengths(mean.size(), {moment.size(), variance.size(), model.size()});
  const ops::AdaptiveFactors factors = ops::adaptive_factors(options.lr, options.beta1, options.beta2, options.tau);
  const cpu::OptimizerLoops& loops = cpu::optimizer_loops(target);
  const cpu::AdaptiveLoop loop = rule == AdaptiveRule::kAdagrad ? loops.adagrad
                                 : rule == AdaptiveRule::kAdam  ? loops.adam
                                                                : loops.yogi;
  loop(factors, mean.data(), mean.size(), moment.data(), variance.data(), model.data());
}

void apply_signsgd(double lr, std::span<const float> mean, std::span<float> model, cpu::Target target) {
  check_lengths(mean.size(), {model.size()});
  cpu::optimizer_loops(target).signsgd(lr, mean.data(), mean.size(), model.data());
}

void apply_nesterov(double lr, double momentum, std::span<const float> mean, std::span<float> moment,
                    std::span<float> model, cpu::Target target) {
  check_lengths(mean.size(), {moment.size(), model.size()});
  cpu::optimizer_loops(target).nesterov(lr, momentum, mean.data(), mean.size(), moment.data(), model.data());
}

bool is_nth(const DelayedNesterovOptions& options) {
  FLUVIAL_CHECK(options.step >= 1 && options.every >= 1, "steps are counted from 1");
  return options.step % options.every == 0;
}

ops::DelayedNesterovFactors delayed_nesterov_factors(const DelayedNesterovOptions& options) {
  const auto every = static_cast<double>(options.every);
  const double part = is_nth(options) ? 1.0 - options.c * every + options.c : options.c;
  return {.lr = options.lr, .momentum = options.momentum, .share = 1.0 / every, .ahead = part * options.momentum};
}

void apply_delayed_nesterov(const DelayedNesterovOptions& options, std::span<const float> mean, std::span<float> moment,
                            std::span<float> buffer, std::span<float> model, cpu::Target target) {
  check_lengths(mean.size(), {moment.size(), buffer.size(), model.size()});
  const ops::DelayedNesterovFactors factors = delayed_nesterov_factors(options);
  const cpu::OptimizerLoops& loops = cpu::optimizer_loops(target);
  if (is_nth(options)) {
    loops.delayed_nesterov_nth(factors, mean.data(), mean.size(), moment.data(), buffer.data(), model.data());
  } else {
    loops.delayed_nesterov(factors, mean.data(), mean.size(), moment.data(), buffer.data(), model.data());
  }
}

void add_squares(std::span<const float> values, SquareLanes& lanes, cpu::Target target) {
  cpu::loops(target).screen(values.data(), values.size(), lanes.data());
}

double sum_of(const SquareLanes& lanes) {
  SquareLanes copy = lanes;
  return sum_lanes(copy);
}

void apply_lars(double momentum, double rate, double weight_decay, std::span<const float> mean, std::span<float> moment,
                std::span<float> model, cpu::Target target) {
  check_lengths(mean.size(), {moment.size(), model.size()});
  cpu::optimizer_loops(target).lars(momentum, rate, weight_decay, mean.data(), mean.size(), moment.data(),
                                    model.data());
}

void add_lamb_squares(const LambOptions& options, std::span<const float> mean, std::span<const float> moment,
                      std::span<const float> variance, std::span<const float> model, SquareLanes& lanes,
                      cpu::Target target) {
  check_lengths(mean.size(), {moment.size(), variance.size(), model.size()});
  cpu::optimizer_loops(target).lamb_direction_squares(lamb_factors(options, 0), mean.data(), moment.data(),
                                                      variance.data(), model.data(), mean.size(), lanes.data());
}

void apply_lamb(const LambOptions& options, double rate, std::span<const float> mean, std::span<float> moment,
                std::span<float> variance, std::span<float> model, cpu::Target target) {
  check_lengths(mean.size(), {moment.size(), variance.size(), model.size()});
  cpu::optimizer_loops(target).lamb(lamb_factors(options, rate), mean.data(), mean.size(), moment.data(),
                                    variance.data(), model.data());
}

}  // namespace fluvial::kernels
