#include "core/tree/lane.h"

#include <boost/asio/awaitable.hpp>
#include <utility>

namespace fluvial::tree {

void Lane::push(Work work) {
  queue_.push_back(std::move(work));
  changed_.notify_all();
}

void Lane::stop() {
  stopping_ = true;
  changed_.notify_all();
}

net::Awaitable<void> Lane::run() {
  for (;;) {
    while (queue_.empty() && !stopping_) co_await changed_.wait();
    if (stopping_) co_return;
    const Work work = std::move(queue_.front());
    queue_.pop_front();
    working_ = true;
    co_await work();
    working_ = false;
  }
}

}  // namespace fluvial::tree
