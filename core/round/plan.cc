#include "core/round/plan.h"

#include <type_traits>

#include "core/base/format.h"
#include "core/base/printable.h"
#include "core/round/best_by.h"
#include "core/round/contribution.h"
#include "core/round/plan_keys.h"

namespace fluvial::round {
namespace {

Error expected(std::string_view key, const std::string& value, std::string_view what) {
  return {Code::kInvalidArgument, std::string(key) + " = " + value + ": expected " + std::string(what)};
}

// In the field's own type: a double does not hold every count.
template <typename T>
  requires std::is_arithmetic_v<T>
Status check(const PlanKey& key, T value) {
  const T low = static_cast<T>(key.low), high = static_cast<T>(key.high);
  const bool is_in = value >= low && value <= high && !(key.above_low && value == low);  // false for NaN as well
  if (high == 0 || is_in) return {};
  return expected(key.name, text_of(value),
                  format_text(key.above_low ? "above {}, at most {}" : "{} to {}", low, high));
}
Status check(const PlanKey& key, Milliseconds value) { return check(key, value.count()); }
Status check(const PlanKey& key, const std::string& text) {
  const auto size = static_cast<double>(text.size());
  if (key.high != 0 && (size < key.low || size > key.high)) {
    return expected(key.name, "'" + printable(text, 80) + "'", format_text("{} to {} characters", key.low, key.high));
  }
  if (is_printable(text)) return {};
  return expected(key.name, "'" + printable(text, 80) + "'", "no control characters");
}
Status check(const PlanKey&, MissingWorkers) { return {}; }
Status check(const PlanKey&, const ServerOptimizer& optimizer) { return check_server_optimizer(optimizer); }
Status check(const PlanKey&, const WorkerTable& table) { return check_worker_table(table); }

}  // namespace

std::string_view missing_workers_name(MissingWorkers missing) {
  return missing == MissingWorkers::kContinue ? "continue" : "decline";
}

Result<MissingWorkers> missing_workers_from_name(std::string_view name) {
  for (const MissingWorkers missing : {MissingWorkers::kContinue, MissingWorkers::kDecline}) {
    if (name == missing_workers_name(missing)) return missing;
  }
  return Error{Code::kInvalidArgument, "expected continue or decline"};
}

bool late_is_next(const Plan& plan) { return plan.late == "next"; }

bool is_async(const Plan& plan) { return plan.mode == "async"; }

bool is_fair(const Plan& plan) { return is_async(plan) && plan.async_fairness == "rate"; }

void set_mode(std::string_view mode, Plan* plan) {
  plan->mode = mode;
  if (!is_async(*plan)) return;
  plan->late = "next";
  plan->staleness_max = 10;
}

Status check_plan(const Plan& plan) {
  FLUVIAL_TRY(try_plan(plan, [](const PlanKey& key, const auto& field) { return check(key, field); }));
  if (!is_async(plan) && plan.mode != "rounds") {
    return expected("mode", "'" + printable(plan.mode, 80) + "'", "rounds or async");
  }
  if (is_async(plan) && !late_is_next(plan)) {
    return expected("late", "'" + printable(plan.late, 80) + "'", "next, where mode = async");
  }
  if (is_async(plan) && plan.participants_fraction != 1) {
    return expected("participants.fraction", text_of(plan.participants_fraction),
                    "1 where mode = async: async.goal says how many a window waits for");
  }
  if (plan.async_fairness != "none" && plan.async_fairness != "rate") {
    return expected("async.fairness", "'" + printable(plan.async_fairness, 80) + "'", "none or rate");
  }
  if (is_fair(plan) && plan.optimizer.scale_to > 0) {
    return expected("async.fairness", "rate",
                    "none with an optimizer's scale_to, which scales by the window's own weights");
  }
  if (!late_is_next(plan) && plan.late != "residual") {
    return expected("late", "'" + printable(plan.late, 80) + "'", "residual or next");
  }
  if (late_is_next(plan) && plan.fraction_bits < static_cast<std::uint32_t>(kFactorBits)) {
    return expected("fraction_bits", std::to_string(plan.fraction_bits), "at least 9 with late = next");
  }
  FLUVIAL_TRY(check_schedules(plan.worker, plan.rounds));
  if (const auto best = parse_best_by(plan.models_kept_best); !best.ok()) {
    return Error{Code::kInvalidArgument, format_text("models_kept_best = '{}': {}",
                                                     printable(plan.models_kept_best, 80), best.error().message)};
  }
  if (plan.hard_deadline >= plan.soft_deadline) return {};
  return expected("deadlines.hard_ms", std::to_string(plan.hard_deadline.count()),
                  format_text("at least deadlines.soft_ms = {}", plan.soft_deadline.count()));
}

}  // namespace fluvial::round
