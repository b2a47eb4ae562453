// The part of p = update + residual that is sent. The parent refuses an update that decodes to a value beyond
// value_abs_max, or to a norm beyond update_norm_max. The training answers only for its own update. The residual is
// added as far as the parent takes it, and the rest of it stays: so a residual never keeps an update from being sent.
#pragma once

#include <span>
#include <string>

#include "core/round/plan.h"
#include "core/store/site_store.h"
#include "kernels/codec.h"

namespace fluvial::edge {

// An update's measure as the parent takes it: over the decoded values.
struct Measure {
  float max_abs = 0;
  double norm_squared = 0;  // chunk by chunk, in order

  void add(const kernels::ScreenReport& chunk);
};

// Finds the fit of one update by trying: the encoded update is measured, and fitted tighter if the parent would refuse
// it. Pure and deterministic.
class Fitting {
 public:
  // `max_abs`: of p.
  Fitting(const round::Plan& plan, const kernels::CodecSpec& codec, float max_abs);

  const store::Fit& fit() const { return fit_; }  // to try now
  bool must_measure() const { return must_measure_; }
  bool too_long(const Measure& decoded) const;
  bool accepts(const Measure& decoded) const;
  // The next fit, after accepts() returned false. kDataLoss when there is none: codec and plan do not fit together.
  Status tighten(const Measure& decoded);
  // The training's own update is too long: it is sent, and the parent refuses it by name.
  void allow_any_norm() { norm_max_ = 0; }

 private:
  double value_abs_max_;
  double norm_max_;
  float first_value_max_;  // clamps only values beyond value_abs_max
  bool must_measure_;
  int tightened_ = 0;
  store::Fit fit_;
};

// out = p, fitted; `out` may be p.
void fit_values(std::span<const float> p, const store::Fit& fit, std::span<float> out);

// Whether what was sent is p, bit for bit.
bool leaves_nothing(const kernels::Codec& codec, const store::Fit& fit);

// The residual that a counted chunk leaves: p minus the decoded values. The decoded values of an unbiased randk stand
// for everything that was encoded, so there it is p minus that. `p` becomes the residual.
Status leave_residual(const kernels::Codec& codec, const store::Fit& fit, ByteSpan chunk, std::span<float> p);

// The same for the store that keeps counted submissions: SiteStore::open() takes it.
Result<store::LeaveChunk> leave_by(const std::string& codec, const store::Fit& fit);

// A chunk's share of the residual's norm. Infinite when a value is not finite.
double square_sum(std::span<const float> values);

}  // namespace fluvial::edge
