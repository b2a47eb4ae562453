#include "core/aggregate/plan_notes.h"

#include "core/base/format.h"
#include "core/round/optimizer.h"
#include "kernels/codec.h"

namespace fluvial::aggregate {
namespace {

using round::Optimizer;

// What the server's step takes over from the round before, as a factor; 0: nothing.
double momentum_of(const round::ServerOptimizer& optimizer) {
  switch (optimizer.kind) {
    case Optimizer::kFedAvgM:
    case Optimizer::kNesterov:
    case Optimizer::kDelayedNesterov:
    case Optimizer::kLars: return optimizer.momentum;
    case Optimizer::kFedAdagrad:
    case Optimizer::kFedAdam:
    case Optimizer::kFedYogi:
    case Optimizer::kLamb: return optimizer.beta1;
    case Optimizer::kOnebitAdam:  // its codec's own
    case Optimizer::kFedAvg:
    case Optimizer::kSignSgd:
    case Optimizer::kMean: break;
  }
  return 0;
}

}  // namespace

std::vector<std::string> plan_notes(const round::Plan& plan) {
  std::vector<std::string> notes;
  const Result<kernels::CodecSpec> spec = kernels::parse_codec(plan.codec);
  if (!spec.ok()) return notes;
  if (spec->kind == kernels::CodecKind::kOnebitAdam && spec->freeze_rounds >= plan.rounds) {
    notes.push_back(format_text(
        "codec onebit_adam warms up for freeze={} rounds, in fp32, and the run has {}: take 15 to 25 % of them",
        spec->freeze_rounds, plan.rounds));
  }
  if (spec->kind == kernels::CodecKind::kOnebitAdam && (plan.update_norm_max > 0 || plan.residual_norm_max > 0)) {
    notes.push_back(
        "behind its warm-up codec onebit_adam sends updates with momentum in them, up to 1 / (1 - beta1) times as "
        "long: "
        "update_norm_max and residual.norm_max have to allow for that, or most of an update waits, or is dropped");
  }
  if (momentum_of(plan.optimizer) == 0) return notes;
  const std::string_view server = round::optimizer_name(plan.optimizer.kind);
  if (spec->kind == kernels::CodecKind::kDgc && spec->momentum > 0) {
    notes.push_back(
        format_text("codec dgc keeps a momentum at each site, and optimizer {} another: the model may "
                    "overshoot; take optimizer fedavg, or dgc:momentum=0",
                    server));
  }
  if (spec->kind == kernels::CodecKind::kRandk && !spec->unbiased) {
    notes.push_back(
        format_text("codec randk leaves most of an update for later rounds, and the momentum of optimizer {} "
                    "multiplies it then: take optimizer fedavg, or randk:mode=unbiased",
                    server));
  }
  return notes;
}

}  // namespace fluvial::aggregate
