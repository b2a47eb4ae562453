// A round with several passes (docs/design/phases.md) as an audit follows it: makes what a site sends in each, the mean
// that a pass hands down, the mean update, what a site has left, and the state that the next round begins with. Shares
// with the federation the encoder alone, as bench_audit.h does: P and Q of a site are what the codec makes of its
// update. The rest is kernels/reference/lowrank.h.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cli/bench_encoded.h"
#include "cli/json.h"
#include "core/aggregate/shapes.h"
#include "core/base/bytes.h"
#include "core/round/plan.h"
#include "core/round/schema.h"
#include "kernels/codec.h"
#include "kernels/reference/lowrank.h"

namespace fluvial::cli {

class PassesAudit {
 public:
  // `codec` outlives it. `before`: of a run with the same codec, which this one continues: it begins with what that one
  // came to.
  PassesAudit(const kernels::Codec& codec, const round::Plan& plan, const round::Schema& schema,
              const PassesAudit* before = nullptr);

  std::size_t value_count(std::uint32_t pass) const { return lowrank_.sent_count(pass); }
  // In pass 1, after reduced().
  Result<Encoded> encode(std::uint32_t pass, std::uint64_t round, const std::string& site, std::span<const float> p,
                         std::span<const std::byte> trailer) const;
  // The mean of pass 0. kDataLoss: `round`, as the admin API gives it, names another.
  Status reduced(const json::value& round, std::vector<float> mean);
  std::vector<float> left(std::span<const float> p, const Encoded& sent) const;
  // The mean of pass 1 to the mean update; and the next state, of which `round` may not name another.
  Result<std::vector<float>> finish(const json::value& round, std::span<const float> mean);

 private:
  void set_state(std::uint64_t round, std::span<const float> mean);  // 0, and nothing: as drawn

  const kernels::Codec& codec_;
  aggregate::Shapes shapes_;  // for the encoder
  kernels::reference::LowRank lowrank_;
  std::uint64_t seed_;
  std::uint64_t fingerprint_ = 0;  // of the shapes: the codec's own
  Buffer state_;                   // that the next round begins with
  std::vector<float> mean_;        // of pass 0, in the round that goes on
  std::vector<float> basis_;
};

}  // namespace fluvial::cli
