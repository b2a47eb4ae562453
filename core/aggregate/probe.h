// The probes of a sum. Beside the model's coordinates a sum has one for each site. It adds up the probes of that site's
// updates (core/round/probe.h), each of which is 1, by the kernel and with the weight of the update's values. So after
// any number of merges the coordinate of site s holds exactly w_s * 2^scale if its update was added once, and does not
// exist if it was not added: round::check_probe() compares that with the contributor set.
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

  // Adds the probe that the site sent, even if one was added before. kInvalidArgument for a weight outside 1 to
  // kWeightEnd - 1; kDataLoss when it is no fp32 value, when the scale has no room, or when the sum would leave int64.
  // `weight` is in units of 2^-down_bits, as in Accumulator::add_chunk().
  Status add(SiteId site, ByteSpan value, std::uint32_t weight, int down_bits = 0);
  // Adds a sum that came up the tree. Errors as above.
  Status merge(SiteId site, std::int64_t sum);

  const std::map<SiteId, std::int64_t>& sums() const { return sums_; }

 private:
  int scale_bits_;
  std::map<SiteId, std::int64_t> sums_;
};

}  // namespace fluvial::aggregate
