#include "core/tree/sum.h"

#include <boost/asio/awaitable.hpp>
#include <utility>

namespace fluvial::tree {

std::uint64_t Sum::stage(transfer::StagedArrival arrival) {
  const std::uint64_t id = ++last_id_;
  staged_.emplace(id, std::make_shared<transfer::StagedArrival>(std::move(arrival)));
  return id;
}

Sum::Staged Sum::find(std::uint64_t id) const {
  const auto found = staged_.find(id);
  return found == staged_.end() ? nullptr : found->second;
}

Sum::Staged Sum::drop(std::uint64_t id) {
  Staged arrival = find(id);
  staged_.erase(id);
  return arrival;
}

void Sum::drop_all() { staged_.clear(); }

void Sum::take(std::uint64_t id, std::optional<ModelVersion> admitted_on, Taken done) {
  lane_.push([this, id, admitted_on, done = std::move(done)] { return do_take(id, admitted_on, done); });
}

net::Awaitable<void> Sum::do_take(std::uint64_t id, std::optional<ModelVersion> admitted_on, Taken done) {
  const auto found = staged_.find(id);
  if (found == staged_.end()) co_return;  // dropped meanwhile
  const std::shared_ptr<transfer::StagedArrival> arrival = found->second;
  if (admitted_on) arrival->what.contributors.admitted_on(*admitted_on);  // nobody else reads it now: this is the lane
  adding_since_ = runtime_.clock.now();
  const Result<round::ContributorSet> added =
      co_await runtime_.pool.run([&] { return node_.add(*arrival, parallel_); }, net::Work::kMerge);
  if (staged_.contains(id)) done(*arrival, added);
}

void Sum::reset(transfer::SumShape shape) {
  lane_.push([this, shape] { return do_reset(shape); });
}

net::Awaitable<void> Sum::do_reset(transfer::SumShape shape) {
  const Status done = co_await runtime_.pool.run([this, shape]() -> Status {
    node_.reset(shape);
    return {};
  });
  FLUVIAL_CHECK(done.ok(), "no memory for the sum");
}

}  // namespace fluvial::tree
