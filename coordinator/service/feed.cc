#include "coordinator/service/feed.h"

#include <boost/asio/awaitable.hpp>

namespace fluvial::coordinator {
namespace {
constexpr std::size_t kLinesMax = 10'000;  // a watcher with this many unread lines is let go
}

net::Awaitable<void> Watcher::wait() {
  while (lines.empty() && !closed) co_await changed_.wait();
}

std::shared_ptr<Watcher> Feed::watch() {
  auto watcher = std::make_shared<Watcher>(strand_);
  watchers_.push_back(watcher);
  return watcher;
}

void Feed::publish(const FeedLine& line) {
  std::erase_if(watchers_, [](const auto& weak) { return weak.expired(); });
  for (const auto& weak : watchers_) {
    const std::shared_ptr<Watcher> watcher = weak.lock();
    if (!watcher) continue;  // it ended just now, on its connection's executor
    if (watcher->lines.size() >= kLinesMax) watcher->closed = true;
    if (!watcher->closed) watcher->lines.push_back(line);
    watcher->changed_.notify_all();
  }
  if (hear_) hear_(line);
}

void Feed::release_unless(const std::function<bool(RunId)>& is_waited_for) {
  for (auto held = held_.begin(); held != held_.end();) {
    if (is_waited_for(held->first)) {
      ++held;
      continue;
    }
    const FeedLine line = std::move(held->second);
    held = held_.erase(held);
    publish(line);
  }
}

void Feed::close() {
  for (const auto& weak : watchers_) {
    if (const std::shared_ptr<Watcher> watcher = weak.lock()) {
      watcher->closed = true;
      watcher->changed_.notify_all();
    }
  }
}

}  // namespace fluvial::coordinator
