// Every key of a plan, once: plan.toml and its documentation (core/config), JSON (core/store), the wire (core/wire) and
// check_plan() visit them here. Included by those sources alone. A new key is a field of Plan with its default, a line
// here, and a field of wire.proto's Plan, whose number the line names.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "core/round/plan.h"

namespace fluvial::round {

struct PlanKey {
  std::string_view name;  // in plan.toml, a table's with a dot; JSON has it whole
  int wire_field;         // its number in wire.proto
  std::string_view unit;
  std::string_view help;
  // Where a number, or the length of a text, may lie; exact in the field's own type.
  double low = 0;
  double high = 0;         // 0: no bounds
  bool above_low = false;  // low itself is too little
};

// What becomes of an update that misses its round.
template <typename P, typename Visit>
void visit_late(P& plan, Visit& visit) {
  visit({"late", 33, "text", "where an update goes that misses its round: `residual`, or the `next` round (below)", 1,
         16},
        plan.late);
  visit({"staleness_max", 34, "count", "late = next: how many rounds later it may enter one, 1 to 16", 1, 16},
        plan.staleness_max);
  visit({"staleness_power", 35, "power",
         "late = next: it counts (1 + rounds later)^-power of its weight, 0 to 4; 0: all of it", 0, 4},
        plan.staleness_power);
}

// Windows without a barrier.
template <typename P, typename Visit>
void visit_async(P& plan, Visit& visit) {
  visit({"mode", 36, "text", "`rounds`, or `async`: windows without a barrier (below); it sets defaults of `late`", 1,
         16},
        plan.mode);
  visit({"async.goal", 37, "count",
         "mode = async: contributions with which a window commits; 0: 10, at most half of who takes part", 0, 1e6},
        plan.async_goal);
  visit({"async.lead_max", 38, "count",
         "mode = async: a site begins only so many updates ahead of the slowest one; 0: no bound", 0, 1e6},
        plan.async_lead_max);
  visit({"async.drift_max", 39, "count",
         "mode = async: how many windows after it was admitted a contribution may still enter one", 1, 16},
        plan.async_drift_max);
  visit({"async.fairness", 40, "text", "mode = async: `rate`: who is counted seldom counts for more (below); or `none`",
         1, 16},
        plan.async_fairness);
}

// The name first: it sets defaults, which the others change. All are bounded by check_server_optimizer().
template <typename O, typename Visit>
void visit_optimizer(O& optimizer, Visit& visit) {
  visit({"optimizer.name", 16, "text", "the server optimizer, with options as in `fedadam:lr=0.02,warmup=5` (below)"},
        optimizer);
  visit(
      {"optimizer.learning_rate", 17, "factor", "of the server's step; other optimizers have another default (below)"},
      optimizer.lr);
  visit({"optimizer.momentum", 18, "factor", "fedavgm, nesterov, delayed_nesterov, lars"}, optimizer.momentum);
  visit({"optimizer.averaged", 41, "text",
         "tensors that are averaged and not stepped, by patterns of their names (below); or `none`"},
        optimizer.averaged);
}

// Calls visit(const PlanKey&, field) for each, in the order of the canonical JSON.
template <typename P, typename Visit>
void visit_plan(P& plan, Visit&& visit) {
  constexpr double kDayMs = 86'400'000;
  visit({"name", 1, "text", "what people call the run", 1, 63}, plan.name);
  visit({"rounds", 2, "count", "committed rounds after which the run is done", 1, 1e9}, plan.rounds);
  visit({"local_steps", 3, "count", "steps a worker takes between two synchronisations; 1: synchronous SGD", 1, 1e9},
        plan.local_steps);
  visit({"codec", 4, "text",
         "of the sites' updates, with options (codecs.md): fp32, bf16, int8, sign, topk:ratio=0.05, ..."},
        plan.codec);
  visit({"down", 32, "text", "how the model travels to sites (below): fp32, bf16, delta:int8, ...", 1, 70}, plan.down);
  visit({"chunk_values", 5, "count", "coordinates a chunk, the unit of streaming", 256, 1 << 20}, plan.chunk_values);
  visit({"fraction_bits", 6, "count",
         "at most this many fraction bits in the integer sum; fewer make partial sums narrower", 8, 60},
        plan.fraction_bits);
  visit({"value_abs_max", 7, "value", "an update that holds a larger value is refused", 1e-3, 1e9}, plan.value_abs_max);
  visit({"update_norm_max", 8, "2-norm", "an update with a larger norm is refused; 0: no bound", 0, 1e30},
        plan.update_norm_max);
  visit({"attempts_max", 15, "count", "attempts of a round before the run pauses", 1, 1'000}, plan.attempts_max);
  visit({"models_kept", 21, "count", "newest committed model files kept on disk", 1, 1e6}, plan.models_kept);
  visit({"models_kept_best", 30, "text",
         "and the best one by this metric, with `:min` or `:max`: test_loss:min, test_accuracy:max (run.md)"},
        plan.models_kept_best);
  visit({"seed", 22, "count", "of all that is drawn by chance: who takes part, roundings, what randk sends"},
        plan.seed);
  visit({"sum_digest", 23, "true or false", "record the SHA-256 of each committed integer sum, for audits"},
        plan.sum_digest);
  visit({"metrics_by_site", 31, "true or false",
         "keep and show what each site's workers report; false: the means by weight alone (below)"},
        plan.metrics_by_site);
  visit_late(plan, visit);
  visit_async(plan, visit);
  visit({"participants.fraction", 9, "fraction", "of the connected sites, sampled anew each round", 0, 1, true},
        plan.participants_fraction);
  visit({"participants.min", 10, "count", "connected sites that a round waits for; unless it is named: see Opening", 1,
         1e6},
        plan.participants_min);
  visit({"participants.quorum", 11, "count", "contributions without which nothing is committed", 1, 1e6}, plan.quorum);
  visit({"participants.weight_min", 12, "count", "their total weight without which nothing is committed", 1, 0x1p62},
        plan.weight_min);
  visit({"deadlines.soft_ms", 13, "ms", "from here on a quorum is enough to commit", 1, kDayMs}, plan.soft_deadline);
  visit({"deadlines.soft_min_ms", 26, "ms", "the earliest that deadlines.adaptive makes the soft deadline", 0, kDayMs},
        plan.soft_deadline_min);
  visit({"deadlines.adaptive", 25, "true or false",
         "the soft deadline comes earlier when the sites' history says that the usual ones are in"},
        plan.adaptive_deadlines);
  visit({"deadlines.hard_ms", 14, "ms", "here the attempt ends; not before deadlines.soft_ms", 1, kDayMs},
        plan.hard_deadline);
  visit_optimizer(plan.optimizer, visit);
  visit({"residual.norm_max", 19, "2-norm", "a site drops a larger residual, and counts that; 0: no bound", 0, 1e30},
        plan.residual_norm_max);
  visit({"residual.age_max_rounds", 20, "count",
         "a site drops a residual unspent for more rounds, and counts that; 0: no bound"},
        plan.residual_age_max_rounds);
  visit({"workers.missing", 27, "text",
         "when a site's worker dies, fails or hangs: `continue` with the others, or `decline` the round"},
        plan.workers_missing);
  visit({"workers.deadline_ms", 28, "ms",
         "for a worker's answer, where that is less than the site's own worker_task_deadline_ms; 0: the site's own", 0,
         kDayMs},
        plan.workers_deadline);
  visit(
      {"worker", 24, "value", "handed to the workers: a number, a text, true or false, a list, or a schedule (below)"},
      plan.worker);
}

// What most readers of a field end with.
template <typename T>
Status assign(T& to, Result<T> from) {
  FLUVIAL_ASSIGN(to, std::move(from));
  return {};
}

bool has_momentum(Optimizer kind);  // optimizer.momentum is a number of it

// The tables of the optimizers in docs/operations/plan.md; a test compares them.
std::string optimizers_markdown();

// The first error of visit(const PlanKey&, field), a Status each.
template <typename P, typename Visit>
Status try_plan(P& plan, Visit&& visit) {
  Status status;
  visit_plan(plan, [&](const PlanKey& key, auto& field) {
    if (status.ok()) status = visit(key, field);
  });
  return status;
}

}  // namespace fluvial::round
