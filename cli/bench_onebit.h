// 1-bit Adam (docs/formats/onebit-adam.md) as an audit follows it: what a site is lent of the momentum that came down,
// and what the root makes of the mean, the momentum for the next round among it. Written from that page and
// kernels/reference; what a site sends is the encoder's output, as with every codec (bench_audit.h).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cli/json.h"
#include "core/base/result.h"
#include "core/round/plan.h"
#include "kernels/codec.h"

namespace fluvial::cli {

class OnebitAudit {
 public:
  using Momentum = std::shared_ptr<const std::vector<float>>;  // decoded; null: nothing came down

  // `before`: of a run that this one continues. Without a warm-up it goes on with what that one came to.
  OnebitAudit(const kernels::CodecSpec& codec, const round::Plan& plan, const OnebitAudit* before = nullptr);

  const Momentum& momentum() const { return handed_; }  // that the next round begins with
  // A site's residual without what it was lent before, and with what it is lent now of `momentum`.
  void exchange(const Momentum& momentum, std::span<float> residual, std::span<float> lent) const;
  // The model that the round makes, in order. kDataLoss: `round`, as the admin API gives it, hands down another
  // momentum.
  Result<std::vector<float>> step(const json::value& round, double lr, std::span<const float> base,
                                  std::span<const float> mean);

 private:
  std::vector<std::byte> hand_down();  // the moment as it travels, which keeps what that leaves out
  Status check_handed(const json::value& round, std::span<const std::byte> bytes) const;

  double beta1_;
  double beta2_;
  float tau_;
  std::uint64_t freeze_;
  std::size_t block_;
  std::size_t chunk_;
  std::vector<float> moment_;  // from the end of the warm-up on, what the momentum that came down leaves out
  std::vector<float> variance_;
  Momentum handed_;
};

}  // namespace fluvial::cli
