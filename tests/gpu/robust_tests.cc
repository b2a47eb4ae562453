// device_robust.h against robust.h.
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

}  // namespace

void add_robust_tests(std::vector<Test>& tests) { tests.push_back({"robust rules", rules}); }

}  // namespace fluvial::gpu_test
