#include "core/net/session.h"

#include <fmt/format.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/strand.hpp>
#include <exception>
#include <utility>

#include "core/net/session_impl.h"

namespace fluvial::net {

SessionImpl::SessionImpl(std::unique_ptr<TlsStream> stream, std::optional<identity::PeerIdentity> peer,
                         const SessionSettings& settings, std::shared_ptr<NetHooks> hooks)
    : stream_(std::move(stream)),
      executor_(stream_->executor()),
      peer_(std::move(peer)),
      settings_(settings),
      limits_{settings.header_bytes_max, settings.payload_bytes_max},
      hooks_(hooks ? std::move(hooks) : std::make_shared<NetHooks>()),
      admitted_(settings.stranger_bytes_max == 0),
      ended_(executor_),
      arrival_(executor_),
      demand_(executor_),
      work_(executor_),
      outbox_room_(executor_),
      monitor_timer_(executor_) {
  stream_->set_rekey_bytes(settings_.rekey_bytes);
  if (settings_.clock != nullptr) probe_.emplace(*settings_.clock);
}

void SessionImpl::start() {
  hooks_->session_opened(remote());
  if (settings_.outboxes != nullptr) {
    account_ = settings_.outboxes->open([weak = weak_from_this()](std::size_t bytes) {
      if (const auto self = weak.lock()) asio::post(self->executor_, [self, bytes] { self->end_unread(bytes); });
    });
  }
  tasks_running_ = 3;
  spawn(read_frames(shared_from_this()), "reader");
  spawn(write_frames(shared_from_this()), "writer");
  spawn(watch(shared_from_this()), "monitor");
}

void SessionImpl::spawn(Awaitable<void> task, std::string_view name) {
  asio::co_spawn(executor_, std::move(task), [self = shared_from_this(), name](const std::exception_ptr& failure) {
    if (failure) {
      std::string what = "the session's " + std::string(name) + " failed";
      try {
        std::rethrow_exception(failure);
      } catch (const std::exception& error) {
        what += std::string(": ") + error.what();
      }
      self->begin_close({Code::kInternal, self->remote() + ": " + what}, false);
    }
    self->task_ended();
  });
}

void SessionImpl::task_ended() {
  if (--tasks_running_ > 0) return;
  cut();
  ended_.notify_all();
  tell_traffic(0);  // what is still queued is given up
  hooks_->session_closed(remote(), close_reason(), counters());
}

bool SessionImpl::on_strand() const {
  const auto* strand = executor_.target<asio::strand<Executor>>();
  return strand != nullptr && strand->running_in_this_thread();
}

Awaitable<Result<Frame>> SessionImpl::receive(std::shared_ptr<SessionImpl> self) {
  FLUVIAL_CHECK(self->on_strand(), "receive() outside the session's executor");
  FLUVIAL_CHECK(!self->receiving_, "two receivers on one session");
  struct Receiving {
    bool& flag;
    ~Receiving() { flag = false; }
  } receiving{self->receiving_ = true};
  self->demand_.notify_all();
  while (!self->arrived_ && !self->closing_) co_await self->arrival_.wait();
  if (!self->arrived_) co_return self->close_reason();
  Frame frame = std::move(*self->arrived_);
  self->arrived_.reset();
  self->demand_.notify_all();
  co_return frame;
}

Awaitable<Status> SessionImpl::send(std::shared_ptr<SessionImpl> self, OutFrame frame) {
  FLUVIAL_CHECK(self->on_strand(), "send() outside the session's executor");
  Result<Buffer> head = wire::encode_head(frame.header, frame.payload.bytes.size(), self->limits_);
  if (!head.ok()) co_return self->cannot_send(head.error());
  while (!self->closing_ && self->outbox_bytes_ > self->settings_.outbox_bytes_max) {
    co_await self->outbox_room_.wait();
  }
  if (self->closing_) co_return self->close_reason();
  const std::size_t kept = head->size();
  Outgoing out{std::move(*head), std::move(frame.payload), kept};
  self->count(out);
  self->enqueue(std::move(out));
  co_return Status{};
}

void SessionImpl::post(OutFrame frame) {
  auto head = wire::encode_head(frame.header, frame.payload.bytes.size(), limits_);
  if (!head.ok()) {
    return asio::dispatch(executor_, [self = shared_from_this(), why = head.error()] { self->cannot_send(why); });
  }
  const std::size_t kept = head->size() + frame.payload.bytes.size();
  Outgoing out{std::move(*head), std::move(frame.payload), kept};
  if (count(out) > 4 * settings_.outbox_bytes_max) {
    uncount(out);
    return asio::dispatch(executor_, [self = shared_from_this()] { self->end_full(); });
  }
  asio::dispatch(executor_, [self = shared_from_this(), out = std::move(out)]() mutable {
    if (self->closing_) {
      self->uncount(out);
    } else {
      self->enqueue(std::move(out));
    }
  });
}

Error SessionImpl::cannot_send(const Error& why) {
  const Error error{Code::kInternal, remote() + ": a frame cannot be sent: " + why.message};
  if (!closing_) hooks_->handler_failed(remote(), error.message);
  begin_close(error, true);
  return error;
}

void SessionImpl::end_full() {
  if (closing_) return;
  const Error error{Code::kResourceExhausted, remote() + ": the peer does not keep up; its outbox is full"};
  hooks_->refused(reason::kStuck, remote(), error.message);
  begin_close(error, false);
}

std::size_t SessionImpl::count(const Outgoing& out) {
  const std::size_t queued = outbox_bytes_ += out.size();
  if (account_ != nullptr) account_->add(out.kept);
  return queued;
}

std::size_t SessionImpl::uncount(const Outgoing& out) {
  if (account_ != nullptr) account_->taken(out.kept);
  return outbox_bytes_ -= out.size();
}

void SessionImpl::end_unread(std::size_t bytes) {
  lost(reason::kStuck, fmt::format("the peer has not read {} bytes, and all sessions together keep too many", bytes));
}

void SessionImpl::enqueue(Outgoing out) {
  outbox_.push_back(std::move(out));
  work_.notify_all();
}

void SessionImpl::close(Error reason, bool drain) {
  asio::dispatch(executor_, [self = shared_from_this(), reason = std::move(reason), drain]() mutable {
    self->begin_close(std::move(reason), drain);
  });
}

void SessionImpl::begin_close(Error reason, bool drain) {
  if (!closing_) {
    closing_ = true;
    draining_ = drain && !writer_gone_;
    {
      const std::lock_guard lock(reason_mutex_);
      reason_ = std::move(reason);
    }
    open_.store(false, std::memory_order_release);
  }
  if (!drain || writer_gone_) cut();
  for (AsyncSignal* signal : {&arrival_, &demand_, &work_, &outbox_room_}) signal->notify_all();
  monitor_timer_.cancel();
}

void SessionImpl::cut() {
  if (cut_) return;
  cut_ = true;
  stream_->close();
  monitor_timer_.cancel();
  outbox_.clear();
  if (account_ != nullptr) account_->close();
  work_.notify_all();
}

Awaitable<void> SessionImpl::closed(std::shared_ptr<SessionImpl> self) {
  FLUVIAL_CHECK(self->on_strand(), "closed() outside the session's executor");
  while (self->tasks_running_ > 0) co_await self->ended_.wait();
}

Error SessionImpl::close_reason() const {
  const std::lock_guard lock(reason_mutex_);
  return reason_;
}

Counters SessionImpl::counters() const {
  return {.bytes_in = stream_->bytes_in(),
          .bytes_out = stream_->bytes_out(),
          .frames_in = frames_in_.load(std::memory_order_relaxed),
          .frames_out = frames_out_.load(std::memory_order_relaxed),
          .payload_bytes_in = payload_in_.load(std::memory_order_relaxed),
          .payload_bytes_out = payload_out_.load(std::memory_order_relaxed)};
}

void SessionImpl::measure_clock() {
  FLUVIAL_CHECK(on_strand(), "measure_clock() outside the session's executor");
  if (!probe_ || std::exchange(measures_clock_, true)) return;
  ping();
}

std::optional<ClockOffset> SessionImpl::peer_clock() const {
  FLUVIAL_CHECK(on_strand(), "peer_clock() outside the session's executor");
  return probe_ ? probe_->offset() : std::nullopt;
}

// ---- the handle --------------------------------------------------------------------------------------------------

namespace {

class TlsSession final : public Session {
 public:
  explicit TlsSession(std::shared_ptr<SessionImpl> impl) : impl_(std::move(impl)) {}
  ~TlsSession() override {
    if (impl_->is_open()) impl_->close({Code::kCancelled, "closed: nobody holds the session any more"}, true);
  }

