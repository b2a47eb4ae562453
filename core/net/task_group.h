// Coroutines that somebody waits for: every spawn joins a group.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "core/net/awaitable.h"

namespace fluvial::net {

// Thread safe. Tasks may run on different executors. The group's state outlives it until the last task has ended, so
// destroying a group neither waits nor cancels: join() first.
class TaskGroup {
 public:
  using Failed = std::function<void(const std::string& task, const std::string& what)>;

  // `failed` hears of an exception that left a task (thread safe, may be empty); a cancelled task is no failure.
  explicit TaskGroup(const Executor& executor, Failed failed = {});

  // `failed`: told in place of the group's, on `executor`.
  void spawn(const Executor& executor, std::string name, Awaitable<void> task, Failed failed = {});
  void cancel();  // every task that runs now: unwinds at its next await
  std::size_t size() const;
  Awaitable<void> join();  // until no task runs

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace fluvial::net
