// What a site's update costs on a GPU: reduced, encoded and out of the device, overlapped and one after the other.
#pragma once

#include <string>
#include <vector>

#include "kernels/device.h"

namespace fluvial::gpu_test {

struct SiteTimes {
  double bytes = 0;            // into the device and out of it
  std::vector<double> whole;   // seconds, a round each: edge/gpu
  std::vector<double> stages;  // the same work, each stage waited for
};

// Two workers' models of `values` values, a base and a residual in host memory. Whoever takes p and the encoded chunks
// copies them. Empty where the device is no GPU or does not have the codec.
SiteTimes site_times(const kernels::Device& device, std::size_t values, const std::string& codec, std::size_t rounds);

}  // namespace fluvial::gpu_test
