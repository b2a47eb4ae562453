// What the store holds, and a lease of another history of the federation.
#include <boost/asio/awaitable.hpp>
#include <utility>

#include "core/net/backoff.h"
#include "core/net/deadline.h"
#include "edge/service/service.h"

namespace fluvial::edge {
namespace {

Outcome outcome_of(store::Outcome outcome) {
  switch (outcome) {
    case store::Outcome::kPending: return Outcome::kPending;
    case store::Outcome::kCounted: return Outcome::kCounted;
    case store::Outcome::kLate: return Outcome::kLate;
    case store::Outcome::kRefused: return Outcome::kRefused;
  }
  return Outcome::kPending;
}

}  // namespace

Pending EdgeService::pending_of(const store::PendingInfo& info) {
  return {info.start.run, info.start.round, info.digest, info.incarnation, info.submission};
}

Result<std::optional<Pending>> EdgeService::load() {
  FLUVIAL_ASSIGN(const auto outcomes, store_->worker_outcomes());
  for (const auto& [run, workers] : outcomes) {
    for (const store::WorkerOutcome& known : workers) {
      desk_.outcomes().set(run, known.worker, {known.last.round, outcome_of(known.last.outcome)});
    }
  }
  FLUVIAL_ASSIGN(const std::vector<store::PendingInfo> unresolved, store_->all_pending());
  pending_.reset();
  if (unresolved.empty()) return std::optional<Pending>();
  const store::PendingInfo& info = unresolved.back();  // there is one at most: nothing newer is encoded before
  FLUVIAL_ASSIGN(std::optional<store::PendingUpdate> update, store_->pending(info.start.run));
  FLUVIAL_CHECK(update, "a submission that is listed but not there");
  const Pending found = pending_of(info);
  desk_.outcomes().used(found.run, found.round, info.start.workers);
  pending_ = std::make_shared<const store::PendingUpdate>(std::move(*update));
  log_of(found.run, found.round).info("a submission waits for its outcome", {{"digest", to_hex(info.digest)}});
  return std::optional(found);
}

net::Awaitable<Result<round::Standing>> EdgeService::standing() {
  co_return co_await runtime_.pool.run([this] { return store_->standing(); });
}

net::Awaitable<Status> EdgeService::granted(round::Lineage lineage, Epoch lease) {
  if (round::current_of(lineage) == round::current_of(lineage_)) {
    if (lease <= heard_) co_return Status{};
    const auto kept = co_await runtime_.pool.run([&] { return store_->enter(lineage, lease); });
    if (!kept.ok()) co_return kept.error();
    heard_ = lease;
    co_return Status{};
  }
  if (round::began_of(lineage) <= heard_) {
    Error older = round::older_history(lineage, heard_);
    runtime_.log.error("the lease is not taken", {{"reason", older.message}});
    co_return older;
  }
  entering_ = Entering{std::move(lineage), lease};
  carry_out(machine_->history_begins());
  while (entering_ && !stopping_) co_await entered_.wait();
  co_return stopping_ ? Status{Error{Code::kCancelled, "the node is stopping"}} : Status{};
}

void EdgeService::apply(const EnterHistory&) { process_.spawn("enter history", enter_history()); }

// As resolve(): nothing goes on before it is on disk, and a disk that fails is tried again.
net::Awaitable<void> EdgeService::enter_history() {
  net::Backoff backoff(runtime_.backoff, Rng(entering_->lease.value()));
  std::optional<Pending> pending;
  for (;;) {
    const auto aside = co_await runtime_.pool.run([&] { return store_->enter(entering_->lineage, entering_->lease); });
    Status entered;
    if (aside.ok()) {
      for (const store::PutAside& one : *aside) note_put_aside(one);
      Result<std::optional<Pending>> held = load();
      if (held.ok()) pending = *held;
      if (!held.ok()) entered = held.error();
    } else {
      entered = aside.error();
    }
    if (entered.ok()) break;
    runtime_.log.error("the new history cannot be written; trying again", {{"reason", entered.error().to_string()}});
    if (stopping_ || store_failed()) co_return;
    const Status slept = co_await net::with_deadline(stop_.wait(), backoff.next());
    (void)slept.ok();  // the wait is over, or stopping_ is set
    if (stopping_) co_return;
  }
  if (stopping_) co_return;
  const round::Common common(lineage_, entering_->lineage);
  lineage_ = std::move(entering_->lineage);
  heard_ = std::max(entering_->lease, round::began_of(lineage_));
  entering_.reset();
  if (ending_) tell_ended();  // the last model of that end is of the history before: it does not come any more
  committed_.reset();
  round_ = RoundId(0);
  runtime_.log.warn("the coordinator was restored from a backup: another history of the federation",
                    {{"history", round::current_of(lineage_)}, {"began_at_epoch", round::began_of(lineage_)}});
  carry_out(machine_->history_entered(pending, common));
  entered_.notify_all();
}

void EdgeService::note_put_aside(const store::PutAside& aside) {
  desk_.outcomes().forget(aside.run);
  if (aside.run_lost) {
    runtime_.log.warn("a run is lost with the history before: what was carried over is dropped",
                      {{"run", aside.run}, {"residual_norm", aside.residual.norm}});
    if (!aside.residual.zero) metrics_.residuals_dropped.add();
    return;
  }
  if (aside.undone) {
    runtime_.log.warn("rounds up to this one are lost with the history before, and what counted in them",
                      {{"run", aside.run}, {"round", *aside.undone}});
  }
  if (aside.late) {
    ++counts_.late;
    metrics_.outcomes_late.add();
    log_of(aside.run, *aside.late)
        .warn("update late: its round is lost with the history before", {{"residual_norm", aside.residual.norm}});
  }
  note_residual(aside.run, aside.late.value_or(RoundId(0)), {aside.residual, aside.dropped});
}

}  // namespace fluvial::edge
