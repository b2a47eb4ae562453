// The inside of a session. Four coroutines share its strand: a reader, a writer, a monitor, and whoever calls receive()
// and send().
//
//  1. Only the writer writes to the stream, only the reader reads from it.
//  2. closing_ is set once and stays; reason_ is set with it. After it nothing more is queued.
//  3. A drain goes: closing_, the writer empties the outbox, says Goodbye and ends its direction; the reader drops what
//     still comes until the peer ends its own. The monitor cuts the connection when that takes too long.
//  4. The last of the three coroutines to end reports the session closed.
#pragma once

#include <atomic>
#include <boost/asio/steady_timer.hpp>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "core/net/clock_probe.h"
#include "core/net/session.h"
#include "core/net/signal.h"
#include "core/net/tls_stream.h"
#include "core/wire/frame.h"

namespace fluvial::net {

// How far the peer has come with the frame it sends now; the monitor's.
struct FrameProgress {
  bool header_done = false;
  Duration header_time{};
  Duration window_time{};
  std::uint64_t window_start_bytes = 0;
  std::uint64_t payload_bytes = 0;               // announced
  std::shared_ptr<PayloadGate::Ticket> payload;  // once it may come
  void restart_window(std::uint64_t bytes_now) {
    window_time = {};
    window_start_bytes = bytes_now;
  }
};
struct Stillness {  // for how long nothing moved, by the monitor's count
  Duration time{};
  std::uint64_t bytes = 0;
  void look(std::uint64_t bytes_now, Duration elapsed);
};

class SessionImpl : public std::enable_shared_from_this<SessionImpl> {
 public:
  SessionImpl(std::unique_ptr<TlsStream> stream, std::optional<identity::PeerIdentity> peer,
              const SessionSettings& settings, std::shared_ptr<NetHooks> hooks);

  void start();
  bool on_strand() const;

  static Awaitable<Result<Frame>> receive(std::shared_ptr<SessionImpl> self);
  static Awaitable<Status> send(std::shared_ptr<SessionImpl> self, OutFrame frame);
  static Awaitable<void> closed(std::shared_ptr<SessionImpl> self);
  void post(OutFrame frame);             // thread safe
  void close(Error reason, bool drain);  // thread safe
  bool is_open() const { return open_.load(std::memory_order_acquire); }
  Error close_reason() const;
  Counters counters() const;
  void measure_clock();
  std::optional<ClockOffset> peer_clock() const;
  void admitted() { admitted_.store(true, std::memory_order_release); }

  const std::optional<identity::PeerIdentity>& peer() const { return peer_; }
  const std::string& remote() const { return stream_->remote(); }
  Executor executor() const { return executor_; }

 private:
  struct Outgoing {
    Buffer head;
    SharedBytes payload;
    std::size_t kept = 0;  // of size(): what this session alone keeps
    std::size_t size() const { return head.size() + payload.bytes.size(); }
  };
  struct PongDue {
    std::uint64_t token = 0;
    TimePoint received;  // of a session with a clock
  };
  void spawn(Awaitable<void> task, std::string_view name);
  void task_ended();

  // session_reader.cc
  static Awaitable<void> read_frames(std::shared_ptr<SessionImpl> self);
  Awaitable<Status> read_frame();
  Awaitable<Result<wire::FramePrefix>> read_prefix();
  Awaitable<Result<v1::Envelope>> read_header(std::size_t size);
  Awaitable<void> wait_for_receiver(bool for_payload);
  Awaitable<Result<Buffer>> read_payload(std::size_t size, std::shared_ptr<void>* held);
  Awaitable<std::shared_ptr<PayloadGate::Ticket>> begin_payload(std::size_t size);
  Awaitable<Status> wait_for_memory(PayloadGate::Ticket* ticket, std::size_t bytes);
  PayloadGate::Again wake_reader();
  Status check_stranger(const wire::FramePrefix& prefix);
  Status is_over() const;  // what a wait ended with: go on, or not
  bool take_session_message(const v1::Envelope& header);
  void take_answer(const v1::Pong& pong);
  Error violation(std::string_view label, Error error);  // counted, and the session drains; returns the error

  // session_writer.cc
  static Awaitable<void> write_frames(std::shared_ptr<SessionImpl> self);
  Awaitable<Status> write_next();
  Awaitable<Status> write_out(const Outgoing* out);
  Awaitable<Status> write_control(v1::Envelope header);
  Awaitable<Status> write_pong(PongDue due);
  Awaitable<Status> write_ping(std::uint64_t token);
  bool has_work() const { return pong_due_ || ping_due_ || !outbox_.empty(); }
  Awaitable<Status> say_goodbye();

  // session_monitor.cc
  static Awaitable<void> watch(std::shared_ptr<SessionImpl> self);
  Duration time_to_drain() const;
  void tick(Duration elapsed);
  void check_frame(Duration elapsed);
  void lost(std::string_view label, std::string message);
  void tell_traffic(std::size_t outbox_bytes);
  void ping();
  Duration tick_length() const;

  Error cannot_send(const Error& why);       // on the strand: the session ends, and the log says why
  std::size_t count(const Outgoing& out);    // as queued; how much is
  std::size_t uncount(const Outgoing& out);  // thread safe, both
  void end_unread(std::size_t bytes);
  void end_full();
  void enqueue(Outgoing out);
  void begin_close(Error reason, bool drain);
  void cut();

  const std::unique_ptr<TlsStream> stream_;
  const Executor executor_;
  const std::optional<identity::PeerIdentity> peer_;
  const SessionSettings settings_;
  const wire::FrameLimits limits_;
  const std::shared_ptr<NetHooks> hooks_;

  // Thread safe.
  std::atomic<bool> open_ = true;
  std::atomic<bool> admitted_;
  std::atomic<std::size_t> outbox_bytes_ = 0;       // queued, or posted and not queued yet
  std::shared_ptr<OutboxBudget::Account> account_;  // of what is kept of it; set before anything is queued
  std::atomic<std::uint64_t> frames_in_ = 0;
  std::atomic<std::uint64_t> frames_out_ = 0;
  std::atomic<std::uint64_t> payload_in_ = 0;
  std::atomic<std::uint64_t> payload_out_ = 0;
  mutable std::mutex reason_mutex_;
  Error reason_{Code::kInternal, "still open"};

  // The strand's.
  bool memory_freed_ = false;  // worth another try at the gate
  int tasks_running_ = 0;
  bool closing_ = false;
  bool draining_ = false;
  bool cut_ = false;
  bool writer_gone_ = false;
  std::optional<Error> write_error_;
  AsyncSignal ended_;

  std::optional<Frame> arrived_;  // one frame, for the receiver
  bool receiving_ = false;
  bool reading_paused_ = false;  // no receiver, no room: the peer is not to blame
  AsyncSignal arrival_;
  AsyncSignal demand_;

  std::deque<Outgoing> outbox_;
  std::optional<std::uint64_t> ping_due_;
  std::optional<PongDue> pong_due_;
  AsyncSignal work_;
  AsyncSignal outbox_room_;

  asio::steady_timer monitor_timer_;
  std::optional<FrameProgress> frame_progress_;  // while a frame is coming in
  Stillness in_quiet_;
  Stillness out_quiet_;
  Stillness stuck_;
  Counters told_;  // to the hooks, so far
  std::size_t told_outbox_bytes_ = 0;
  std::uint64_t pings_ = 0;
  std::optional<ClockProbe> probe_;  // when there is a clock to tell
  bool measures_clock_ = false;
  Duration since_ping_{};
};

}  // namespace fluvial::net
