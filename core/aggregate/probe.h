// The probes of a sum: beside the model's coordinates every site has one of its own, for the value that its update
// brings for it (core/round/probe.h), which is 1. It is added as the values are, by their kernel and at their weight.
// So after any number of merges the coordinate of site s holds exactly w_s * 2^scale if its update was added once, and
// nothing if not: round::check_probe() compares that with the contributor set.
#pragma once

#include <cstdint>
#include <map>

#include "core/base/bytes.h"
#include "core/base/ids.h"
#include "core/base/result.h"

namespace fluvial::aggregate {

// Not thread safe. Ordered by site, so that it is written and read the same everywhere.
class Probe {
 public:
  explicit Probe(int scale_bits) : scale_bits_(scale_bits) {}

  // Adds what the site sent: once more if it was added before. kInvalidArgument for a weight outside 1 to kWeightEnd -
  // 1; kDataLoss when it is no fp32 value, when the scale has no room for it, or when the sum would leave int64.
  Status add(SiteId site, ByteSpan value, std::uint32_t weight);
  // Adds a sum that came up the tree. Errors as above.
  Status merge(SiteId site, std::int64_t sum);

  const std::map<SiteId, std::int64_t>& sums() const { return sums_; }

 private:
  int scale_bits_;
  std::map<SiteId, std::int64_t> sums_;
};

}  // namespace fluvial::aggregate
