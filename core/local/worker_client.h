// A worker's end of the local protocol, for trainers in C++: blocking, one thread at a time, no Asio.
//
//   FLUVIAL_ASSIGN(WorkerClient client, WorkerClient::attach_with_retry(socket, {"trainer-0", TaskKind::kTrain}, 30s));
//   for (;;) {
//     FLUVIAL_ASSIGN(std::optional<Task> task, client.next_task());
//     if (!task) break;                                        // the agent is done with us
//     FLUVIAL_ASSIGN(MemfdWriter trained, client.new_model());  // as large as the task's model
//     ... read task->model->bytes(), write trained.span() ...
//     FLUVIAL_TRY(client.submit(std::move(trained), samples, {{"loss", loss}}));
//   }
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/base/result.h"
#include "core/local/fd.h"
#include "core/local/task.h"

namespace fluvial::v1 {
class LocalMessage;
}

namespace fluvial::local {

class WorkerClient {
 public:
  // kUnavailable: nobody listens there (yet); any other code is the agent's refusal or a broken path.
  static Result<WorkerClient> attach(const std::filesystem::path& socket, const WorkerOptions& options);
  // Tries again, 10 ms to half a second apart, as long as nobody listens and `patience` lasts.
  static Result<WorkerClient> attach_with_retry(const std::filesystem::path& socket, const WorkerOptions& options,
                                                std::chrono::milliseconds patience);

  const std::string& node() const { return node_; }                    // the agent's name
  const std::vector<DeviceUuid>& devices() const { return devices_; }  // whose memory it takes results from

  const std::vector<EndedRun>& ended() const { return ended_; }  // runs that had ended before it attached

  // Blocks until the agent sends something. None: as for next_task().
  using Event = std::variant<Task, CommittedModel, EndedRun, RefusedUpdate>;
  Result<std::optional<Event>> next_event();

  // Blocks until there is a task, and skips everything else. None: the agent detached this worker (detach_reason() says
  // why). kUnavailable: the agent ended without a message; attaching again may help. kFailedPrecondition: the last task
  // has no answer yet.
  Result<std::optional<Task>> next_task();
  const std::string& detach_reason() const { return detach_reason_; }

  // Exactly one of these answers a task. A submit for an evaluation, or the reverse: kFailedPrecondition. After
  // kUnavailable next_task() tells whether the agent detached us or is gone.
  Result<MemfdWriter> new_model() const;  // as large as the current task's model
  Status submit(MemfdWriter model, std::uint64_t weight, const Metrics& metrics);
  Status submit_evaluation(const Metrics& metrics);
  // The same from memory that the worker keeps: it must not be written again before the next task. `result` holds the
  // rest (weight, metrics, whether it is an update, a rank's ranges); its id, kind and model are filled in here.
  Status submit(const ResultBuffer& buffer, TaskResult result);
  // These ranges of the buffer are in place already, with that weight and kind.
  Status ready(const ResultBuffer& buffer, const round::ByteRanges& ranges, std::uint64_t weight, bool update = false);
  // The same with the averaged values in the memory of one of devices(), where they are in place when this is called.
  // `integers`: a buffer as large as the model for its integer tensors, if it has any; nothing else of it counts.
  Status submit(const DeviceLocation& values, const ResultBuffer* integers, TaskResult result);
  Status ready(const DeviceLocation& values, const ResultBuffer* integers, const round::ByteRanges& ranges,
               std::uint64_t weight, bool update = false);
  Status fail(const std::string& message);

  Status detach(const std::string& reason);  // says good-bye and closes

 private:
  // The memory that holds a result.
  struct Memory {
    const ResultBuffer* host = nullptr;
    std::optional<DeviceLocation> device = {};
  };
  Status submit_in(Memory memory, TaskResult result);
  Status ready_in(Memory memory, const round::ByteRanges& ranges, std::uint64_t weight, bool update);
  // The memfd for the next message about the result; null, with no location either, once a message has brought them.
  Result<std::shared_ptr<const SharedModel>> share(Memory& memory);
  Status answer(const v1::LocalMessage& message, std::shared_ptr<const SharedModel> model);
  Status check_trained(std::uint64_t weight, const Metrics& metrics) const;
  Status check_size(std::uint64_t model_bytes) const;
  explicit WorkerClient(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
  std::string node_;
  std::vector<DeviceUuid> devices_;
  std::vector<EndedRun> ended_;
  std::string detach_reason_;
  struct Current {
    TaskId id;
    TaskKind kind;
    std::uint64_t model_bytes;
    bool sent = false;  // its result's memory
  };
  std::optional<Current> current_;
};

}  // namespace fluvial::local
