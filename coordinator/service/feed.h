// What happens in the runs, as lines of JSON for whoever watches. On the node's strand; but a watcher may end anywhere.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/ids.h"
#include "core/net/signal.h"

namespace fluvial::coordinator {

struct FeedLine {
  RunId run;
  RoundId round;  // 0: of the run as a whole
  bool ends_run = false;
  std::string json;
};

class Watcher {
 public:
  explicit Watcher(const net::Executor& strand) : changed_(strand) {}
  net::Awaitable<void> wait();  // until there is a line, it lags too far behind, or the feed is closed
  std::deque<FeedLine> lines;
  bool closed = false;

 private:
  friend class Feed;
  net::AsyncSignal changed_;
};

class Feed {
 public:
  explicit Feed(net::Executor strand) : strand_(std::move(strand)) {}
  std::shared_ptr<Watcher> watch();
  void also_to(std::function<void(const FeedLine&)> hear) { hear_ = std::move(hear); }
  void publish(const FeedLine& line);
  // The end of a run is published when nothing of it is waited for any more.
  void hold(FeedLine end) { held_.insert_or_assign(end.run, std::move(end)); }
  bool holds(RunId run) const { return held_.contains(run); }
  void release_unless(const std::function<bool(RunId)>& is_waited_for);
  void close();

 private:
  net::Executor strand_;
  std::vector<std::weak_ptr<Watcher>> watchers_;
  std::map<RunId, FeedLine> held_;
  std::function<void(const FeedLine&)> hear_;
};

}  // namespace fluvial::coordinator
