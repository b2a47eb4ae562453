#include "core/aggregate/plan_codec.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/aggregate/scale.h"
#include "core/aggregate/shapes.h"
#include "core/base/check.h"
#include "core/base/format.h"
#include "core/round/pass.h"
#include "kernels/codec.h"
#include "kernels/ring.h"

namespace fluvial::aggregate {
namespace {

// What else a plan may not ask for whose codec has several passes.
Status check_passes(const round::Plan& plan) {
  const auto refuse = [&](const std::string& key) {
    return Error{
        Code::kInvalidArgument,
        format_text("{} does not go with codec \"{}\": what a site sends in a later pass fits one attempt of one "
                    "round, and no other can take it. Leave {} out: what misses its round travels with the "
                    "site's next update",
                    key, plan.codec, key)};
  };
  if (round::is_async(plan)) return refuse("mode = \"async\"");
  if (round::late_is_next(plan)) return refuse("late = \"next\"");
  return {};
}

// The codec is the sites' part of an algorithm, and the optimizer the root's.
Status check_onebit(const round::Plan& plan, const kernels::CodecSpec& spec) {
  const bool codec = spec.kind == kernels::CodecKind::kOnebitAdam;
  const bool optimizer = plan.optimizer.kind == round::Optimizer::kOnebitAdam;
  if (codec != optimizer) {
    return Error{Code::kInvalidArgument,
                 format_text("codec \"{}\" with optimizer {}: 1-bit Adam is both, codec onebit_adam at the sites and "
                             "optimizer onebit_adam at the coordinator",
                             plan.codec, round::optimizer_name(plan.optimizer.kind))};
  }
  const auto refuse = [&](const std::string& key) {
    return Error{
        Code::kInvalidArgument,
        format_text("{} does not go with codec \"{}\": an update holds the momentum of its round, and no other "
                    "can take it. Leave {} out: what misses its round travels with the site's next update",
                    key, plan.codec, key)};
  };
  if (codec && round::is_async(plan)) return refuse("mode = \"async\"");
  if (codec && round::late_is_next(plan)) return refuse("late = \"next\"");
  return {};
}

}  // namespace

Result<std::string> check_plan_codec(std::string_view text) {
  FLUVIAL_ASSIGN(const kernels::CodecSpec spec, kernels::parse_codec(text));
  return kernels::to_string(spec);
}

Status check_codec_fits(const round::Plan& plan) {
  FLUVIAL_ASSIGN(const kernels::CodecSpec spec, kernels::parse_codec(plan.codec));
  FLUVIAL_ASSIGN(const std::unique_ptr<kernels::Codec> codec, kernels::make_codec(spec));
  FLUVIAL_CHECK(codec->passes() <= round::kPassesMost, "a codec of more passes than rounds have");
  if (codec->passes() > 1) FLUVIAL_TRY(check_passes(plan));
  FLUVIAL_TRY(check_onebit(plan, spec));
  const std::optional<int> scale = whole_scale(plan);
  if (!scale) return {};
  const double most = spec.kind == kernels::CodecKind::kRing ? kernels::ring_value_max(spec) : 1;  // of a vote
  if (most > plan.value_abs_max) {
    return Error{Code::kInvalidArgument,
                 format_text("value_abs_max = {}: expected at least {}, the greatest value that codec \"{}\" sends",
                             plan.value_abs_max, most, plan.codec)};
  }
  if (*scale > static_cast<int>(plan.fraction_bits)) {
    return Error{Code::kInvalidArgument, format_text("fraction_bits = {}: expected at least {}, in which codec \"{}\" "
                                                     "is summed; fewer bits or a larger max need fewer",
                                                     plan.fraction_bits, *scale, plan.codec)};
  }
  return {};
}

Status check_codec_fits(const round::Plan& plan, const round::Schema& schema) {
  FLUVIAL_TRY(check_codec_fits(plan));
  FLUVIAL_ASSIGN(const kernels::CodecSpec spec, kernels::parse_codec(plan.codec));
  FLUVIAL_ASSIGN(const std::unique_ptr<kernels::Codec> codec, kernels::make_codec(spec));
  const Shapes shapes(schema, plan.chunk_values);
  const Result<std::vector<std::uint64_t>> counts = pass_values(*codec, shapes);
  return counts.ok() ? Status{} : Status{counts.error()};
}

}  // namespace fluvial::aggregate
