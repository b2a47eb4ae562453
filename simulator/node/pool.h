// The pool of one simulated process: work is done at once, and takes virtual time.
#pragma once

#include "core/net/worker_pool.h"
#include "simulator/node/context.h"

namespace fluvial::simulator {

// In addition to the time of the disk operations in that work.
struct WorkCosts {
  Duration merge{};
  Duration pack{};  // of one chunk
  Duration finalise{};
};

// The process may die before any work, and after it.
class NodePool final : public net::WorkerPool {
 public:
  NodePool(World& world, HostId host, NodeContext& context, const WorkCosts& costs)
      : world_(world), host_(host), context_(context), costs_(costs) {}

  bool enqueue(std::function<void()>) override { return false; }  // the caller does the work itself
  std::size_t threads() const override { return 1; }

 private:
  net::Awaitable<Status> run_erased(std::function<void()> work, net::Work kind) override;
  net::Awaitable<void> never();
  Duration cost_of(net::Work kind) const;

  World& world_;
  HostId host_;
  NodeContext& context_;
  WorkCosts costs_;
};

}  // namespace fluvial::simulator
