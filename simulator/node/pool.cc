#include "simulator/node/pool.h"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace fluvial::simulator {
namespace {

std::string_view name_of(net::Work kind) {
  switch (kind) {
    case net::Work::kMerge: return "merge";
    case net::Work::kPack: return "pack";
    case net::Work::kFinalise: return "finalise";
    case net::Work::kOther: break;
  }
  return "work";
}

}  // namespace

// Coroutines of a dead process wait until they are taken down.
net::Awaitable<void> NodePool::never() { co_await net::detail::async_wait(context_, {}, net::asio::use_awaitable); }

Duration NodePool::cost_of(net::Work kind) const {
  switch (kind) {
    case net::Work::kMerge: return costs_.merge;
    case net::Work::kPack: return costs_.pack;
    case net::Work::kFinalise: return costs_.finalise;
    case net::Work::kOther: break;
  }
  return Duration(0);
}

net::Awaitable<Status> NodePool::run_erased(std::function<void()> work, net::Work kind) {
  if (world_.crash_here(host_, name_of(kind))) co_await never();
  std::string failure;
  try {
    work();
  } catch (const std::exception& error) {
    failure = std::string("work on the pool failed: ") + error.what();
  }
  work = nullptr;
  if (world_.crash_here(host_, name_of(kind))) co_await never();
  const Duration taken = world_.compute(cost_of(kind)) + world_.disk(host_).take_latency();
  co_await net::detail::async_wait(context_, taken, net::asio::use_awaitable);
  if (!failure.empty()) co_return Error{Code::kInternal, failure};
  co_return Status{};
}

}  // namespace fluvial::simulator
