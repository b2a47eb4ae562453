// What a site says of itself to whoever watches it: log lines and metrics (log_report.h), or a simulation's checks. On
// the node's strand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/round/history.h"
#include "core/store/site_store.h"
#include "core/wire/record_mapping.h"
#include "edge/gpu/site_gpus.h"
#include "edge/logic/owner_policy.h"
#include "edge/logic/site_machine.h"

namespace fluvial::edge {

// Whoever does not care about a word need not take it.
class SiteReport {
 public:
  virtual ~SiteReport() = default;

  // ---- the parent, and what it says
  virtual void parent_up() {}
  virtual void parent_down(const Error&, bool /*stopping*/) {}
  virtual void round_opened(const Offer&) {}
  virtual void forbidden(const Offer&, const Objection&) {}  // by the site's owner; it is declined
  virtual void round_committed(const wire::Commit&, const Verdict&, RoundId /*newest*/) {}
  virtual void run_state(RunId, std::string_view /*state*/, std::string_view /*reason*/) {}
  virtual void receipt(RunId, RoundId, const Status& /*verdict*/) {}
  virtual void outcome_told(const Pending&, Outcome) {}

  // ---- what an update is made from
  virtual void workers(std::size_t /*count*/) {}
  virtual void working(bool) {}                // whether any of them has a task that it has not answered
  virtual void fetched(double /*seconds*/) {}  // a model, from its being named
  virtual void model_held(const round::ModelRef&) {}
  virtual void model_refused(const round::ModelRef&, const Error&) {}  // what came is not it: fetched again
  virtual void training(const Offer&) {}
  virtual void trained(const Offer&, std::size_t /*workers*/, std::uint32_t /*weight*/, double /*seconds*/) {}
  virtual void train_failed(const Offer&, const Error&) {}
  virtual void encoding(const Offer&) {}  // the store is about to be asked; then encoded() or not_encoded()
  virtual void encoded(const store::PendingInfo&, double /*seconds*/) {}
  virtual void not_encoded(const Offer&, const Error&) {}
  virtual void waits_for_room(const Offer&, const Error&) {}  // before it trains, or with what was trained
  // Of a round with several passes: a later one of its submission; then pass_encoded() or not_encoded().
  virtual void encoding_pass(const Offer&) {}
  virtual void pass_encoded(const store::PendingInfo&) {}
  virtual void pass_scaled(const Offer&, float /*factor*/) {}  // what it sends, to be within the plan's bounds
  virtual void folding(const Fold&) {}                         // likewise; then folded() or not_folded()
  virtual void folded(const Offer&, const store::Carried&, bool /*run_over*/) {}
  virtual void not_folded(const Offer&, const Error&) {}
  virtual void last_model_missing(RunId, RoundId) {}  // so the run ends for its workers without it
  virtual void gpus_used(const SiteGpus::Counts&) {}  // so far

  // ---- the submission
  virtual void found(const store::PendingInfo&) {}       // without an outcome, in the store
  virtual void pass_found(const store::PendingInfo&) {}  // the last one of it, after the first
  virtual void feeding(const store::PendingInfo&) {}  // being encoded, and sent meanwhile: its digest is not known yet
  virtual void sending(const Send&) {}
  virtual void sent(const store::PendingInfo&, bool /*again*/, double /*seconds*/) {}
  virtual void resolving(const store::PendingInfo&, Outcome) {}  // its last pass; before each time the store is asked
  virtual void resolved(const Pending&, Outcome, bool /*run_over*/) {}
  virtual void not_written(const Pending&, Outcome, const Error&) {}  // its outcome: tried again

  // ---- what is carried over
  virtual void residual(RunId, RoundId, const store::Carried&) {}
  virtual void residual_lost(RunId, RoundId, std::uint64_t /*values*/) {}  // unusable; the rest is in the update
  virtual void unspent(RunId, const std::vector<store::Unspent>&) {}       // of runs before, when a run begins
  virtual void run_complete(RunId, const Result<store::ResidualInfo>& /*unspent*/) {}

  // ---- histories
  virtual void history_refused(const Error&) {}
  virtual void history_entering(const round::Lineage&) {}  // the store is about to be asked, each time
  virtual void history_not_written(const Error&) {}        // tried again
  virtual void put_aside(const store::PutAside&) {}
  virtual void history_entered(const round::Lineage&) {}

  virtual void failed(std::string_view /*what*/, const Error&) {}  // the agent ends by it
};

}  // namespace fluvial::edge