  const std::optional<identity::PeerIdentity>& peer() const override { return impl_->peer(); }
  const std::string& remote() const override { return impl_->remote(); }
  Executor executor() const override { return impl_->executor(); }
  Counters counters() const override { return impl_->counters(); }
  void admitted() override { impl_->admitted(); }
  void measure_clock() override { impl_->measure_clock(); }
  std::optional<ClockOffset> peer_clock() const override { return impl_->peer_clock(); }
  Awaitable<Result<Frame>> receive() override { return SessionImpl::receive(impl_); }
  Awaitable<Status> send(OutFrame frame) override { return SessionImpl::send(impl_, std::move(frame)); }
  void post(OutFrame frame) override { impl_->post(std::move(frame)); }
  void close(Error reason, bool drain) override { impl_->close(std::move(reason), drain); }
  Awaitable<void> closed() override { return SessionImpl::closed(impl_); }
  bool is_open() const override { return impl_->is_open(); }
  Error close_reason() const override { return impl_->close_reason(); }

 private:
  std::shared_ptr<SessionImpl> impl_;
};

}  // namespace

const identity::PeerIdentity& Session::member() const {
  FLUVIAL_CHECK(peer().has_value(), "the peer of this session has no certificate");
  return *peer();
}

std::shared_ptr<Session> start_session(std::unique_ptr<TlsStream> stream, std::optional<identity::PeerIdentity> peer,
                                       const SessionSettings& settings, std::shared_ptr<NetHooks> hooks) {
  auto impl = std::make_shared<SessionImpl>(std::move(stream), std::move(peer), settings, std::move(hooks));
  FLUVIAL_CHECK(impl->on_strand(), "a session starts on its own strand");
  impl->start();
  return std::make_shared<TlsSession>(std::move(impl));
}

}  // namespace fluvial::net
