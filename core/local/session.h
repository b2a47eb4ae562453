// One worker's connection at the agent's end. Lives on the server's strand.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "core/local/frame.h"
#include "core/local/message.h"
#include "core/local/socket.h"
#include "core/local/worker_server.h"

namespace fluvial::local {

class Session;

// The server as its sessions see it.
class SessionOwner {
 public:
  virtual ~SessionOwner() = default;
  virtual Status admit(const WorkerInfo& info) const = 0;          // may it attach?
  virtual std::vector<EndedRun> ended_runs() const { return {}; }  // that it is told of when it attaches
  virtual std::vector<ActiveRun> active_runs() const { return {}; }
  virtual void attached(WorkerId worker, const WorkerInfo& info) = 0;
  virtual void ready(WorkerId worker, TaskReady ready) = 0;
  virtual void done(WorkerId worker, TaskResult result) = 0;
  virtual void failed(WorkerId worker, TaskId task, const Error& error) = 0;
  // The last call of a session. `was_attached`: worker_attached() was called for it.
  virtual void ended(WorkerId worker, bool was_attached, const std::string& reason) = 0;
};

// Why a connection ends, to whoever is at its other end: once, without waiting. A socket that does not take it now
// loses it; the reason is in the owner's log.
void say_last(int socket, const v1::LocalMessage& message);

// States: handshake -> idle <-> busy -> ended. Any fault of the peer ends the session with a reason, which the peer is
// told if its socket takes the message.
class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(WorkerId id, boost::asio::any_io_executor strand, UniqueFd socket, Peer peer,
          const WorkerServerOptions& options, std::weak_ptr<SessionOwner> owner);

  void start();
  void tell(const EndedRun& ended);  // does nothing before the worker has attached
  void tell(const ActiveRun& active);
  void tell(const CommittedModel& committed);
  void tell(const RefusedUpdate& refused);  // if it wants to hear of it
  void assign(Task task);                   // the outcome goes to the owner, even if the task is refused
  void end(const Error& reason);            // kAlreadyExists: another has taken its place
  const std::optional<WorkerInfo>& info() const { return info_; }  // once attached

 private:
  using Descriptor = boost::asio::posix::stream_descriptor;
  using Timer = boost::asio::steady_timer;

  Status check_assignable(const Task& task) const;
  Result<std::shared_ptr<const SharedModel>> for_worker(std::shared_ptr<const SharedModel> model) const;
  void wait_readable();
  void on_readable();
  Status on_frame(Frame frame);
  Status on_attach(const v1::Attach& attach);
  Status on_ready(const v1::TaskReady& ready, UniqueFd fd);
  Status on_ranges(const v1::TaskRanges& ranges);
  Status on_done(const v1::TaskDone& done, UniqueFd fd);
  // The common part of the messages about a result.
  struct Brought {
    std::uint64_t weight = 0;
    bool update = false;
    const v1::DeviceMemory* device = nullptr;
    UniqueFd fd = {};
  };
  Status take_result(Brought brought);
  Status take_memory(Brought brought);
  Status on_failed(const v1::TaskFailed& failed);
  Status check_current(std::uint64_t id) const;
  void watch_process();
  void process_ended();
  void send(const v1::LocalMessage& message, std::shared_ptr<const SharedModel> model = nullptr);
  void send(FrameWriter frame);
  void flush();
  void arm(Timer& timer, std::chrono::milliseconds deadline, const char* what);
  void disarm(Timer& timer);

  struct Current {
    TaskId id;
    TaskKind kind;
    round::Schema schema;
    bool has_result = false;  // its memory was sent: one of the two, or both
    std::shared_ptr<const SharedModel> model = {};
    std::shared_ptr<const DeviceMemory> device = {};
    std::uint64_t weight = 0;  // that came with it
    bool update = false;
    round::ByteRanges ready = {};
    std::optional<round::ByteRanges> answered = {};  // that a rank answers for; none: all
  };

  const WorkerId id_;
  const Peer peer_;
  Descriptor socket_;
  Descriptor process_;  // whose connection it is; not open where that cannot be watched
  Timer read_deadline_;
  Timer write_deadline_;
  const WorkerServerOptions& options_;  // the owner's; the owner ends this session before it is destroyed
  std::weak_ptr<SessionOwner> owner_;
  FrameReader reader_{kWorkerMessageBytesMax};
  std::deque<FrameWriter>
      outbox_;            // the answer to Attach, one task, ended runs, models: a peer that does not read is ended
  bool writing_ = false;  // waits for the socket to take more
  bool ended_ = false;
  std::optional<WorkerInfo> info_;  // once attached
  std::optional<Current> current_;
};

}  // namespace fluvial::local
