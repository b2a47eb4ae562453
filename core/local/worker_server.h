// The agent's end of the local protocol: workers on this machine attach over a Unix socket and are given tasks.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/local/task.h"

namespace fluvial::local {

struct WorkerInfo {
  std::string name;
  TaskKind kind = TaskKind::kTrain;  // what it can be asked
  std::int64_t pid = 0;
  std::optional<Group> group = {};
  bool wants_models = false;
  bool takes_kept_models = false;
  bool hears_refusals = false;
  std::vector<RunId> follows = {};  // as in WorkerOptions
  bool named = false;               // likewise
};

// Called on the server's strand, one call at a time. After worker_attached() exactly one worker_detached(); every task
// given to assign() has exactly one outcome, task_done() or task_failed(), and it comes before the worker_detached().
class WorkerHandler {
 public:
  virtual ~WorkerHandler() = default;
  virtual void worker_attached(WorkerId worker, const WorkerInfo& info) = 0;
  virtual void worker_detached(WorkerId worker, const std::string& reason) = 0;
  // Part of a task's result is in place; more may follow, and then the outcome. A handler that does not reduce early
  // may ignore this.
  virtual void task_ready(WorkerId, TaskReady) {}
  virtual void task_done(WorkerId worker, TaskResult result) = 0;
  // kUnavailable: the worker went away; kFailedPrecondition: busy or of the other kind; kNotFound: no such worker;
  // kInternal: the worker reports a failure; kInvalidArgument: the schema does not fit into a message.
  virtual void task_failed(WorkerId worker, TaskId task, const Error& error) = 0;
  // A connection that never attached, in one line: another user's, too many, garbage, too slow.
  virtual void connection_refused(const std::string& reason) = 0;
};

struct WorkerServerOptions {
  std::filesystem::path socket;  // made with mode 0600; its folder is made (0700) when missing
  std::string node;              // the agent's name, told to workers
  std::size_t workers_max = 64;  // connections, attached or not; one more is refused
  // The kind of workers that this agent has tasks for; one of the other kind is refused, and told `others_belong`:
  // where it would be given work. None: both.
  std::optional<TaskKind> only = {};
  std::string others_belong = {};
  std::chrono::milliseconds handshake_deadline{10'000};
  std::chrono::milliseconds message_deadline{30'000};  // from a message's first byte to its last, either way
  // GPUs from whose memory results are taken. `open_device` is called on the server's strand, once for each result
  // there.
  std::vector<DeviceUuid> devices = {};
  OpenDevice open_device = {};
};

class WorkerServer {
 public:
  // Listens. A socket file that nobody listens on is replaced. kAlreadyExists: somebody listens there, or the path is
  // no socket; kInvalidArgument: the path is too long for a Unix socket (107 bytes). Handler calls run on a strand of
  // `executor` (on that strand itself when the executor is one).
  static Result<std::unique_ptr<WorkerServer>> listen(WorkerServerOptions options,
                                                      boost::asio::any_io_executor executor,
                                                      std::shared_ptr<WorkerHandler> handler);
  ~WorkerServer();  // close()
  WorkerServer(const WorkerServer&) = delete;
  WorkerServer& operator=(const WorkerServer&) = delete;

  // These may be called from any thread, also from within a handler call; they act a moment later, on the strand.
  void assign(WorkerId worker, Task task);                // one task at a time for each worker
  void committed(WorkerId worker, CommittedModel model);  // tells the worker; does nothing when it is gone
  void update_refused(RefusedUpdate refused);             // every attached worker that wants to hear of it is told
  // Every attached worker is told, and who attaches later as it does, until its end: of the newest kEndedRunsMax.
  void run_active(ActiveRun active);
  // Every attached worker is told, and who attaches later as it does: of the last kEndedRunsMax runs, unless a task of
  // that run was assigned since.
  void run_ended(EndedRun ended);
  // Detaches everybody with `reason`, stops listening and removes the socket file; then the handler is released.
  void close(std::string reason = "the agent ends");

 private:
  class Impl;
  explicit WorkerServer(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace fluvial::local
