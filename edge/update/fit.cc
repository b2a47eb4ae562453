#include "edge/update/fit.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "core/base/format.h"
#include "kernels/ring.h"
#include "kernels/vector.h"

namespace fluvial::edge {
namespace {

constexpr int kTightenedMax = 32;
// Tightens a little more than the measurement demands, because rounding may take some of it back.
constexpr double kMargin = 31.0 / 32;

// The greatest magnitude that a codec decodes to, given values up to `value_max`. With qsgd a block of 2,048 equal
// values is sqrt(2,048) times as long as one of them. An unbiased randk multiplies a value by the number of values in
// its stratum. Ring sends the same steps, whatever it is given.
double decoded_max(const kernels::CodecSpec& codec, double value_max) {
  if (codec.kind == kernels::CodecKind::kRing) return kernels::ring_value_max(codec);
  if (codec.kind != kernels::CodecKind::kRandk || !codec.unbiased) return 64 * value_max;
  return 2 / codec.ratio * value_max;
}

// The greatest float that does not exceed `bound`.
float float_below(double bound) {
  const auto nearest = static_cast<float>(std::min(bound, static_cast<double>(std::numeric_limits<float>::max())));
  return static_cast<double>(nearest) <= bound ? nearest : std::nextafter(nearest, 0.0F);
}

}  // namespace

void Measure::add(const kernels::ScreenReport& chunk) {
  max_abs = std::max(max_abs, chunk.max_abs);
  norm_squared += chunk.norm_squared;
}

Fitting::Fitting(const round::Plan& plan, const kernels::CodecSpec& codec, float max_abs)
    : value_abs_max_(plan.value_abs_max),
      norm_max_(plan.update_norm_max),
      first_value_max_(std::min(max_abs, float_below(plan.value_abs_max))) {
  if (static_cast<double>(max_abs) > value_abs_max_) fit_.value_max = first_value_max_;
  const bool grows = decoded_max(codec, static_cast<double>(first_value_max_)) > value_abs_max_;
  must_measure_ = norm_max_ > 0 || (grows && codec.kind != kernels::CodecKind::kFp32 &&
                                    codec.kind != kernels::CodecKind::kTopk && codec.kind != kernels::CodecKind::kDgc);
}

bool Fitting::too_long(const Measure& decoded) const {
  return norm_max_ > 0 && std::sqrt(decoded.norm_squared) > norm_max_;
}

bool Fitting::accepts(const Measure& decoded) const {
  return static_cast<double>(decoded.max_abs) <= value_abs_max_ && !too_long(decoded);
}

Status Fitting::tighten(const Measure& decoded) {
  const double max_abs = static_cast<double>(decoded.max_abs);
  if (++tightened_ > kTightenedMax) {
    return Error{Code::kDataLoss, format_text("what is sent of it decodes to {} and a norm of {}, beyond the plan's "
                                              "value_abs_max of {} or update_norm_max of {}",
                                              max_abs, std::sqrt(decoded.norm_squared), value_abs_max_, norm_max_)};
  }
  if (fit_.whole()) fit_.value_max = first_value_max_;
  if (max_abs > value_abs_max_) {
    fit_.value_max *= static_cast<float>(value_abs_max_ / max_abs * kMargin);
  } else {
    fit_.factor *= static_cast<float>(norm_max_ / std::sqrt(decoded.norm_squared) * kMargin);
  }
  return {};
}

void fit_values(std::span<const float> p, const store::Fit& fit, std::span<float> out) {
  FLUVIAL_CHECK(out.size() == p.size(), "a fitted vector of another length");
  for (std::size_t i = 0; i < p.size(); ++i) {
    out[i] = std::clamp(p[i], -fit.value_max, fit.value_max) * fit.factor;
  }
}

bool leaves_nothing(const kernels::Codec& codec, const store::Fit& fit) { return codec.lossless() && fit.whole(); }

Status leave_residual(const kernels::Codec& codec, const store::Fit& fit, ByteSpan chunk, std::span<float> p) {
  const kernels::CodecSpec& spec = codec.spec();
  const bool all_stands_for = spec.kind == kernels::CodecKind::kRandk && spec.unbiased;
  if (fit.whole() || !all_stands_for) return codec.residual_chunk(p, chunk, p);
  std::vector<float> encoded(p.size());
  fit_values(p, fit, encoded);
  for (std::size_t i = 0; i < p.size(); ++i) p[i] -= encoded[i];
  return {};
}

Result<store::LeaveChunk> leave_by(const std::string& codec, const store::Fit& fit) {
  FLUVIAL_ASSIGN(const kernels::CodecSpec spec, kernels::parse_codec(codec));
  FLUVIAL_ASSIGN(std::unique_ptr<kernels::Codec> made, kernels::make_codec(spec));
  return store::LeaveChunk([codec = std::shared_ptr<const kernels::Codec>(std::move(made)), fit](
                               ByteSpan chunk, std::span<float> p) { return leave_residual(*codec, fit, chunk, p); });
}

double square_sum(std::span<const float> values) {
  const Result<kernels::ScreenReport> report = kernels::screen(values);
  return report.ok() ? report->norm_squared : std::numeric_limits<double>::infinity();
}

}  // namespace fluvial::edge
