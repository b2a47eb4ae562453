// The execution context of one simulated process: an executor and timers in virtual time. Everything that a process
// spawns, waits for or times is here, and dies with it: coroutines are taken down where they wait.
#pragma once

#include <boost/asio/execution.hpp>
#include <boost/asio/execution_context.hpp>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "core/net/timekeeper.h"
#include "simulator/world/world.h"

namespace fluvial::simulator {

// One thread a world. Posted work runs in the order of posting, at the time of the post; once the process is dead
// nothing runs any more.
class NodeContext final : public net::asio::execution_context, public net::Timekeeper {
 public:
  NodeContext(World& world, HostId host);
  ~NodeContext() override;

  net::Executor executor() override;
  void post(Action action);
  // Takes down all that waits here. Called while everything that the coroutines refer to still exists; afterwards
  // nothing runs.
  void end();

  Ticket wait(std::optional<Duration> limit, std::unique_ptr<net::Waiter> waiter) override;
  void cancel(Ticket ticket) override;
  bool is_waiting(Ticket ticket) const override { return waiting_.contains(ticket); }

 private:
  struct Waiting {
    std::unique_ptr<net::Waiter> waiter;
    EventId event;
  };
  void run();
  void finish(Ticket ticket, boost::system::error_code error);

  World& world_;
  HostId host_;
  std::deque<Action> queue_;
  bool scheduled_ = false;
  bool ended_ = false;
  std::map<Ticket, Waiting> waiting_;
  Ticket last_ticket_ = 0;
};

// The executor, with the members that Asio requires.
class NodeExecutor {
 public:
  explicit NodeExecutor(NodeContext& context) : context_(&context) {}

  net::asio::execution_context& query(net::asio::execution::context_t) const noexcept { return *context_; }
  static constexpr net::asio::execution::blocking_t query(net::asio::execution::blocking_t) noexcept {
    return net::asio::execution::blocking.never;
  }
  template <typename F>
  void execute(F&& function) const {
    context_->post(Action([held = std::forward<F>(function)]() mutable { std::move(held)(); }));
  }
  bool operator==(const NodeExecutor& other) const noexcept = default;

 private:
  NodeContext* context_;
};

}  // namespace fluvial::simulator
