// device_robust.h against robust.h and reduce.h.
#include <array>
#include <cmath>
#include <limits>

#include "kernels/device_robust.h"
#include "kernels/reduce.h"
#include "kernels/test_values.h"
#include "tests/gpu/check.h"

namespace fluvial::gpu_test {
namespace {

using kernels::test_values::adversarial;
using kernels::test_values::normals;

template <typename T>
std::span<const T> view(const std::vector<T>& values) {
  return values;
}

struct Updates {
  std::vector<std::vector<float>> values;
  std::vector<OnDevice<float>> buffers;
  std::vector<std::span<const float>> host;
  std::vector<DeviceSpan<const float>> device;

  Updates(const Context& context, std::size_t count, std::size_t size, std::size_t skew, Stream& stream) {
    for (std::size_t k = 0; k < count; ++k) {
      values.push_back(k % 3 == 0 ? adversarial(size, 7 * size + k, 1e4F) : normals(size, 7 * size + k));
      buffers.emplace_back(context.device, view(values.back()), stream, skew);
      device.push_back(buffers.back().span());
    }
    for (const auto& update : values) host.emplace_back(update);
  }

  // Few different values, among them the extremes: ties that weights decide, sums that leave fp32.
  static Updates of_extremes(const Context& context, std::size_t count, std::size_t size, Stream& stream) {
    constexpr float kMost = std::numeric_limits<float>::max();
    constexpr std::array<float, 8> kValues = {-0.0F, 0.0F, 1.0F, 1.0F, -kMost, kMost, 0x1p-149F, -0x1p-126F};
    Updates updates(context, 0, 0, 0, stream);
    Rng rng(count);
    for (std::size_t k = 0; k < count; ++k) {
      std::vector<float> values(size);
      for (float& value : values) value = kValues[rng.below(kValues.size())];
      updates.add(context, std::move(values), stream);
    }
    for (const auto& update : updates.values) updates.host.emplace_back(update);
    return updates;
  }
  void add(const Context& context, std::vector<float> update, Stream& stream) {
    values.push_back(std::move(update));
    buffers.emplace_back(context.device, view(values.back()), stream);
    device.push_back(buffers.back().span());
  }
};

void rules(const Context& context) {
  Stream stream = require(Stream::make(context.device));
  for (const std::size_t count : {1U, 2U, 3U, 8U, 17U, 64U}) {
    for (const std::size_t size : {1UL, 511UL, 1'000UL, context.is_small ? 2'500UL : 3'000'017UL}) {
      if (count == 64 && size > 500'000) continue;
      Updates updates(context, count, size, size % 2, stream);
      Buffer workspace(kernels::robust_workspace_bytes(count, false));
      const OnDevice<std::byte> scratch(context.device, kernels::device_robust_workspace_bytes(count), stream);
      std::vector<float> expected(size);
      const OnDevice<float> out(context.device, size, stream);
      require(kernels::coordinate_median(updates.host, workspace.span(), expected));
      require(kernels::device_coordinate_median(updates.device, scratch.span(), out.span(), stream));
      check_same(view(out.values()), view(expected), "the median of " + std::to_string(count));
      for (const std::size_t drop : {std::size_t{0}, (count - 1) / 4, (count - 1) / 2}) {
        require(kernels::trimmed_mean(updates.host, drop, workspace.span(), expected));
        require(kernels::device_trimmed_mean(updates.device, drop, scratch.span(), out.span(), stream));
        check_same(view(out.values()), view(expected), "the trimmed mean of " + std::to_string(count));
      }
      std::vector<double> distances(kernels::pair_count(count), 0.5);
      const OnDevice<double> device_distances(context.device, view(distances), stream);
      require(kernels::add_distances(updates.host, distances));
      require(kernels::device_add_distances(updates.device, device_distances.span(), scratch.span(), stream));
      check_same(view(device_distances.values()), view(distances), "the distances of " + std::to_string(count));
      require(kernels::coordinate_median(updates.host, workspace.span(), expected));
      require(kernels::device_coordinate_median(updates.device, scratch.span(), updates.buffers.back().span(), stream));
      check_same(view(updates.buffers.back().values()), view(expected), "the median in place");
      check(!kernels::device_trimmed_mean(updates.device, (count + 1) / 2, scratch.span(), out.span(), stream).ok(),
            "a trimmed mean of nothing is refused");
    }
  }
  check(!kernels::device_coordinate_median({}, {}, {}, stream).ok(), "no updates are refused");
}

std::vector<std::uint32_t> weights_of(std::size_t count) {
  constexpr std::array<std::uint32_t, 5> kWeights = {1, (1U << 29) - 1, 7, 7, 100'000};
  std::vector<std::uint32_t> weights(count);
  for (std::size_t k = 0; k < count; ++k) weights[k] = kWeights[(3 * k + count) % kWeights.size()];
  return weights;
}

void compare_weighted(const Context& context, const Updates& updates, Stream& stream) {
  const std::size_t count = updates.host.size(), size = updates.host[0].size();
  Buffer workspace(kernels::robust_workspace_bytes(count, true));
  const OnDevice<std::byte> scratch(context.device, kernels::device_robust_workspace_bytes(count), stream);
  std::vector<float> expected(size);
  const OnDevice<float> out(context.device, size, stream);
  const auto same = [&](const std::string& rule) {
    check_same(view(out.values()), view(expected), rule + " of " + std::to_string(count));
  };
  for (const auto& weights : {weights_of(count), std::vector<std::uint32_t>(count, 5)}) {
    std::uint64_t total = 0;
    for (const std::uint32_t weight : weights) total += weight;
    require(kernels::weighted_median(updates.host, weights, workspace.span(), expected));
    require(kernels::device_weighted_median(updates.device, weights, scratch.span(), out.span(), stream));
    same("the weighted median");
    for (const std::uint64_t drop : {std::uint64_t{0}, total / 3, (total - 1) / 2}) {
      require(kernels::weighted_trimmed_mean(updates.host, weights, drop, workspace.span(), expected));
      require(kernels::device_weighted_trimmed_mean(updates.device, weights, drop, scratch.span(), out.span(), stream));
      same("the weighted trimmed mean");
    }
    check(!kernels::device_weighted_trimmed_mean(updates.device, weights, (total + 1) / 2, scratch.span(), out.span(),
                                                 stream)
               .ok(),
          "a weighted trimmed mean of nothing is refused");
  }
  for (const std::size_t f : {std::size_t{0}, (count - 1) / 4, (count - 1) / 2}) {
    require(kernels::bulyan_combine(updates.host, f, workspace.span(), expected));
    require(kernels::device_bulyan_combine(updates.device, f, scratch.span(), out.span(), stream));
    same("Bulyan's mean");
  }
  std::vector<std::uint32_t> weights = weights_of(count);
  weights[0] = 0;
  check(
      !kernels::device_weighted_median(updates.device, weights, scratch.span(), out.span(), stream).ok() &&
          !kernels::device_weighted_median(updates.device, view(weights).subspan(1), scratch.span(), out.span(), stream)
               .ok() &&
          !kernels::device_bulyan_combine(updates.device, (count + 1) / 2, scratch.span(), out.span(), stream).ok(),
      "weights and counts that no rule takes are refused");
}

void compare_iterated(const Context& context, const Updates& updates, Stream& stream) {
  const std::size_t count = updates.host.size(), size = updates.host[0].size();
  const OnDevice<std::byte> scratch(context.device, kernels::device_robust_workspace_bytes(count), stream);
  std::vector<double> squares(count), expected(count), coefficients(count);
  const auto combined_alike = [&](const std::string& rule) {
    check_same(view(coefficients), view(expected), rule + " of " + std::to_string(count) + ": coefficients");
    std::vector<float> mean(size);
    require(kernels::combine(updates.host, expected, mean));
    const OnDevice<float> out(context.device, size, stream);
    require(kernels::device_combine(updates.device, coefficients, out.span(), stream));
    check_same(view(out.values()), view(mean), rule + " of " + std::to_string(count));
  };
  for (const auto& weights : {std::vector<std::uint32_t>(), weights_of(count)}) {
    const auto report = require(kernels::geometric_median(updates.host, weights, {}, squares, expected));
    const auto on_device =
        require(kernels::device_geometric_median(updates.device, weights, {}, coefficients, scratch.span(), stream));
    check(report.iterations == on_device.iterations && report.objective == on_device.objective &&
              report.converged == on_device.converged,
          "the report of a geometric median");
    combined_alike("the geometric median");
  }
  const Status clipped = kernels::centered_clipping(updates.host, 2.5, 3, squares, expected);
  const Status on_device =
      kernels::device_centered_clipping(updates.device, 2.5, 3, coefficients, scratch.span(), stream);
  check(clipped.ok() == on_device.ok(), "centered clipping of " + std::to_string(count));
  if (clipped.ok()) combined_alike("centered clipping");
}

void weighted_and_iterated(const Context& context) {
  Stream stream = require(Stream::make(context.device));
  for (const std::size_t count : {1U, 2U, 5U, 18U, 64U}) {
    const std::size_t size = count == 5 ? 1'300 : count == 64 ? 130 : 520;
    const Updates updates(context, count, size, size % 3, stream);
    compare_weighted(context, updates, stream);
    compare_iterated(context, updates, stream);
    const Updates extremes = Updates::of_extremes(context, count, 200, stream);
    compare_weighted(context, extremes, stream);
    compare_iterated(context, extremes, stream);
  }
  if (context.is_small) return;
  const Updates updates(context, 9, 3'000'017, 1, stream);
  compare_weighted(context, updates, stream);
  compare_iterated(context, updates, stream);
}

// A value that is not finite is found as on the CPU, and by the same words.
void what_is_not_finite(const Context& context) {
  Stream stream = require(Stream::make(context.device));
  for (const float poison : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    Updates updates(context, 0, 0, 0, stream);
    for (std::size_t k = 0; k < 4; ++k) {
      auto values = normals(700, k);
      if (k == 2) values[650] = poison;
      updates.add(context, std::move(values), stream);
    }
    for (const auto& update : updates.values) updates.host.emplace_back(update);
    const OnDevice<std::byte> scratch(context.device, kernels::device_robust_workspace_bytes(4), stream);
    std::vector<double> squares(4), coefficients(4);
    const auto expected = kernels::geometric_median(updates.host, {}, {}, squares, coefficients);
    const auto got = kernels::device_geometric_median(updates.device, {}, {}, coefficients, scratch.span(), stream);
    check(!expected.ok() && !got.ok() && expected.error().message == got.error().message,
          "a geometric median of what is not finite");
    check(!kernels::device_centered_clipping(updates.device, 1, 2, coefficients, scratch.span(), stream).ok(),
          "centered clipping of what is not finite");
  }
}

// Which updates are chosen is found on the host; their mean is the CPU's.
void choices(const Context& context) {
  constexpr std::size_t kCount = 11, kAttackers = 2, kSize = 600;
  Stream stream = require(Stream::make(context.device));
  const Updates updates(context, kCount, kSize, 0, stream);
  const OnDevice<std::byte> scratch(context.device, kernels::device_robust_workspace_bytes(kCount), stream);
  const std::vector<double> zeros(kernels::pair_count(kCount));
  std::vector<double> expected = zeros, room(kernels::multi_krum_workspace(kCount));
  const OnDevice<double> distances(context.device, view(zeros), stream);
  require(kernels::add_distances(updates.host, expected));
  require(kernels::device_add_distances(updates.device, distances.span(), scratch.span(), stream));
  std::vector<std::size_t> chosen(kCount - kAttackers);
  require(kernels::multi_krum(distances.values(), kCount, kAttackers, room, chosen));
  std::vector<std::span<const float>> host;
  std::vector<DeviceSpan<const float>> device;
  for (const std::size_t k : chosen) {
    host.push_back(updates.host[k]);
    device.push_back(updates.device[k]);
  }
  std::vector<std::size_t> chosen_on_host(chosen.size());
  require(kernels::multi_krum(expected, kCount, kAttackers, room, chosen_on_host));
  check(chosen == chosen_on_host, "multi-Krum's choice");
  std::vector<float> mean(kSize);
  const OnDevice<float> out(context.device, kSize, stream);
  require(kernels::reduce_mean(host, mean));
  require(kernels::device_reduce_mean(device, out.span(), stream));
  check_same(view(out.values()), view(mean), "multi-Krum");
}

void norm_clipping(const Context& context) {
  Stream stream = require(Stream::make(context.device));
  const PinnedBuffer pinned = require(PinnedBuffer::make(context.device, sizeof(kernels::ChunkOutcome)));
  auto* const outcome = pinned.as<kernels::ChunkOutcome>().data();
  constexpr std::uint64_t kFirst = 77;
  const auto clip = [&](std::vector<float> values, double bound, std::size_t skew) {
    const OnDevice<float> x(context.device, view(values), stream, skew);
    const OnDevice<std::byte> scratch(context.device, kernels::device_clip_workspace_bytes(values.size()), stream);
    const auto expected = kernels::clip_norm(values, bound, kFirst);
    require(kernels::device_clip_norm(x.span(), bound, kFirst, scratch.span(), outcome, stream));
    require(stream.synchronize());
    const auto got = kernels::screened_vector(*outcome);
    const std::string what = "a norm clipped to " + std::to_string(bound);
    check_same(view(x.values()), view(values), what);
    if (!check(got.ok() == expected.ok(), what + ": the outcome") || !got.ok()) return;
    check(got->max_abs == expected->max_abs &&
              std::fabs(got->norm_squared - expected->norm_squared) <= 1e-12 * expected->norm_squared,
          what + ": the report");
  };
  for (const double bound : {1e-30, 0.5, 30.0, 1e30}) {
    clip(normals(context.is_small ? 5'000 : 3'000'017, 3), bound, 1);
    clip(adversarial(3'001, 4, std::numeric_limits<float>::max()), bound, 0);
    clip(std::vector<float>(33, 0x1p-149F), bound, 0);
    clip(std::vector<float>(100, 0.0F), bound, 2);
    for (const float poison : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      auto values = normals(400, 5);
      values[399] = poison;
      clip(values, bound, 0);
    }
  }
  auto values = normals(700, 6);
  const OnDevice<float> x(context.device, view(values), stream);
  const OnDevice<std::byte> scratch(context.device, kernels::device_clip_workspace_bytes(values.size()), stream);
  kernels::scale_in_place(values, 0.3);
  require(kernels::device_scale_in_place(x.span(), 0.3, kFirst, scratch.span(), outcome, stream));
  check_same(view(x.values()), view(values), "values scaled");
  for (const double bound : {0.0, -1.0, std::numeric_limits<double>::infinity()}) {
    check(!kernels::device_clip_norm(x.span(), bound, 0, scratch.span(), outcome, stream).ok(), "a bound is refused");
  }
}

}  // namespace

void add_robust_tests(std::vector<Test>& tests) {
  tests.push_back({"robust rules", rules});
  tests.push_back({"robust rules, weighted and iterated", weighted_and_iterated});
  tests.push_back({"robust rules, not finite", what_is_not_finite});
  tests.push_back({"robust rules, choices", choices});
  tests.push_back({"norm clipping", norm_clipping});
}

}  // namespace fluvial::gpu_test
