#include "core/net/pool_parallel.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace fluvial::net {
namespace {

Status call(const std::function<Status(std::size_t)>& f, std::size_t index) {
  try {
    return f(index);
  } catch (const std::exception& error) {
    return Error{Code::kInternal, "work on the pool failed: " + std::string(error.what())};
  }
}

// Shared with helpers that may come when all is done: then they touch nothing but this.
class Pieces {
 public:
  Pieces(std::size_t count, const std::function<Status(std::size_t)>& f) : count_(count), f_(f) {}

  void work() {
    std::unique_lock lock(mutex_);
    while (next_ < count_) {
      const std::size_t index = next_++;
      ++running_;
      lock.unlock();
      Status status = call(f_, index);
      lock.lock();
      --running_;
      if (!status.ok()) {
        next_ = count_;
        if (first_.ok()) first_ = std::move(status);
      }
    }
    if (running_ == 0) done_.notify_all();
  }
  Status join() {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return running_ == 0; });
    return first_;
  }

 private:
  const std::size_t count_;
  const std::function<Status(std::size_t)>&
      f_;  // the caller's: used while a piece of it runs, and join() waits for those
  std::mutex mutex_;
  std::condition_variable done_;
  std::size_t next_ = 0;
  std::size_t running_ = 0;
  Status first_;
};

}  // namespace

Status PoolParallel::for_each(std::size_t count, const std::function<Status(std::size_t)>& f) {
  const std::size_t hands = std::min(pool_.threads(), count);
  auto pieces = std::make_shared<Pieces>(count, f);
  for (std::size_t i = 1; i < hands; ++i) {
    if (!pool_.enqueue([pieces] { pieces->work(); })) break;  // fewer hands
  }
  pieces->work();
  return pieces->join();
}

}  // namespace fluvial::net
