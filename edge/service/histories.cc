#include "edge/service/histories.h"

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <utility>

namespace fluvial::edge {

Histories::Histories(SiteContext& site, Events events)
    : site_(site), events_(std::move(events)), entered_(site.runtime.strand) {}

Status Histories::open() {
  FLUVIAL_ASSIGN(lineage_, site_.store->lineage());
  FLUVIAL_ASSIGN(const round::Standing standing, site_.store->standing());
  heard_ = standing.epoch;
  return {};
}

net::Awaitable<Result<round::Standing>> Histories::standing() {
  co_return co_await site_.runtime.pool.run([this] { return site_.store->standing(); });
}

net::Awaitable<Status> Histories::granted(round::Lineage lineage, Epoch lease) {
  if (round::current_of(lineage) == round::current_of(lineage_)) {
    if (lease <= heard_) co_return Status{};
    const auto kept = co_await site_.runtime.pool.run([&] { return site_.store->enter(lineage, lease); });
    if (!kept.ok()) {
      (void)site_.store_failed();  // then the agent ends: it would ask for leases for ever
      co_return kept.error();
    }
    heard_ = lease;
    co_return Status{};
  }
  if (round::began_of(lineage) <= heard_) {
    Error older = round::older_history(lineage, heard_);
    site_.report.history_refused(older);
    co_return older;
  }
  entering_ = Entering{std::move(lineage), lease};
  events_.begins();
  while (entering_ && !site_.stopping) co_await entered_.wait();
  co_return site_.stopping ? Status{Error{Code::kCancelled, "the node is stopping"}} : Status{};
}

Result<std::optional<Pending>> Histories::put_aside(const std::vector<store::PutAside>& asides) {
  for (const store::PutAside& one : asides) {
    site_.outcomes.forget(one.run);
    site_.report.put_aside(one);
  }
  return events_.load();
}

// Nothing goes on before it is on disk: a disk that fails is tried again.
net::Awaitable<void> Histories::write() {
  net::Backoff backoff(site_.runtime.backoff, Rng(entering_->lease.value()));
  std::optional<Pending> pending;
  for (;;) {
    site_.report.history_entering(entering_->lineage);
    const auto aside =
        co_await site_.runtime.pool.run([&] { return site_.store->enter(entering_->lineage, entering_->lease); });
    const Result<std::optional<Pending>> held =
        aside.ok() ? put_aside(*aside) : Result<std::optional<Pending>>(aside.error());
    if (held.ok()) {
      pending = *held;
      break;
    }
    site_.report.history_not_written(held.error());
    if (site_.stopping || site_.store_failed()) co_return;
    if (!co_await site_.pause(backoff)) co_return;
  }
  if (site_.stopping) co_return;
  const round::Common common(lineage_, entering_->lineage);
  lineage_ = std::move(entering_->lineage);
  heard_ = std::max(entering_->lease, round::began_of(lineage_));
  entering_.reset();
  site_.report.history_entered(lineage_);
  events_.entered(pending, common);
  entered_.notify_all();
}

}  // namespace fluvial::edge
