// The independent check behind `exact`: makes every update again, encodes and decodes it, sums in a plain loop, takes
// the server's step, and compares with what the federation committed, bit for bit. Shares with the federation only the
// encoder (its output is what a codec is); decoding, fixed point, mean and step are written here or in
// kernels/reference from the documentation.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cli/json.h"
#include "core/base/bytes.h"
#include "core/round/plan.h"
#include "kernels/codec.h"

namespace fluvial::cli {

struct AuditSite {
  std::uint64_t index = 0;  // 1, 2, ...: of its updates
  std::uint32_t node = 0;   // its id in the federation
};

// Rounds are given in order. Memory: about 4 bytes a parameter and site, and 30 a parameter.
class Audit {
 public:
  Audit(round::Plan plan, std::uint64_t seed, std::uint64_t run, std::vector<AuditSite> sites,
        std::uint64_t weight_max_sum);

  // `round` as the admin API gives it. An error says what differed first; a committed sum was then not exact.
  Status check_round(const json::value& round, std::span<const float> base, std::span<const float> committed);

 private:
  enum class Fate { kCounted, kLate, kRefused };
  struct SiteState {
    AuditSite site;
    std::vector<float> residual;
  };
  Fate fate_of(const json::value& round, std::uint32_t node) const;
  Status add_site(SiteState& state, Fate fate, std::uint64_t round, std::span<const float> base);
  Status add_decoded(std::span<const double> decoded, std::uint64_t weight, std::span<std::int64_t> sum) const;
  Status compare(const json::value& round, std::span<const float> base, std::span<const float> committed,
                 std::uint64_t total_weight) const;

  round::Plan plan_;
  std::uint64_t seed_;
  std::uint64_t run_;
  std::uint64_t weight_max_sum_;
  int scale_bits_ = 0;
  std::unique_ptr<kernels::Codec> codec_;
  std::vector<SiteState> sites_;
  std::vector<std::int64_t> sum_;
  std::vector<float> update_;
};

}  // namespace fluvial::cli
