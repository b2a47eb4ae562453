#include "core/net/task_group.h"

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/strand.hpp>
#include <boost/system/system_error.hpp>
#include <exception>
#include <list>
#include <mutex>

#include "core/net/run_on.h"
#include "core/net/signal.h"

namespace fluvial::net {
namespace {

struct Task {
  std::string name;
  Executor executor;
  asio::cancellation_signal signal;  // used on `executor`
  bool done = false;                 // likewise
};

std::string describe_failure(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const boost::system::system_error& error) {
    return error.code() == asio::error::operation_aborted ? "" : error.what();
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception of unknown type";
  }
}

}  // namespace

struct TaskGroup::State : std::enable_shared_from_this<TaskGroup::State> {
  State(const Executor& executor, Failed on_failed)
      : strand(asio::make_strand(executor)), ended(strand), failed(std::move(on_failed)) {}

  void finish(std::list<std::shared_ptr<Task>>::iterator position) {
    const std::lock_guard lock(mutex);
    tasks.erase(position);
    if (tasks.empty()) asio::post(strand, [self = shared_from_this()] { self->ended.notify_all(); });
  }
  bool empty() const {
    const std::lock_guard lock(mutex);
    return tasks.empty();
  }
  static Awaitable<void> wait_until_empty(std::shared_ptr<State> self) {
    while (!self->empty()) co_await self->ended.wait();
  }

  Executor strand;
  AsyncSignal ended;  // on the strand
  Failed failed;
  mutable std::mutex mutex;
  std::list<std::shared_ptr<Task>> tasks;
};

TaskGroup::TaskGroup(const Executor& executor, Failed failed)
    : state_(std::make_shared<State>(executor, std::move(failed))) {}

void TaskGroup::spawn(const Executor& executor, std::string name, Awaitable<void> task, Failed failed) {
  auto entry = std::make_shared<Task>();
  entry->name = std::move(name);
  entry->executor = executor;
  std::list<std::shared_ptr<Task>>::iterator position;
  {
    const std::lock_guard lock(state_->mutex);
    position = state_->tasks.insert(state_->tasks.end(), entry);
  }
  auto on_end = [state = state_, entry, position, own = std::move(failed)](const std::exception_ptr& failure) {
    entry->done = true;
    const Failed& told = own ? own : state->failed;
    if (failure && told) {
      const std::string what = describe_failure(failure);
      if (!what.empty()) told(entry->name, what);
    }
    state->finish(position);
  };
  // Started from its own executor, so that only that one ever touches the cancellation signal.
  asio::dispatch(executor, [executor, entry, task = std::move(task), on_end = std::move(on_end)]() mutable {
    asio::co_spawn(executor, std::move(task), asio::bind_cancellation_slot(entry->signal.slot(), std::move(on_end)));
  });
}

void TaskGroup::cancel() {
  const std::lock_guard lock(state_->mutex);
  for (const std::shared_ptr<Task>& entry : state_->tasks) {
    asio::post(entry->executor, [entry] {
      if (!entry->done) entry->signal.emit(asio::cancellation_type::terminal);
    });
  }
}

std::size_t TaskGroup::size() const {
  const std::lock_guard lock(state_->mutex);
  return state_->tasks.size();
}

Awaitable<void> TaskGroup::join() { co_await run_on(state_->strand, State::wait_until_empty(state_)); }

}  // namespace fluvial::net
