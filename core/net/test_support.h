// What the room's tests share: threads that run coroutines, hooks that remember, an echo server, members' contexts.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>
#include <condition_variable>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/rng.h"
#include "core/identity/testing.h"
#include "core/net/connector.h"
#include "core/net/listener.h"
#include "core/net/session.h"

namespace fluvial::net {

// Two threads, so that a thread sanitizer has something to see.
class Threads {
 public:
  Threads() : work_(context_.get_executor()) {
    for (int i = 0; i < 2; ++i) threads_.emplace_back([this] { context_.run(); });
  }
  ~Threads() { stop(); }
  void stop() {  // returns when every coroutine has ended
    work_.reset();
    for (std::thread& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
  }
  Executor executor() { return context_.get_executor(); }

  // Runs a coroutine to its end, on `where` or on any of the threads, and returns what it returned.
  template <typename T>
  T run(Awaitable<T> task, std::optional<Executor> where = std::nullopt) {
    std::optional<T> out;
    asio::co_spawn(where.value_or(executor()), keep(std::move(task), &out), asio::use_future).get();
    return std::move(*out);
  }
  void run(Awaitable<void> task, std::optional<Executor> where = std::nullopt) {
    asio::co_spawn(where.value_or(executor()), std::move(task), asio::use_future).get();
  }

 private:
  template <typename T>
  static Awaitable<void> keep(Awaitable<T> task, std::optional<T>* out) {
    out->emplace(co_await std::move(task));
  }
  asio::io_context context_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  std::vector<std::thread> threads_;
};

class RecordingHooks final : public NetHooks {
 public:
  void refused(std::string_view reason, const std::string&, const std::string& detail) override {
    note([&] { ++refusals[std::string(reason)], details.push_back(detail); });
  }
  void session_opened(const std::string&) override {
    note([&] { ++opened; });
  }
  void session_moved(bool accepted, const Traffic& traffic) override {
    note([&] {
      accepted_moved = accepted_moved || accepted;
      moved.bytes_in += traffic.more.bytes_in;
      moved.bytes_out += traffic.more.bytes_out;
      moved.frames_in += traffic.more.frames_in;
      moved.frames_out += traffic.more.frames_out;
      outbox_bytes += traffic.outbox_bytes_more;
    });
  }
  void session_closed(const std::string&, const Error& why, const Counters& counters) override {
    note([&] { ++closed, reasons.push_back(why), at_close = counters; });
  }
  void accept_failed(const std::string& detail) override {
    std::function<void()> then;
    note([&] { ++accepts_failed, details.push_back(detail), then = on_accept_failed; });
    if (then) then();
  }
  void answer_lost(const std::string&, const Error& why) override {
    note([&] { ++answers_lost, reasons.push_back(why); });
  }
  void handler_failed(const std::string&, const std::string& detail) override {
    note([&] { ++handlers_failed, details.push_back(detail); });
  }

  // Blocks until it holds. A test that never gets there fails after a minute.
  void wait(const std::function<bool(const RecordingHooks&)>& holds) {
    std::unique_lock lock(mutex_);
    ASSERT_TRUE(changed_.wait_for(lock, std::chrono::minutes(1), [&] { return holds(*this); })) << "never happened";
  }
  void wait_refused(std::string_view reason, int count = 1) {
    wait([&](const RecordingHooks& seen) {
      const auto found = seen.refusals.find(std::string(reason));
      return found != seen.refusals.end() && found->second >= count;
    });
  }

  int count(std::string_view reason) {
    const std::lock_guard lock(mutex_);
    const auto found = refusals.find(std::string(reason));
    return found == refusals.end() ? 0 : found->second;
  }

  // Read them inside wait(), or when nothing runs any more.
  std::map<std::string, int> refusals;
  std::vector<std::string> details;
  std::vector<Error> reasons;
  std::function<void()> on_accept_failed;
  Counters moved;  // of all sessions
  std::int64_t outbox_bytes = 0;
  bool accepted_moved = false;
  Counters at_close;  // of the last one
  int answers_lost = 0;
  int opened = 0;
  int closed = 0;
  int accepts_failed = 0;
  int handlers_failed = 0;

