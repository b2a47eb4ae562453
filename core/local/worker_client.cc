#include "core/local/worker_client.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <thread>

#include "core/local/frame.h"
#include "core/local/message.h"
#include "core/local/socket.h"
#include "core/wire/mapping.h"

namespace fluvial::local {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kAttachDeadline{10'000};
constexpr milliseconds kWriteDeadline{30'000};
constexpr milliseconds kRetryFirst{10};
constexpr milliseconds kRetryMax{500};

Status set_deadline(int fd, int option, milliseconds deadline) {  // 0: none
  timeval value{};
  value.tv_sec = static_cast<time_t>(deadline.count() / 1000);
  value.tv_usec = static_cast<suseconds_t>(deadline.count() % 1000 * 1000);
  if (::setsockopt(fd, SOL_SOCKET, option, &value, sizeof value) != 0) {
    return system_error(Code::kInternal, "a socket's deadline");
  }
  return {};
}

Status write_message(int fd, const v1::LocalMessage& message, std::shared_ptr<const SharedModel> model = nullptr) {
  FLUVIAL_ASSIGN(const std::string body, encode(message, kWorkerMessageBytesMax));
  FrameWriter frame(body, std::move(model));
  FLUVIAL_ASSIGN(const bool written, frame.write(fd));
  if (!written) return Error{Code::kUnavailable, "the agent does not read"};
  return {};
}

struct Received {
  v1::LocalMessage message;
  UniqueFd fd;
};
Result<Received> read_message(int fd) {
  FrameReader reader(kMessageBytesMax);
  FLUVIAL_ASSIGN(const FrameReader::State state, reader.read(fd));
  if (state == FrameReader::State::kEnd) return Error{Code::kUnavailable, "the agent is gone"};
  if (state == FrameReader::State::kPartial) return Error{Code::kDeadlineExceeded, "the agent does not answer"};
  Frame frame = reader.take();
  FLUVIAL_ASSIGN(v1::LocalMessage message, decode(frame.body));
  return Received{.message = std::move(message), .fd = std::move(frame.fd)};
}

}  // namespace

Result<WorkerClient> WorkerClient::attach(const std::filesystem::path& socket, const WorkerOptions& options) {
  FLUVIAL_TRY(check_name("worker", options.name));
  FLUVIAL_ASSIGN(UniqueFd fd, connect_unix(socket));
  FLUVIAL_TRY(set_deadline(fd.get(), SO_SNDTIMEO, kWriteDeadline));
  FLUVIAL_TRY(set_deadline(fd.get(), SO_RCVTIMEO, kAttachDeadline));
  // The agent may have refused and closed already: then reading tells more than writing.
  WorkerOptions own = options;
  own.takes_kept_models = true;
  own.hears_refusals = true;
  const Status written = write_message(fd.get(), attach_message(own));
  Result<Received> answer = read_message(fd.get());
  if (!answer.ok()) return written.ok() ? answer.error() : written.error();
  if (!answer->message.has_attached()) return Error{Code::kInternal, "the agent's first message is no answer"};
  const v1::Attached& attached = answer->message.attached();
  if (const Status verdict = wire::status_from_proto(attached.code(), attached.message()); !verdict.ok()) {
    return Error{verdict.error().code, "the agent refused: " + verdict.error().message};
  }
  FLUVIAL_TRY(set_deadline(fd.get(), SO_RCVTIMEO, milliseconds(0)));
  WorkerClient client(std::move(fd));
  client.node_ = attached.node();
  FLUVIAL_ASSIGN(client.devices_, devices_from(attached));
  for (const v1::RunEnded& ended : attached.ended()) client.ended_.push_back(ended_from(ended));
  return client;
}

Result<WorkerClient> WorkerClient::attach_with_retry(const std::filesystem::path& socket, const WorkerOptions& options,
                                                     milliseconds patience) {
  const steady_clock::time_point end = steady_clock::now() + patience;
  for (milliseconds pause = kRetryFirst;; pause = std::min(pause * 2, kRetryMax)) {
    Result<WorkerClient> client = attach(socket, options);
    if (client.ok() || client.error().code != Code::kUnavailable || steady_clock::now() + pause > end) return client;
    std::this_thread::sleep_for(pause);
  }
}

Result<std::optional<Task>> WorkerClient::next_task() {
  if (current_) return Error{Code::kFailedPrecondition, "the last task has no answer yet"};
  for (;;) {
    FLUVIAL_ASSIGN(std::optional<Event> event, next_event());
    if (!event) return std::optional<Task>();
    if (Task* task = std::get_if<Task>(&*event)) return std::optional<Task>(std::move(*task));
  }
}

Result<std::optional<WorkerClient::Event>> WorkerClient::next_event() {
  if (!fd_.valid()) return Error{Code::kFailedPrecondition, "not attached"};
  FLUVIAL_ASSIGN(Received received, read_message(fd_.get()));
  while (received.message.has_run_active()) {  // whoever waits for a run by its name needs it
    FLUVIAL_ASSIGN(received, read_message(fd_.get()));
  }
  if (received.message.has_detach()) {
    detach_reason_ = printable(received.message.detach().reason());
    fd_.reset();
    return std::optional<Event>();
  }
  if (received.message.has_run_ended()) return std::optional<Event>(ended_from(received.message.run_ended()));
  if (received.message.has_update_refused()) {
    return std::optional<Event>(refused_from(received.message.update_refused()));
  }
  if (received.message.has_committed() && received.fd.valid()) {
    CommittedModel committed = committed_from(received.message.committed());
    FLUVIAL_ASSIGN(committed.model,
                   SharedModel::adopt(std::move(received.fd), received.message.committed().model_bytes()));
    return std::optional<Event>(std::move(committed));
  }
  if (!received.message.has_task() || !received.fd.valid()) {
    return Error{Code::kInternal, "the agent sent neither a task with its model nor a good-bye"};
  }
  FLUVIAL_ASSIGN(Task task, task_from(received.message.task()));
  FLUVIAL_ASSIGN(task.model, SharedModel::adopt(std::move(received.fd), task.schema.model_bytes()));
  current_ = Current{.id = task.id, .kind = task.kind, .model_bytes = task.schema.model_bytes()};
  return std::optional<Event>(std::move(task));
}

Result<MemfdWriter> WorkerClient::new_model() const {
  if (!current_) return Error{Code::kFailedPrecondition, "no task to train a model for"};
  return MemfdWriter::create(current_->model_bytes);
}

Status WorkerClient::answer(const v1::LocalMessage& message, std::shared_ptr<const SharedModel> model) {
  current_.reset();  // even if the agent is gone: next_task() says so
  return write_message(fd_.get(), message, std::move(model));
}

Status WorkerClient::check_trained(std::uint64_t weight, const Metrics& metrics) const {
  if (!current_ || current_->kind != TaskKind::kTrain) {
    return Error{Code::kFailedPrecondition, "a model submitted without a task to train"};
  }
  if (weight == 0) return Error{Code::kInvalidArgument, "a model submitted with weight 0; expected at least 1"};
  return check_metrics(metrics);
}

Status WorkerClient::check_size(std::uint64_t model_bytes) const {
  if (model_bytes == current_->model_bytes) return {};
  return Error{Code::kInvalidArgument,
               fmt::format("a model of {} bytes submitted; the task's has {}", model_bytes, current_->model_bytes)};
}

Result<std::shared_ptr<const SharedModel>> WorkerClient::share(Memory& memory) {
  if (memory.host != nullptr) FLUVIAL_TRY(check_size(memory.host->size_bytes()));
  std::shared_ptr<const SharedModel> shared;
  if (current_->sent) {
    memory.device.reset();
    return shared;
  }
  if (memory.host != nullptr) {
    FLUVIAL_ASSIGN(shared, memory.host->share());
  }
  current_->sent = true;
  return shared;
}

Status WorkerClient::submit_in(Memory memory, TaskResult result) {
  FLUVIAL_TRY(check_trained(result.weight, result.metrics));
  result.id = current_->id;
  FLUVIAL_ASSIGN(std::shared_ptr<const SharedModel> shared, share(memory));
  for (const v1::LocalMessage& message : ranges_messages(result.id, result.ranges)) {
    FLUVIAL_TRY(write_message(fd_.get(), message));
  }
  return answer(done_message(result, memory.device), std::move(shared));
}

Status WorkerClient::ready_in(Memory memory, const round::ByteRanges& ranges, std::uint64_t weight, bool update) {
  FLUVIAL_TRY(check_trained(weight, {}));
  FLUVIAL_ASSIGN(std::shared_ptr<const SharedModel> shared, share(memory));
  const TaskReady ready{.id = current_->id, .weight = weight, .update = update, .ranges = ranges};
  return write_message(fd_.get(), ready_message(ready, memory.device), std::move(shared));
}

Status WorkerClient::submit(MemfdWriter model, std::uint64_t weight, const Metrics& metrics) {
  FLUVIAL_TRY(check_trained(weight, metrics));
  FLUVIAL_TRY(check_size(model.span().size()));
  FLUVIAL_ASSIGN(std::shared_ptr<const SharedModel> sealed, std::move(model).seal());
  return answer(done_message({.id = current_->id, .weight = weight, .metrics = metrics}), std::move(sealed));
}

Status WorkerClient::submit(const ResultBuffer& buffer, TaskResult result) {
  return submit_in({.host = &buffer}, std::move(result));
}

Status WorkerClient::ready(const ResultBuffer& buffer, const round::ByteRanges& ranges, std::uint64_t weight,
                           bool update) {
  return ready_in({.host = &buffer}, ranges, weight, update);
}

Status WorkerClient::submit(const DeviceLocation& values, const ResultBuffer* integers, TaskResult result) {
  return submit_in({.host = integers, .device = values}, std::move(result));
}

Status WorkerClient::ready(const DeviceLocation& values, const ResultBuffer* integers, const round::ByteRanges& ranges,
                           std::uint64_t weight, bool update) {
  return ready_in({.host = integers, .device = values}, ranges, weight, update);
}

Status WorkerClient::submit_evaluation(const Metrics& metrics) {
  if (!current_ || current_->kind != TaskKind::kEvaluate) {
    return Error{Code::kFailedPrecondition, "an evaluation submitted without a task to evaluate"};
  }
  FLUVIAL_TRY(check_metrics(metrics));
  return answer(done_message({.id = current_->id, .kind = TaskKind::kEvaluate, .metrics = metrics}), nullptr);
}

Status WorkerClient::fail(const std::string& message) {
  if (!current_) return Error{Code::kFailedPrecondition, "no task to fail"};
  return answer(failed_message(current_->id, message), nullptr);
}

Status WorkerClient::detach(const std::string& reason) {
  if (!fd_.valid()) return {};
  const UniqueFd fd = std::move(fd_);
  current_.reset();
  return write_message(fd.get(), detach_message(reason));
}

}  // namespace fluvial::local
