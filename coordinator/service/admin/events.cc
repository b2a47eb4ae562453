#include "coordinator/service/admin/events.h"

#include <algorithm>
#include <boost/json.hpp>
#include <set>
#include <utility>

#include "coordinator/service/admin/resources.h"
#include "coordinator/service/json.h"
#include "core/net/deadline.h"
#include "core/net/run_on.h"

namespace fluvial::coordinator::admin {
namespace {

namespace json = boost::json;

constexpr Duration kLookInterval = std::chrono::seconds(1);
constexpr int kTimeShare = 20;  // of the strand, one part for looking
constexpr Duration kHeartbeat = std::chrono::seconds(10);
constexpr std::size_t kEventsAtOnce = 256;
constexpr std::size_t kRecentInReset = 100;
constexpr const char* kHeartbeatText = ": nothing new\n";

const std::string kNode = "node/";

}  // namespace

void Events::publish(const FeedLine& line) {
  boost::system::error_code error;
  json::value value = json::parse(line.json, error);
  if (error || !value.is_object()) return;  // the feed's lines are ours
  json::object& event = value.as_object();
  const std::string name(event.at("event").as_string());
  event["at"] = utc(runtime_.clock.wall_now());
  log_.happened(name, json::serialize(event));
  changed_.notify_all();
}

net::Awaitable<std::string> Events::body_of(std::string path) {
  net::HttpRequest request;
  request.method = "GET";
  request.path = std::move(path);
  net::HttpResponse response = co_await ask_(std::move(request));
  co_return response.status == 200 ? std::move(response.body) : std::string();
}

net::Awaitable<void> Events::look() {
  const std::string status = co_await body_of("/v1/status");
  const std::string nodes = co_await body_of("/v1/nodes");
  if (status.empty() || nodes.empty()) co_return;  // it stands as it stood until they answer
  const std::uint64_t before = log_.last();
  log_.stands("status", "status", status);
  std::set<std::string> there;
  const json::value listed = json::parse(nodes);
  for (const json::value& node : listed.at("nodes").as_array()) {
    const std::string subject = kNode + json::serialize(node.at("id"));
    there.insert(subject);
    log_.stands("node", subject, json::serialize(node));
  }
  for (const std::string& subject : log_.subjects()) {
    if (!subject.starts_with(kNode) || there.contains(subject)) continue;
    log_.forget(subject);
    log_.happened("node", "{\"id\":" + subject.substr(kNode.size()) + ",\"removed\":true}");
  }
  if (log_.last() != before) changed_.notify_all();
}

std::size_t Events::watcher_count() {
  std::erase_if(watchers_, [](const auto& weak) { return weak.expired(); });
  return watchers_.size();
}

net::Awaitable<void> Events::run() {
  Duration interval = kLookInterval;
  while (!closed_) {
    if (watcher_count() == 0) {
      co_await wake_.wait();
      continue;
    }
    const Status slept = co_await net::with_deadline(wake_.wait(), interval);
    if (slept.ok()) continue;  // a watcher is new, and has looked
    const TimePoint begin = runtime_.clock.now();
    co_await look();
    interval = std::max<Duration>(kLookInterval, kTimeShare * (runtime_.clock.now() - begin));
  }
}

void Events::close() {
  closed_ = true;
  changed_.notify_all();
  wake_.notify_all();
}

net::Awaitable<Result<net::LineProducer>> Events::stream(std::string last_id, std::string who) {
  const std::size_t watching_now = watcher_count();
  if (watching_now >= kWatchersMax) {
    co_return Error{Code::kResourceExhausted,
                    std::to_string(watching_now) + " watch already: close another console first"};
  }
  const auto of_one = std::ranges::count_if(watchers_, [&who](const auto& weak) {
    const auto other = weak.lock();
    return other && other->who == who;
  });
  if (!who.empty() && static_cast<std::size_t>(of_one) >= kOfOneMax) {
    co_return Error{Code::kResourceExhausted,
                    "you watch " + std::to_string(of_one) + " times already: close another console first"};
  }
  const auto watching = std::make_shared<Watching>(Watching{.who = std::move(who)});
  watchers_.push_back(watching);
  co_await look();
  if (const std::optional<std::uint64_t> number = log_.number_of(last_id)) {
    watching->sent = *number;
  } else {
    watching->told_of_reset = false;
  }
  wake_.notify_all();
  net::LineProducer producer = [this, watching](std::shared_ptr<net::LineWriter> out) { return serve(watching, out); };
  co_return producer;
}

// On the connection's executor.
net::Awaitable<void> Events::serve(std::shared_ptr<Watching> watching, std::shared_ptr<net::LineWriter> out) {
  Status written = co_await out->write_line("retry: 1000\n");
  while (written.ok()) {
    std::string text;
    co_await net::run_on(runtime_.strand, next(watching.get(), &text));
    if (text.empty()) co_return;
    written = co_await out->write_line(std::move(text));
  }
}

// On the strand. Empty: the coordinator stops, or this watcher lags so far behind that events are missing.
net::Awaitable<void> Events::next(Watching* watching, std::string* text) {
  if (!std::exchange(watching->told_of_reset, true)) {
    *text = reset_text(watching);
    co_return;
  }
  while (!closed_ && watching->sent == log_.last()) {
    const Status changed = co_await net::with_deadline(changed_.wait(), kHeartbeat);
    if (changed.ok()) continue;
    *text = kHeartbeatText;
    co_return;
  }
  if (closed_ || !log_.is_complete_after(watching->sent)) co_return;
  for (const LoggedEvent& event : log_.after(watching->sent, kEventsAtOnce)) {
    *text += text->empty() ? "" : "\n";
    *text += text_of(event);
    watching->sent = event.number;
  }
  if (!text->empty()) co_return;
  watching->sent = log_.last();  // what was behind it stands no more
  *text = kHeartbeatText;
}

std::string Events::text_of(const LoggedEvent& event) const {
  return "id: " + log_.id_of(event.number) + "\nevent: " + event.name + "\ndata: " + event.json + "\n";
}

std::string Events::reset_text(Watching* watching) const {
  const auto joined = [](const std::vector<LoggedEvent>& events) {
    std::string list;
    for (const LoggedEvent& event : events) list += (list.empty() ? "" : ",") + event.json;
    return list;
  };
  watching->sent = log_.last();
  const std::string status = joined(log_.standing("status"));
  return text_of({log_.last(), "reset",
                  "{\"status\":" + (status.empty() ? "null" : status) + ",\"nodes\":[" + joined(log_.standing("node")) +
                      "],\"recent\":[" + joined(log_.recent(kRecentInReset)) + "]}"});
}

namespace {

net::Awaitable<net::HttpResponse> events(Context* admin, Call call) {
  std::string last_id(call.request.header("last-event-id"));
  Result<net::LineProducer> producer = co_await admin->events->stream(std::move(last_id), call.caller.who());
  if (!producer.ok()) co_return net::HttpResponse::from_error(producer.error());
  net::HttpResponse response;
  response.content_type = "text/event-stream";
  response.headers = {{"Cache-Control", "no-store"}};
  response.lines = std::move(*producer);
  co_return response;
}

}  // namespace

void add_events(Router& router) { router.get("/v1/events", events); }

}  // namespace fluvial::coordinator::admin
