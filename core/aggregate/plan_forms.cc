#include "core/aggregate/plan_forms.h"

#include <fmt/format.h>

#include "core/aggregate/down.h"
#include "core/aggregate/plan_codec.h"
#include "core/round/plan_written.h"
#include "kernels/codec.h"

namespace fluvial::aggregate {

Status check_plan_forms(const round::Plan& plan) {
  const Result<std::string> codec = check_plan_codec(plan.codec);
  if (!codec.ok()) {
    return Error{Code::kInvalidArgument, fmt::format("codec = '{}': {}", plan.codec, codec.error().message)};
  }
  FLUVIAL_TRY(check_codec_fits(plan));
  FLUVIAL_TRY(round::check_written_plan(plan));
  const Result<Down> down = parse_down(plan.down);
  if (down.ok()) return {};
  return Error{Code::kInvalidArgument, fmt::format("down = {}", down.error().message)};
}

bool suit_optimizer(round::Plan* plan) {
  const Result<kernels::CodecSpec> spec = kernels::parse_codec(plan->codec);
  if (!spec.ok() || spec->kind != kernels::CodecKind::kOnebitAdam) return false;
  plan->optimizer = round::ServerOptimizer::of(round::Optimizer::kOnebitAdam);
  return true;
}

}  // namespace fluvial::aggregate
