#include "core/round/plan.h"

#include <cmath>
#include <string_view>

namespace fluvial::round {
namespace {

Error expected(std::string_view key, const std::string& value, std::string_view what) {
  return {Code::kInvalidArgument, std::string(key) + " = " + value + ": expected " + std::string(what)};
}

template <typename T>
Status check_range(std::string_view key, T value, T low, T high) {
  if (value >= low && value <= high) return {};  // false for NaN as well
  return expected(key, std::to_string(value), std::to_string(low) + " to " + std::to_string(high));
}

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

Status check_plan(const Plan& plan) {
  if (plan.name.empty() || plan.name.size() > 63) return expected("name", "'" + plan.name + "'", "1 to 63 characters");
  FLUVIAL_TRY(check_range<std::uint64_t>("rounds", plan.rounds, 1, 1'000'000'000));
  FLUVIAL_TRY(check_range<std::uint64_t>("local_steps", plan.local_steps, 1, 1'000'000'000));
  FLUVIAL_TRY(check_range<std::uint64_t>("chunk_values", plan.chunk_values, 256, 1 << 20));
  FLUVIAL_TRY(check_range<std::uint32_t>("fraction_bits", plan.fraction_bits, 8, 60));
  FLUVIAL_TRY(check_range("value_abs_max", plan.value_abs_max, 1e-3, 1e9));
  FLUVIAL_TRY(check_range("update_norm_max", plan.update_norm_max, 0.0, 1e30));
  if (!(plan.participants_fraction > 0 && plan.participants_fraction <= 1)) {
    return expected("participants.fraction", std::to_string(plan.participants_fraction), "above 0, at most 1");
  }
  FLUVIAL_TRY(check_range<std::uint64_t>("participants.min", plan.participants_min, 1, 1'000'000));
  FLUVIAL_TRY(check_range<std::uint64_t>("participants.quorum", plan.quorum, 1, 1'000'000));
  FLUVIAL_TRY(check_range<std::uint64_t>("participants.weight_min", plan.weight_min, 1, std::uint64_t{1} << 62));
  const Milliseconds day{86'400'000};
  FLUVIAL_TRY(check_range<std::int64_t>("deadlines.soft_ms", plan.soft_deadline.count(), 1, day.count()));
  FLUVIAL_TRY(check_range<std::int64_t>("deadlines.soft_min_ms", plan.soft_deadline_min.count(), 0, day.count()));
  FLUVIAL_TRY(check_range<std::int64_t>("deadlines.hard_ms", plan.hard_deadline.count(), plan.soft_deadline.count(),
                                        day.count()));
  FLUVIAL_TRY(check_range<std::uint32_t>("attempts_max", plan.attempts_max, 1, 1'000));
  FLUVIAL_TRY(check_server_optimizer(plan.optimizer));
  FLUVIAL_TRY(check_range("residual.norm_max", plan.residual_norm_max, 0.0, 1e30));
  FLUVIAL_TRY(check_range<std::uint64_t>("models_kept", plan.models_kept, 1, 1'000'000));
  FLUVIAL_TRY(check_range<std::int64_t>("workers.deadline_ms", plan.workers_deadline.count(), 0, day.count()));
  if (plan.worker.size() > 64) return expected("worker", "(table)", "at most 64 keys");
  for (const auto& [key, value] : plan.worker) {
    if (key.size() > 64 || !std::isfinite(value))
      return expected("worker." + key.substr(0, 64), std::to_string(value), "a finite number");
  }
  return {};
}

}  // namespace fluvial::round
