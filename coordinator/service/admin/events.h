// GET /v1/events: what happens in the federation and how it stands, as server-sent events for the console.
//
// On the node's strand, but for the producers of streams. What stands (what /v1/status and /v1/nodes answer) is looked
// at while somebody watches, at most once a second, and seldom enough to take a twentieth of the strand's time at most.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "coordinator/service/admin/event_log.h"
#include "coordinator/service/feed.h"
#include "core/net/http.h"
#include "core/net/signal.h"
#include "core/tree/runtime.h"

namespace fluvial::coordinator::admin {

class Events {
 public:
  static constexpr std::size_t kWatchersMax = 16;
  static constexpr std::size_t kOfOneMax = 8;  // of an operator, or of a user of the machine

  // The admin API's answer to a GET, on the strand.
  using Ask = std::function<net::Awaitable<net::HttpResponse>(net::HttpRequest request)>;

  Events(tree::Runtime& runtime, Epoch epoch, Ask ask)
      : runtime_(runtime), log_(epoch), ask_(std::move(ask)), changed_(runtime.strand), wake_(runtime.strand) {}

  void publish(const FeedLine& line);
  // From behind the event `last_id` on, or from how things stand. kResourceExhausted: too many watch. `who`: as
  // Caller::who() has it.
  net::Awaitable<Result<net::LineProducer>> stream(std::string last_id, std::string who = "");
  net::Awaitable<void> run();  // looks at what stands, until close()
  void close();

 private:
  struct Watching {
    std::string who;
    std::uint64_t sent = 0;
    bool told_of_reset = true;
  };
  net::Awaitable<void> serve(std::shared_ptr<Watching> watching, std::shared_ptr<net::LineWriter> out);
  net::Awaitable<void> next(Watching* watching, std::string* text);
  std::string reset_text(Watching* watching) const;
  std::string text_of(const LoggedEvent& event) const;
  std::size_t watcher_count();
  net::Awaitable<void> look();
  net::Awaitable<std::string> body_of(std::string path);

  tree::Runtime& runtime_;
  EventLog log_;
  Ask ask_;
  net::AsyncSignal changed_;  // the log, or closed_
  net::AsyncSignal wake_;     // run(): somebody watches, or closed_
  std::vector<std::weak_ptr<Watching>> watchers_;
  bool closed_ = false;
};

}  // namespace fluvial::coordinator::admin
