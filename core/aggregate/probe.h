// The probe: a sum beside the model's in which every site has a coordinate of its own and sends the value 1 there,
// outside codec, residual and optimizer. After any number of merges, coordinate s must hold exactly w_s * 2^scale if
// site s is among the contributors, and 0 otherwise: proof that each contribution was counted once or not at all.
#pragma once

#include <cstdint>
#include <map>
#include <span>

#include "core/base/ids.h"
#include "core/base/result.h"

namespace fluvial::aggregate {

struct Contributor {
  SiteId site;
  std::uint32_t weight = 0;
};

// Not thread safe. Ordered by site, so that it is written and read the same everywhere.
class Probe {
 public:
  explicit Probe(int scale_bits) : scale_bits_(scale_bits) {}

  // Counts the site's contribution: once more if it was counted before, which check() then finds. kInvalidArgument for
  // a weight outside 1 to kWeightEnd - 1; kDataLoss when the scale has no room for it, or the sum would leave int64.
  Status add(SiteId site, std::uint32_t weight);
  // Adds sums that came up the tree (one coordinate, or all of another probe). Errors as above.
  Status merge(SiteId site, std::int64_t sum);
  Status merge(const Probe& other);

  // kDataLoss names the first site (by id) whose sum is not what the contributors say.
  Status check(std::span<const Contributor> contributors) const;

  int scale_bits() const { return scale_bits_; }
  const std::map<SiteId, std::int64_t>& sums() const { return sums_; }  // sites that are absent hold 0
  void reset(int scale_bits);

 private:
  int scale_bits_;
  std::map<SiteId, std::int64_t> sums_;
};

}  // namespace fluvial::aggregate
