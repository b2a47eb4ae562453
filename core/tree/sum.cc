#include "core/tree/sum.h"

#include <algorithm>
#include <atomic>
#include <boost/asio/this_coro.hpp>
#include <mutex>
#include <utility>

#include "core/net/task_group.h"

namespace fluvial::tree {
namespace {

struct Shared {
  std::function<Status(std::size_t)> f;
  std::size_t count = 0;
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  Status first;

  Status work() {
    for (std::size_t i = next++; i < count; i = next++) {
      if (Status status = f(i); !status.ok()) {
        next = count;
        const std::lock_guard lock(mutex);
        if (first.ok()) first = std::move(status);
      }
    }
    return {};
  }
};

net::Awaitable<void> help(net::WorkerPool* pool, std::shared_ptr<Shared> shared) {
  const Status ran = co_await pool->run([shared] { return shared->work(); });
  // A full queue means fewer hands; the caller's own run does the rest.
  (void)ran.ok();
}

}  // namespace

// NOLINTNEXTLINE(cppcoreguidelines-avoid-reference-coroutine-parameters): it outlives every task
net::Awaitable<Status> for_each_chunk(Runtime& runtime, std::size_t count, std::function<Status(std::size_t)> f) {
  if (count == 0) co_return Status{};
  auto shared = std::make_shared<Shared>();
  shared->f = std::move(f);
  shared->count = count;
  const net::Executor here = co_await net::asio::this_coro::executor;
  net::TaskGroup helpers(here);
  const std::size_t hands = std::min(runtime.pool_threads, count);
  for (std::size_t i = 1; i < hands; ++i) helpers.spawn(here, "chunks", help(&runtime.pool, shared));
  Status ran = co_await runtime.pool.run([shared] { return shared->work(); });
  co_await helpers.join();
  if (!ran.ok()) co_return ran;
  co_return shared->first;
}

std::uint64_t Sum::stage(StagedArrival arrival) {
  const std::uint64_t id = ++last_id_;
  staged_.emplace(id, std::move(arrival));
  return id;
}

const StagedArrival* Sum::find(std::uint64_t id) const {
  const auto found = staged_.find(id);
  return found == staged_.end() ? nullptr : &found->second;
}

std::optional<StagedArrival> Sum::drop(std::uint64_t id) {
  auto node = staged_.extract(id);
  if (node.empty()) return std::nullopt;
  return std::move(node.mapped());
}

void Sum::drop_all() { staged_.clear(); }

void Sum::take(std::uint64_t id, std::function<void(const StagedArrival&, const round::ContributorSet&)> done) {
  lane_.push([this, id, done = std::move(done)] { return do_take(id, done); });
}

net::Awaitable<void> Sum::do_take(std::uint64_t id,
                                  std::function<void(const StagedArrival&, const round::ContributorSet&)> done) {
  std::optional<StagedArrival> arrival = drop(id);
  if (!arrival) co_return;  // dropped meanwhile
  const bool is_update = arrival->site != SiteId(0);
  if (!arrival->what.contributors.empty()) {
    const store::StagedUpdate& chunks = *arrival->chunks;
    std::mutex reading;  // a staged update is read by one thread at a time
    const bool spilled = chunks.spilled_bytes() > 0;
    const auto weight = static_cast<std::uint32_t>(arrival->what.contributors.total_weight());
    const Status added = co_await for_each_chunk(runtime_, shape_.layout.chunk_count(), [&](std::size_t i) -> Status {
      thread_local Buffer scratch;
      std::unique_lock lock(reading, std::defer_lock);
      if (spilled) lock.lock();
      FLUVIAL_ASSIGN(const ByteSpan bytes, chunks.read(i, scratch));
      if (spilled) lock.unlock();
      return is_update ? accumulator_->add_chunk(*arrival->codec, i, bytes, weight)
                       : accumulator_->merge_chunk(i, bytes);
    });
    // Every chunk was verified before. A sum with a part of a contribution in it must not be used: start over.
    FLUVIAL_CHECK(added.ok(), "a verified update could not be added: " + (added.ok() ? "" : added.error().message));
    const Status integers = accumulator_->add_integers(arrival->integers);
    FLUVIAL_CHECK(integers.ok(), "verified integers could not be added");
  }
  round::ContributorSet with_probes;
  for (const auto& [site, entry] : arrival->what.contributors.entries()) {
    const Status counted =
        is_update ? probe_->add(site, static_cast<std::uint32_t>(entry.weight)) : probe_->merge(site, entry.probe);
    round::Contribution counted_entry = entry;
    counted_entry.probe = counted.ok() ? probe_->sums().at(site) : 0;
    const Status fresh = with_probes.add(std::move(counted_entry));
    FLUVIAL_CHECK(fresh.ok(), "a contributor twice in one arrival");
  }
  done(*arrival, with_probes);
}

void Sum::reset(SumShape shape) {
  lane_.push([this, shape] { return do_reset(shape); });
}

net::Awaitable<void> Sum::do_reset(SumShape shape) {
  const bool same =
      accumulator_ != nullptr && shape.layout == shape_.layout && shape.integer_count == shape_.integer_count;
  shape_ = shape;
  probe_.emplace(shape.scale_bits);
  if (!same) accumulator_.reset();  // first give back, then take
  const Status done = co_await runtime_.pool.run([this, same]() -> Status {
    if (same) {
      accumulator_->reset(shape_.scale_bits);
    } else {
      accumulator_ = std::make_unique<aggregate::Accumulator>(shape_.layout, shape_.integer_count, shape_.scale_bits);
    }
    return {};
  });
  FLUVIAL_CHECK(done.ok(), "no memory for the sum");
}

}  // namespace fluvial::tree
