#include "core/round/plan_written.h"

#include "core/base/format.h"
#include "core/base/printable.h"
#include "core/round/best_by.h"

namespace fluvial::round {
namespace {

// Nothing is committed without the quorum: the goal would never be the one that closes a window.
Status check_goal(const Plan& plan) {
  if (!is_async(plan) || plan.async_goal == 0 || plan.quorum <= plan.async_goal) return {};
  return Error{Code::kInvalidArgument,
               format_text("participants.quorum = {}: expected at most async.goal = {}, at which a window commits: "
                           "write async.goal = {}, or a smaller quorum",
                           plan.quorum, plan.async_goal, plan.quorum)};
}

// Behind the metric's name, which may have colons of its own, stands which value is best: no guess fits both a loss and
// an accuracy.
Status check_best_by(const std::string& text) {
  if (text.empty() || text.ends_with(":min") || text.ends_with(":max")) return {};
  return Error{Code::kInvalidArgument,
               format_text("models_kept_best = '{}': expected :min or :max behind the metric's name, as in {}:max",
                           printable(text, 80), printable(text.substr(0, text.rfind(':')), 80))};
}

}  // namespace

Status check_written_plan(const Plan& plan) {
  FLUVIAL_TRY(check_goal(plan));
  return check_best_by(plan.models_kept_best);
}

}  // namespace fluvial::round
