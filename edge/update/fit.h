// What of p = update + residual is sent. The parent refuses an update that decodes to a value beyond value_abs_max, or
// to a norm beyond update_norm_max. The site's own training answers for its own update alone; what the residual adds
// is sent as far as the parent takes it, and the rest stays in the residual: so no residual is ever in the way.
#pragma once

#include <span>

#include "core/round/plan.h"
#include "core/store/site_store.h"
#include "kernels/codec.h"

namespace fluvial::edge {

// As the parent measures an update: over its decoded values.
struct Measure {
  float max_abs = 0;
  double norm_squared = 0;  // chunk by chunk, in order

  void add(const kernels::ScreenReport& chunk);
};

// Finds the fit of one update by trying: what was encoded is measured, and what the parent would refuse is fitted
// tighter. Pure and deterministic.
class Fitting {
 public:
  // `max_abs`: of p.
  Fitting(const round::Plan& plan, const kernels::CodecSpec& codec, float max_abs);

  const store::Fit& fit() const { return fit_; }  // to try now
  bool must_measure() const { return must_measure_; }
  bool too_long(const Measure& decoded) const;
  bool accepts(const Measure& decoded) const;
  // After accepts() said no: the next fit. kDataLoss when there is none, which is the codec's and the plan's fault.
  Status tighten(const Measure& decoded);
  // The training's own update is too long: it is the parent who refuses it, by name.
  void allow_any_norm() { norm_max_ = 0; }

 private:
  double value_abs_max_;
  double norm_max_;
  float first_value_max_;  // clamps nothing but what is beyond value_abs_max
  bool must_measure_;
  int tightened_ = 0;
  store::Fit fit_;
};

// out = p, fitted; `out` may be p.
void fit_values(std::span<const float> p, const store::Fit& fit, std::span<float> out);

// The residual that a counted chunk leaves: p less what was decoded of it; for an unbiased randk, whose decoded values
// stand for all that was encoded, less that. `p` becomes it.
Status leave_residual(const kernels::Codec& codec, const store::Fit& fit, ByteSpan chunk, std::span<float> p);

}  // namespace fluvial::edge