 private:
  void note(const std::function<void()>& change) {
    const std::lock_guard lock(mutex_);
    change();
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
};

inline const identity::TestPki& pki() {
  static const identity::TestPki made;
  return made;
}
inline std::shared_ptr<const identity::TlsContext> server_tls() {
  return pki().member_server(Role::kCoordinator, NodeId(1), "root");
}
inline std::shared_ptr<const identity::TlsContext> client_tls() {
  return pki().member_client(Role::kSite, NodeId(7), "hospital-a");
}

// A frame with a payload drawn from a seed, so that both sides know what it must be.
inline Buffer pattern(std::uint64_t seed, std::size_t size) {
  Buffer bytes(size);
  Rng rng(seed);
  std::size_t i = 0;
  for (; i + 8 <= size; i += 8) store_le(bytes.data() + i, rng.next());
  for (; i < size; ++i) bytes.data()[i] = static_cast<std::byte>(rng.next());
  return bytes;
}
inline OutFrame chunk_frame(std::uint64_t index, Buffer payload = {}) {
  OutFrame frame;
  frame.header.mutable_update_chunk()->set_index(index);
  if (!payload.empty()) frame.payload = SharedBytes::from(std::move(payload));
  return frame;
}
inline bool same_bytes(ByteSpan a, ByteSpan b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }

// Sends back whatever comes, until the session ends.
inline Awaitable<void> echo(std::shared_ptr<Session> session) {
  for (;;) {
    auto frame = co_await session->receive();
    if (!frame.ok()) co_return;
    OutFrame answer{std::move(frame->header), SharedBytes::from(std::move(frame->payload))};
    const Status sent = co_await session->send(std::move(answer));
    if (!sent.ok()) co_return;
  }
}

// A listener that runs until the object goes.
class TestServer {
 public:
  explicit TestServer(Threads& threads, ListenerSettings settings = {}, Listener::Handler handler = echo,
                      std::shared_ptr<const identity::TlsContext> tls = server_tls(), Admission admission = {})
      : threads_(threads) {
    auto opened = Listener::open(threads.executor(), "127.0.0.1", 0, identity::live(std::move(tls)), settings, hooks_,
                                 std::move(admission));
    EXPECT_TRUE(opened.ok()) << opened.error().to_string();
    listener_ = std::move(*opened);
    running_ = asio::co_spawn(threads.executor(), listener_->run(std::move(handler)), asio::use_future);
  }
  ~TestServer() { stop(); }
  void stop() {
    listener_->stop();
    if (running_.valid()) running_.get();
  }
  std::uint16_t port() const { return listener_->port(); }
  Listener& listener() { return *listener_; }
  RecordingHooks& hooks() { return *hooks_; }

  Result<std::shared_ptr<Session>> try_connect(SessionSettings settings = {},
                                               std::shared_ptr<const identity::TlsContext> tls = client_tls(),
                                               std::uint16_t port = 0) {
    return threads_.run(
        connect(threads_.executor(), "127.0.0.1", port == 0 ? listener_->port() : port, std::move(tls), settings));
  }
  std::shared_ptr<Session> connect_now(SessionSettings settings = {}, std::uint16_t port = 0) {
    auto session = try_connect(settings, client_tls(), port);
    EXPECT_TRUE(session.ok()) << session.error().to_string();
    return std::move(*session);
  }

 private:
  Threads& threads_;
  std::shared_ptr<RecordingHooks> hooks_ = std::make_shared<RecordingHooks>();
  std::shared_ptr<Listener> listener_;
  std::future<void> running_;
};

// Sends one frame and waits for its echo.
inline Awaitable<Status> ping_pong(std::shared_ptr<Session> session, std::uint64_t seed, std::size_t size) {
  OutFrame out = chunk_frame(seed, pattern(seed, size));
  FLUVIAL_CO_TRY(co_await session->send(std::move(out)));
  auto back = co_await session->receive();
  if (!back.ok()) co_return back.error();
  if (back->header.update_chunk().index() != seed || !same_bytes(back->payload.span(), pattern(seed, size).span())) {
    co_return Error{Code::kDataLoss, "the echo differs"};
  }
  co_return Status{};
}

inline Status exchange(Threads& threads, const std::shared_ptr<Session>& session, std::uint64_t seed,
                       std::size_t size) {
  return threads.run(ping_pong(session, seed, size), session->executor());
}

inline void say_goodbye(Threads& threads, const std::shared_ptr<Session>& session) {
  session->close({Code::kCancelled, "the test is over"}, true);
  threads.run(session->closed(), session->executor());
}

}  // namespace fluvial::net
