#include "core/aggregate/plan_notes.h"

#include <algorithm>
#include <initializer_list>
#include <string_view>

#include "core/base/format.h"
#include "core/round/optimizer.h"
#include "core/round/plan_written.h"
#include "kernels/codec.h"

namespace fluvial::aggregate {
namespace {

using round::Optimizer;
using Notes = std::vector<std::string>;

constexpr double kVoteStepMax = 0.1;  // of a value: more is the size of a weight, not of a step

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

// Whether a mean twice as long makes a step twice as long.
bool is_in_proportion(Optimizer kind) {
  return kind == Optimizer::kFedAvg || kind == Optimizer::kFedAvgM || kind == Optimizer::kNesterov ||
         kind == Optimizer::kDelayedNesterov;
}

void note_onebit(const round::Plan& plan, const kernels::CodecSpec& spec, Notes& notes) {
  if (spec.freeze_rounds >= plan.rounds) {
    notes.push_back(format_text(
        "codec onebit_adam warms up for freeze={} rounds, in fp32, and the run has {}: take 15 to 25 % of them",
        spec.freeze_rounds, plan.rounds));
  }
  if (plan.update_norm_max > 0 || plan.residual_norm_max > 0) {
    notes.push_back(
        "behind its warm-up codec onebit_adam sends updates with momentum in them, up to 1 / (1 - beta1) times as "
        "long: "
        "update_norm_max and residual.norm_max have to allow for that, or most of an update waits, or is dropped");
  }
}

void note_codec(const round::Plan& plan, const kernels::CodecSpec& spec, Notes& notes) {
  const std::string_view server = round::optimizer_name(plan.optimizer.kind);
  if (spec.kind == kernels::CodecKind::kOnebitAdam) note_onebit(plan, spec, notes);
  if (spec.kind == kernels::CodecKind::kSign && spec.vote && is_in_proportion(plan.optimizer.kind) &&
      plan.optimizer.lr > kVoteStepMax) {
    notes.push_back(
        format_text("codec sign:mode=vote sends +1 or -1 for a value however small, and with optimizer {} a commit "
                    "moves it by up to learning_rate = {}: take optimizer signsgd, or a learning_rate of the size of "
                    "an update's values",
                    server, plan.optimizer.lr));
  }
  if (spec.kind == kernels::CodecKind::kRing && plan.residual_norm_max == 0) {
    notes.push_back(
        "codec ring cuts values at max, and what is cut off in every round makes a residual that grows for ever: "
        "set residual.norm_max, to some times the norm of an update");
  }
  if (momentum_of(plan.optimizer) == 0) return;
  if (spec.kind == kernels::CodecKind::kDgc && spec.momentum > 0) {
    notes.push_back(
        format_text("codec dgc keeps a momentum at each site, and optimizer {} another: the model may "
                    "overshoot; take optimizer fedavg, or dgc:momentum=0",
                    server));
  }
  if (spec.kind == kernels::CodecKind::kRandk && !spec.unbiased) {
    notes.push_back(
        format_text("codec randk leaves most of an update for later rounds, and the momentum of optimizer {} "
                    "multiplies it then: take optimizer fedavg, or randk:mode=unbiased",
                    server));
  }
}

// The names of those keys that are off their defaults.
struct Named {
  std::string_view key;
  bool is_off;
};
std::string keys_of(std::initializer_list<Named> all) {
  std::string text;
  for (const Named& one : all) {
    if (one.is_off) text += format_text("{}{}", text.empty() ? "" : ", ", one.key);
  }
  return text;
}

// Keys that the plan has no use for: why, and what to write.
void note_in_vain(Notes& notes, std::string_view why, const std::string& keys, std::string_view instead) {
  if (keys.empty()) return;
  notes.push_back(format_text("{}, and nothing is done with {}: {}, or leave that out", why, keys, instead));
}

void note_unused(const round::Plan& plan, Notes& notes) {
  const round::Plan usual;
  if (round::is_async(plan)) {
    note_in_vain(notes, "the deadlines of windows are not adaptive",
                 keys_of({{"deadlines.soft_min_ms", plan.soft_deadline_min != usual.soft_deadline_min}}),
                 "give deadlines.soft_ms");
  } else {
    note_in_vain(notes, "without mode = \"async\" the run is synchronous",
                 keys_of({{"async.goal", plan.async_goal != usual.async_goal},
                          {"async.lead_max", plan.async_lead_max != usual.async_lead_max},
                          {"async.drift_max", plan.async_drift_max != usual.async_drift_max},
                          {"async.fairness", plan.async_fairness != usual.async_fairness}}),
                 "write mode = \"async\"");
  }
  if (round::late_is_next(plan)) return;
  note_in_vain(notes, "what misses its round goes into its site's residual",
               keys_of({{"staleness_max", plan.staleness_max != usual.staleness_max},
                        {"staleness_power", plan.staleness_power != usual.staleness_power}}),
               "write late = \"next\" or mode = \"async\"");
}

void note_windows(const round::Plan& plan, Notes& notes) {
  const bool has_own_pace = plan.optimizer.kind == Optimizer::kDelayedNesterov;
  if (!round::is_async(plan) || has_own_pace || momentum_of(plan.optimizer) == 0) return;
  notes.push_back(
      format_text("with mode = \"async\" a commit holds few contributions, and the momentum of optimizer {} decays "
                  "with each: take fedavg or delayed_nesterov, or a momentum (beta1) of 0",
                  round::optimizer_name(plan.optimizer.kind)));
}

}  // namespace

std::vector<std::string> plan_notes(const round::Plan& plan) {
  Notes notes;
  if (const Status written = round::check_written_plan(plan); !written.ok()) notes.push_back(written.error().message);
  if (const Result<kernels::CodecSpec> spec = kernels::parse_codec(plan.codec); spec.ok()) {
    note_codec(plan, *spec, notes);
  }
  note_unused(plan, notes);
  note_windows(plan, notes);
  return notes;
}

// Running statistics are means of what was seen: whoever goes further than the sites' own means, or lets what is sent
// of one value err by another's size, takes a variance below 0.
std::vector<std::string> model_notes(const round::Plan& plan, const round::Schema& schema) {
  const round::ServerOptimizer& optimizer = plan.optimizer;
  const round::ServerOptimizer usual;  // it knows the usual names
  const auto& tensors = schema.tensors();
  const auto found = std::ranges::find_if(tensors, [&](const round::Tensor& tensor) {
    return round::is_averaged(tensor.dtype) && round::is_statistic(usual, tensor.name);
  });
  if (found == tensors.end()) return {};
  const bool goes_no_further =
      optimizer.kind == Optimizer::kMean || (optimizer.kind == Optimizer::kFedAvg && optimizer.lr <= 1);
  constexpr std::string_view kThen = "may take a variance below 0: the model's outputs are NaN then";
  constexpr std::string_view kElse = "keep them at the sites (only=...), or take another norm";
  if (!goes_no_further && !round::is_statistic(optimizer, found->name)) {
    const bool can_average = optimizer.kind != Optimizer::kOnebitAdam;
    return {format_text("optimizer {} steps batch norm's running statistics too ({}), and {}. {}, {}",
                        round::optimizer_name(optimizer.kind), found->name, kThen,
                        can_average ? "Name them in optimizer.averaged" : "Take another optimizer", kElse)};
  }
  const kernels::CodecKind codec = kernels::parse_codec(plan.codec).value().kind;
  const bool is_by_value =
      codec == kernels::CodecKind::kFp32 || codec == kernels::CodecKind::kBf16 || codec == kernels::CodecKind::kFp16;
  if (!is_by_value) {
    return {
        format_text("with codec {} what is sent of batch norm's running statistics ({}) is off by what others are "
                    "large by, and {}. Take codec fp32, bf16 or fp16, {}",
                    plan.codec, found->name, kThen, kElse)};
  }
  if (round::late_is_next(plan)) {
    return {
        format_text("an update of an older model moves batch norm's running statistics ({}) from where they no "
                    "longer are, and {}. Take rounds in which late = \"residual\", {}",
                    found->name, kThen, kElse)};
  }
  return {};
}

}  // namespace fluvial::aggregate
