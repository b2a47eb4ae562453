// device_vector.h against vector.h, reduce.h and fixed.h.
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "kernels/device_vector.h"
#include "kernels/fixed.h"
#include "kernels/optimizer.h"
#include "kernels/reduce.h"
#include "kernels/test_values.h"
#include "kernels/vector.h"
#include "tests/gpu/check.h"

namespace fluvial::gpu_test {
namespace {

using kernels::ChunkOutcome;
using kernels::test_values::adversarial;
using kernels::test_values::normals;

std::vector<std::size_t> sizes(const Context& context) {
  std::vector<std::size_t> sizes = {1, 3, 4, 5, 31, 1'000, 4'096, 4'099, 10'007};
  if (!context.is_small) sizes.insert(sizes.end(), {1'000'003, 8'388'611});
  return sizes;
}

template <typename T>
std::span<const T> view(const std::vector<T>& values) {
  return values;
}

void reduces(const Context& context) {
  Stream stream = require(Stream::make(context.device));
  for (const std::size_t count : {1U, 2U, 3U, 4U, 8U, 9U, 16U, 17U, 33U, 64U}) {
    for (const std::size_t size : sizes(context)) {
      if (count != 4 && size > 1'000'003) continue;
      for (const std::size_t skew : {0U, 1U}) {
        std::vector<std::vector<float>> inputs;
        std::vector<OnDevice<float>> buffers;
        std::vector<std::span<const float>> host;
        std::vector<DeviceSpan<const float>> device;
        for (std::size_t k = 0; k < count; ++k) {
          inputs.push_back(adversarial(size, 100 * size + k, 1e30F));
          buffers.emplace_back(context.device, view(inputs.back()), stream, skew);
          device.push_back(buffers.back().span());
        }
        for (const auto& input : inputs) host.emplace_back(input);
        std::vector<float> expected(size);
        require(kernels::reduce_sum(host, kernels::SumIn::kFp32, expected));
        const OnDevice<float> out(context.device, size, stream, skew);
        require(kernels::device_reduce(device, out.span(), stream));
        check_same(view(out.values()), view(expected), "reduce");
        std::vector<float> mean(size);
        require(kernels::reduce_mean(host, mean));
        require(kernels::device_reduce_mean(device, out.span(), stream));
        check_same(view(out.values()), view(mean), "mean of buffers");
        require(kernels::device_reduce(device, buffers.back().span(), stream));
        check_same(view(buffers.back().values()), view(expected), "reduce in place");
      }
    }
  }
  check(!kernels::device_reduce({}, {}, stream).ok(), "no buffers are refused");
}

// Inputs of one call, on the host and on a device.
struct Inputs {
  Inputs(const Context& context, std::size_t count, std::size_t size, std::size_t skew, Stream& stream) {
    for (std::size_t k = 0; k < count; ++k) {
      values.push_back(adversarial(size, 300 * size + k, 1e30F));
      buffers.emplace_back(context.device, view(values.back()), stream, skew);
      device.push_back(buffers.back().span());
    }
    host.assign(values.begin(), values.end());
  }
  std::vector<std::vector<float>> values;
  std::vector<OnDevice<float>> buffers;
  std::vector<std::span<const float>> host;
  std::vector<DeviceSpan<const float>> device;
};

void weighted_means(const Context& context) {
  Stream stream = require(Stream::make(context.device));
  for (const std::size_t count : {1U, 2U, 3U, 8U, 64U}) {
    for (const std::size_t size : sizes(context)) {
      if (count != 3 && size > 1'000'003) continue;
      for (const std::size_t skew : {0U, 1U}) {
        const Inputs inputs(context, count, size, skew, stream);
        std::vector<std::uint32_t> weights;
        std::vector<double> coefficients;
        for (std::size_t k = 0; k < count; ++k) {
          weights.push_back(k == 0 ? kernels::kWeightEnd - 1 : static_cast<std::uint32_t>(7 * k + 1));
          coefficients.push_back((k % 2 == 0 ? 1.0 : -1.0) / static_cast<double>(3 * k + 7));
        }
        std::vector<float> expected(size);
        const OnDevice<float> out(context.device, size, stream, skew);
        require(kernels::weighted_mean(inputs.host, weights, expected));
        require(kernels::device_weighted_mean(inputs.device, weights, out.span(), stream));
        check_same(view(out.values()), view(expected), "weighted mean");
        kernels::combine(inputs.host, coefficients, expected);
        require(kernels::device_combine(inputs.device, coefficients, inputs.buffers.back().span(), stream));
        check_same(view(inputs.buffers.back().values()), view(expected), "combined, in place");
      }
    }
  }
  const Inputs one(context, 1, 5, 0, stream);
  const DeviceSpan<float> out = one.buffers[0].span();
  const std::vector<DeviceSpan<const float>> too_many(kernels::kReduceInputsMax + 1, one.device[0]);
  const std::vector<std::uint32_t> weights(too_many.size(), 1);
  for (const std::vector<std::uint32_t>& wrong : {std::vector<std::uint32_t>{}, {1, 1}, {0}, {kernels::kWeightEnd}}) {
    check(!kernels::device_weighted_mean(one.device, wrong, out, stream).ok(), "wrong weights are refused");
  }
  check(!kernels::device_weighted_mean(too_many, weights, out, stream).ok(), "too many vectors are refused");
  check(!kernels::device_combine({}, {}, {}, stream).ok(), "no vectors are refused");
  check_same(view(one.buffers[0].values()), view(one.values[0]), "what was refused wrote nothing");
}

Result<kernels::ScreenReport> screen_on(const Context& context, std::span<const float> values, std::uint64_t first,
                                        Stream& stream, std::size_t skew = 0) {
  const OnDevice<float> x(context.device, values, stream, skew);
  const OnDevice<std::byte> workspace(context.device, kernels::device_screen_workspace_bytes(values.size()), stream);
  const PinnedBuffer pinned = require(PinnedBuffer::make(context.device, sizeof(ChunkOutcome)));
  ChunkOutcome* const outcome = pinned.as<ChunkOutcome>().data();
  require(kernels::device_screen(x.span(), first, workspace.span(), outcome, stream));
  require(stream.synchronize());
  return kernels::screened_vector(*outcome);
}

void screens(const Context& context) {
  Stream stream = require(Stream::make(context.device));
  for (const std::size_t size : sizes(context)) {
    for (const auto& values : {normals(size, size), adversarial(size, size, 1e15F)}) {
      const kernels::ScreenReport expected = kernels::screen(values).value();
      const kernels::ScreenReport report = require(screen_on(context, values, 0, stream));
      check(report.max_abs == expected.max_abs, "the greatest magnitude of " + std::to_string(size));
      // Squares are added in another order than by the CPU, whose 16 lanes round for each term.
      const double rounding = (static_cast<double>(size) / 16 + 64) * 0x1p-53 * expected.norm_squared;
      check(std::fabs(report.norm_squared - expected.norm_squared) <= rounding, "the norm of " + std::to_string(size));
      check(require(screen_on(context, values, 0, stream, 1)).norm_squared == report.norm_squared,
            "the norm's bits depend on values and length alone");
    }
  }
}

void screens_name_the_first_that_is_not_finite(const Context& context) {
  Stream stream = require(Stream::make(context.device));
  auto values = normals(9'000, 5);
  for (const std::size_t bad : {8'999U, 5'000U, 0U}) {
    values[bad] = bad == 5'000 ? std::numeric_limits<float>::quiet_NaN() : -std::numeric_limits<float>::infinity();
    const auto report = screen_on(context, values, 70, stream);
    const auto expected = kernels::screen(values, 70);
    if (check(!report.ok(), "not finite")) {
      check(report.error().message.find(std::to_string(70 + bad)) != std::string::npos, report.error().message);
      check(expected.error().message.find(std::to_string(70 + bad)) != std::string::npos, expected.error().message);
    }
  }
}

void sums_and_means(const Context& context) {
  Stream stream = require(Stream::make(context.device));
  for (const std::size_t size : sizes(context)) {
    std::vector<std::int64_t> sum(size), add(size);
    std::iota(sum.begin(), sum.end(), -(std::int64_t{1} << 61));
    for (std::size_t i = 0; i < size; ++i) add[i] = static_cast<std::int64_t>(i * 0x9e3779b97f4a7c15ULL);
    for (const std::size_t skew : {0U, 1U}) {
      const OnDevice<std::int64_t> device_sum(context.device, view(sum), stream, skew);
      const OnDevice<std::int64_t> device_add(context.device, view(add), stream);
      std::vector<float> expected(size);
      kernels::mean_of_sums(sum, 40, 12'345, expected);
      const OnDevice<float> mean(context.device, size, stream);
      require(kernels::device_mean_of_sums(device_sum.span(), 40, 12'345, mean.span(), stream));
      check_same(view(mean.values()), view(expected), "mean");
      std::vector<std::int64_t> total(size);
      for (std::size_t i = 0; i < size; ++i) {
        total[i] = static_cast<std::int64_t>(static_cast<std::uint64_t>(sum[i]) + static_cast<std::uint64_t>(add[i]));
      }
      require(kernels::device_add_sums(device_add.span(), device_sum.span(), stream));
      check_same(view(device_sum.values()), view(total), "sums");
    }
  }
}

void updates(const Context& context) {
  Stream stream = require(Stream::make(context.device));
  for (const std::size_t size : sizes(context)) {
    const auto base = adversarial(size, 1, 1e20F), local = adversarial(size, 2, 1e20F), rest = normals(size, 3);
    for (const std::size_t skew : {0U, 3U}) {
      const OnDevice<float> x(context.device, view(base), stream, skew);
      const OnDevice<float> y(context.device, view(local), stream, skew);
      const OnDevice<float> z(context.device, view(rest), stream, skew);
      const OnDevice<float> out(context.device, size, stream, skew);
      std::vector<float> expected(size);
      kernels::pseudo_gradient(base, local, {}, expected);
      require(kernels::device_pseudo_gradient(x.span(), y.span(), {}, out.span(), stream));
      check_same(view(out.values()), view(expected), "pseudo_gradient without a residual");
      kernels::pseudo_gradient(base, local, rest, expected);
      require(kernels::device_pseudo_gradient(x.span(), y.span(), z.span(), out.span(), stream));
      check_same(view(out.values()), view(expected), "pseudo_gradient");
      std::vector<float> folded(size);
      kernels::add_residual(local, rest, folded);
      require(kernels::device_fold(y.span(), z.span(), out.span(), stream));
      check_same(view(out.values()), view(folded), "fold");
      kernels::add_residual(local, {}, folded);
      require(kernels::device_fold(y.span(), z.span().first(0), out.span(), stream));
      check_same(view(out.values()), view(folded), "fold with nothing of a residual");
      require(kernels::device_pseudo_gradient(x.span(), y.span(), z.span(), out.span(), stream));
      auto model = expected, moment = rest;
      kernels::apply_sgd(0.3, base, model);
      kernels::apply_momentum(0.7, 0.9, base, moment, model);
      require(kernels::device_apply_sgd(0.3, x.span(), out.span(), stream));
      require(kernels::device_apply_momentum(0.7, 0.9, x.span(), z.span(), out.span(), stream));
      check_same(view(out.values()), view(model), "the model");
      check_same(view(z.values()), view(moment), "the moment");
      std::vector<float> scaled(size);
      for (std::size_t i = 0; i < size; ++i) scaled[i] = local[i] + 0.37F * model[i];
      require(kernels::device_add_scaled(out.span(), 0.37F, y.span(), stream));
      check_same(view(y.values()), view(scaled), "add_scaled");
    }
  }
}

void optimizers(const Context& context) {
  Stream stream = require(Stream::make(context.device));
  for (const std::size_t size : sizes(context)) {
    for (const std::size_t skew : {0U, 1U}) {
      const auto mean = adversarial(size, 4, 1e4F);
      auto moment = normals(size, 5), variance = normals(size, 6), model = normals(size, 7);
      for (float& value : variance) value = value * value + 1e-6F;
      const OnDevice<float> d(context.device, view(mean), stream, skew), m(context.device, view(moment), stream, skew);
      const OnDevice<float> v(context.device, view(variance), stream, skew);
      const OnDevice<float> theta(context.device, view(model), stream, skew);
      for (const auto rule :
           {kernels::AdaptiveRule::kAdagrad, kernels::AdaptiveRule::kAdam, kernels::AdaptiveRule::kYogi}) {
        kernels::apply_adaptive(rule, {}, mean, moment, variance, model);
        require(kernels::device_apply_adaptive(rule, {}, d.span(), m.span(), v.span(), theta.span(), stream));
        check_same(view(theta.values()), view(model), "the model of an adaptive rule");
        check_same(view(v.values()), view(variance), "the variance");
      }
      kernels::apply_nesterov(0.7, 0.9, mean, moment, model);
      require(kernels::device_apply_nesterov(0.7, 0.9, d.span(), m.span(), theta.span(), stream));
      check_same(view(theta.values()), view(model), "Nesterov's model");
      check_same(view(m.values()), view(moment), "the moment");
      for (std::uint64_t step = 1; step <= 4; ++step) {
        const kernels::DelayedNesterovOptions delayed{.every = 3, .c = 0.2, .step = step};
        kernels::apply_delayed_nesterov(delayed, mean, moment, variance, model);
        require(kernels::device_apply_delayed_nesterov(delayed, d.span(), m.span(), v.span(), theta.span(), stream));
        check_same(view(theta.values()), view(model), "delayed Nesterov's model");
        check_same(view(m.values()), view(moment), "its moment");
        check_same(view(v.values()), view(variance), "its buffer");
      }
    }
  }
}

// Norms have the CPU's bits, over chunks of any length, so that rates do.
void layer_wise_rates(const Context& context) {
  Stream stream = require(Stream::make(context.device));
  const kernels::LambOptions lamb{.weight_decay = 0.01, .step = 3};
  kernels::SquareLanes norm{}, direction{};
  const OnDevice<double> device_norm(context.device, std::span<const double>(norm), stream);
  const OnDevice<double> device_direction(context.device, std::span<const double>(direction), stream);
  for (const std::size_t size : sizes(context)) {
    for (const std::size_t skew : {0U, 1U}) {
      const auto mean = adversarial(size, 14, 1e4F);
      auto moment = normals(size, 15), variance = normals(size, 16), model = normals(size, 17);
      for (float& value : variance) value = value * value;
      const OnDevice<float> d(context.device, view(mean), stream, skew), m(context.device, view(moment), stream, skew);
      const OnDevice<float> v(context.device, view(variance), stream, skew);
      const OnDevice<float> theta(context.device, view(model), stream, skew);
      const OnDevice<std::byte> workspace(context.device, kernels::device_squares_workspace_bytes(size), stream);
      kernels::add_squares(mean, norm);
      require(kernels::device_add_squares(d.span(), device_norm.span(), workspace.span(), stream));
      check_same(view(device_norm.values()), std::span<const double>(norm), "squares");
      kernels::add_lamb_squares(lamb, mean, moment, variance, model, direction);
      require(kernels::device_add_lamb_squares(lamb, d.span(), m.span(), v.span(), theta.span(),
                                               device_direction.span(), workspace.span(), stream));
      check_same(view(device_direction.values()), std::span<const double>(direction), "squares of LAMB's direction");
      kernels::apply_lamb(lamb, 0.01, mean, moment, variance, model);
      require(kernels::device_apply_lamb(lamb, 0.01, d.span(), m.span(), v.span(), theta.span(), stream));
      check_same(view(theta.values()), view(model), "LAMB's model");
      check_same(view(v.values()), view(variance), "LAMB's variance");
      kernels::apply_lars(0.9, 0.02, 1e-4, mean, moment, model);
      require(kernels::device_apply_lars(0.9, 0.02, 1e-4, d.span(), m.span(), theta.span(), stream));
      check_same(view(theta.values()), view(model), "the model of LARS");
      check_same(view(m.values()), view(moment), "the moment of LARS");
    }
  }
}

// Vectors long enough to be added piece by piece, that are unkind to it.
std::vector<std::vector<float>> long_vectors(const Context& context) {
  constexpr std::size_t kSize = 60'000;
  Rng rng(31);
  const auto made = [&](auto value) {
    std::vector<float> values(kSize);
    for (std::size_t i = 0; i < kSize; ++i) values[i] = value(i);
    return values;
  };
  const float most = std::numeric_limits<float>::max();
  std::vector<std::vector<float>> all = {
      normals(context.is_small ? 700'001 : 30'000'001, 32),
      adversarial(kSize, 33, 1e4F),
      adversarial(kSize, 34, most),
      // From 2^53 on odd squares end in half a unit of the sum, or in more halves: rounding goes by the lowest bit.
      made([&](std::size_t i) { return i < 32 ? 0x1p26F : static_cast<float>(2 * rng.below(9) + 1); }),
      made([&](std::size_t i) { return i < 32 ? 0x1p26F : 1.0F; }),
      // A power of two is passed in every piece, or just reached.
      made([](std::size_t i) { return std::ldexp(1.0F, static_cast<int>(i / 1'500)); }),
      made([](std::size_t i) { return std::ldexp(1.0F, -static_cast<int>(i / 1'000)); }),
      made([](std::size_t) { return 1.0F; }),
      made([](std::size_t i) { return i < 30'000 ? 0.0F : 0x1p-149F; }),
      made([](std::size_t) { return 0.0F; }),
  };
  all.push_back(normals(kSize, 35));
  all.back()[40'000] = std::numeric_limits<float>::infinity();
  return all;
}

// Over and over into the same lanes: sums begin where the last vector left them.
void long_sums_of_squares(const Context& context) {
  Stream stream = require(Stream::make(context.device));
  for (const auto& values : long_vectors(context)) {
    const OnDevice<float> x(context.device, view(values), stream);
    const OnDevice<std::byte> workspace(context.device, kernels::device_squares_workspace_bytes(values.size()), stream);
    kernels::SquareLanes expected{};
    const OnDevice<double> lanes(context.device, std::span<const double>(expected), stream);
    for (int times = 0; times < 3; ++times) {
      kernels::add_squares(values, expected);
      require(kernels::device_add_squares(x.span(), lanes.span(), workspace.span(), stream));
      check_same(view(lanes.values()), std::span<const double>(expected), "a long sum of squares");
    }
    check(!kernels::device_add_squares(x.span(), lanes.span(), workspace.span().first(8), stream).ok(),
          "a workspace that is too small is refused");
  }
}

void events_order_streams(const Context& context) {
  Stream first = require(Stream::make(context.device));
  Stream second = require(Stream::make(context.device));
  kernels::Event event = require(kernels::Event::make(context.device));
  const auto values = normals(100'000, 9);
  const OnDevice<float> a(context.device, view(values), first);
  const OnDevice<float> b(context.device, values.size(), second);
  require(kernels::device_add_scaled(a.span(), 1.0F, a.span(), first));
  require(event.record(first));
  require(event.hold(second));
  require(kernels::copy_on_device(DeviceSpan<const float>(a.span()), b.span(), second));
  std::vector<float> expected(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) expected[i] = values[i] + values[i];
  check_same(view(b.values()), view(expected), "what the event held back");
  require(event.wait());
  require(kernels::fill_zero({reinterpret_cast<std::byte*>(b.span().data()), b.span().size_bytes()}, second));
  check_same(view(b.values()), view(std::vector<float>(values.size())), "zeros");
}

}  // namespace

void add_vector_tests(std::vector<Test>& tests) {
  tests.push_back({"reduce", reduces});
  tests.push_back({"weighted mean", weighted_means});
  tests.push_back({"screen", screens});
  tests.push_back({"screen names a coordinate", screens_name_the_first_that_is_not_finite});
  tests.push_back({"sums and means", sums_and_means});
  tests.push_back({"updates", updates});
  tests.push_back({"optimizers", optimizers});
  tests.push_back({"layer-wise rates", layer_wise_rates});
  tests.push_back({"long sums of squares", long_sums_of_squares});
  tests.push_back({"events", events_order_streams});
}

}  // namespace fluvial::gpu_test
