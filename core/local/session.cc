#include "core/local/session.h"

#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/error.hpp>
#include <cerrno>
#include <utility>

namespace fluvial::local {
namespace asio = boost::asio;
using boost::system::error_code;

Session::Session(WorkerId id, asio::any_io_executor strand, UniqueFd socket, Peer peer,
                 const WorkerServerOptions& options, std::weak_ptr<SessionOwner> owner)
    : id_(id),
      peer_(peer),
      socket_(strand),
      process_(strand),
      read_deadline_(strand, Timer::time_point::max()),
      write_deadline_(strand, Timer::time_point::max()),
      options_(options),
      owner_(std::move(owner)) {
  socket_.assign(socket.get());  // throws when the reactor takes no more; then `socket` still closes it
  (void)socket.release();
}

void Session::start() {
  arm(read_deadline_, options_.handshake_deadline, "did not attach in time");
  watch_process();
  if (!ended_) on_readable();
}

// A fork of a process that was killed may hold its connection open, and answers nothing. Of a process in another
// namespace, and by a kernel before 5.3, the connection's end is all that is known.
void Session::watch_process() {
  UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, peer_.pid, 0)));
  if (!process.valid()) {
    if (errno == ESRCH) process_ended();
    return;
  }
  process_.assign(process.get());
  (void)process.release();
  process_.async_wait(Descriptor::wait_read, [self = shared_from_this()](error_code error) {
    if (!error) self->process_ended();
  });
}

void Session::process_ended() {
  if (!ended_) on_readable();  // what it said last
  end(Error{Code::kUnavailable, fmt::format("its process {} has ended", peer_.pid)});
}

// ---- deadlines -------------------------------------------------------------------------------------------------

void Session::arm(Timer& timer, std::chrono::milliseconds deadline, const char* what) {
  timer.expires_after(deadline);
  timer.async_wait([self = shared_from_this(), &timer, what](error_code error) {
    // A handler that was queued already when its deadline was moved finds the later expiry.
    if (error || timer.expiry() > Timer::clock_type::now()) return;
    self->end(Error{Code::kDeadlineExceeded, what});
  });
}

void Session::disarm(Timer& timer) { timer.expires_at(Timer::time_point::max()); }

// ---- reading ---------------------------------------------------------------------------------------------------

void Session::wait_readable() {
  socket_.async_wait(Descriptor::wait_read, [self = shared_from_this()](error_code error) {
    if (!error) self->on_readable();
  });
}

void Session::on_readable() {
  while (!ended_) {
    const bool had_started = reader_.started();
    const Result<FrameReader::State> state = reader_.read(socket_.native_handle());
    if (!state.ok()) return end(state.error());
    switch (*state) {
      case FrameReader::State::kEnd: return end(Error{Code::kUnavailable, "closed its connection"});
      case FrameReader::State::kPartial:
        if (info_ && reader_.started() && !had_started) {
          arm(read_deadline_, options_.message_deadline, "did not finish a message in time");
        }
        return wait_readable();
      case FrameReader::State::kComplete:
        if (info_) disarm(read_deadline_);
        if (const Status handled = on_frame(reader_.take()); !handled.ok()) return end(handled.error());
    }
  }
}

Status Session::on_frame(Frame frame) {
  FLUVIAL_ASSIGN(const v1::LocalMessage message, decode(frame.body));
  if (frame.fd.valid() && !message.has_task_done() && !message.has_task_ready()) {
    return Error{Code::kInvalidArgument, "a descriptor with a message that has none"};
  }
  if (!info_) {
    if (!message.has_attach()) return Error{Code::kInvalidArgument, "its first message is not Attach"};
    return on_attach(message.attach());
  }
  switch (message.body_case()) {
    case v1::LocalMessage::kTaskReady: return on_ready(message.task_ready(), std::move(frame.fd));
    case v1::LocalMessage::kTaskRanges: return on_ranges(message.task_ranges());
    case v1::LocalMessage::kTaskDone: return on_done(message.task_done(), std::move(frame.fd));
    case v1::LocalMessage::kTaskFailed: return on_failed(message.task_failed());
    case v1::LocalMessage::kDetach: return Error{Code::kCancelled, "detached: " + printable(message.detach().reason())};
    default: return Error{Code::kInvalidArgument, "a message that is not a worker's to send"};
  }
}

Status Session::on_attach(const v1::Attach& attach) {
  FLUVIAL_ASSIGN(WorkerOptions worker, worker_from(attach));
  const auto owner = owner_.lock();
  if (!owner) return Error{Code::kCancelled, "the agent ends"};
  const v1::LocalMessage answer =
      attached_message(options_.node, options_.devices, owner->ended_runs(), owner->active_runs());
  WorkerInfo info{std::move(worker.name),
                  worker.kind,
                  peer_.pid,
                  std::move(worker.group),
                  worker.wants_models,
                  worker.takes_kept_models,
                  worker.hears_refusals,
                  std::move(worker.follows),
                  worker.named};
  FLUVIAL_TRY(owner->admit(info));
  info_ = std::move(info);
  disarm(read_deadline_);
  send(answer);
  if (!ended_) owner->attached(id_, *info_);
  return {};
}

// ---- tasks -----------------------------------------------------------------------------------------------------

Status Session::check_current(std::uint64_t id) const {
  if (!current_ || current_->id.value() != id) {
    return Error{Code::kInvalidArgument, fmt::format("answered task {}, which it was not given", id)};
  }
  return {};
}

// A task's first message about its result brings the result's memory; later messages must agree with it.
Status Session::take_result(Brought brought) {
  if (brought.weight == 0) return Error{Code::kInvalidArgument, "a result of weight 0"};
  if (current_->has_result) {
    if (brought.fd.valid()) return Error{Code::kInvalidArgument, "a second descriptor for one result"};
    if (brought.device != nullptr) return Error{Code::kInvalidArgument, "device memory for a result that has some"};
    if (brought.weight != current_->weight || brought.update != current_->update) {
      return Error{Code::kInvalidArgument, "a weight or kind of result that is not the one announced before"};
    }
    return {};
  }
  current_->weight = brought.weight;
  current_->update = brought.update;
  FLUVIAL_TRY(take_memory(std::move(brought)));
  current_->has_result = true;
  return {};
}

Status Session::take_memory(Brought brought) {
  const round::Schema& schema = current_->schema;
  const bool needs_model = brought.device == nullptr || !schema.all_averaged();
  if (needs_model && !brought.fd.valid()) return Error{Code::kInvalidArgument, "a result without its memfd"};
  if (!needs_model && brought.fd.valid()) {
    return Error{Code::kInvalidArgument, "a descriptor for a result that lies in a device's memory alone"};
  }
  if (brought.device != nullptr) {
    FLUVIAL_ASSIGN(const DeviceLocation at, device_from(*brought.device));
    if (std::ranges::find(options_.devices, at.device) == options_.devices.end()) {
      return Error{Code::kInvalidArgument,
                   fmt::format("a result in the memory of {}, from which this agent takes none", to_string(at.device))};
    }
    FLUVIAL_ASSIGN(current_->device, options_.open_device(at, schema.value_count()));
  }
  if (needs_model) {
    FLUVIAL_ASSIGN(current_->model, SharedModel::adopt(std::move(brought.fd), schema.model_bytes(), Seals::kSize));
  }
  return {};
}

Status Session::on_ready(const v1::TaskReady& ready, UniqueFd fd) {
  FLUVIAL_TRY(check_current(ready.id()));
  if (current_->kind != TaskKind::kTrain) return Error{Code::kInvalidArgument, "an evaluation has no ranges"};
  FLUVIAL_TRY(
      take_result({ready.weight(), ready.update(), ready.has_device() ? &ready.device() : nullptr, std::move(fd)}));
  TaskReady told{.id = current_->id,
                 .weight = ready.weight(),
                 .update = ready.update(),
                 .model = current_->model,
                 .device = current_->device};
  FLUVIAL_TRY(add_ranges(ready.ranges(), current_->schema, told.ranges));
  FLUVIAL_TRY(add_ranges(ready.ranges(), current_->schema, current_->ready));
  if (const auto owner = owner_.lock()) owner->ready(id_, std::move(told));
  return {};
}

Status Session::on_ranges(const v1::TaskRanges& ranges) {
  FLUVIAL_TRY(check_current(ranges.id()));
  if (!info_->group) return Error{Code::kInvalidArgument, "ranges of a worker in no group"};
  if (!current_->answered) current_->answered.emplace();
  return append_ranges(ranges, current_->schema, *current_->answered);
}

Status Session::on_done(const v1::TaskDone& done, UniqueFd fd) {
  FLUVIAL_TRY(check_current(done.id()));
  TaskResult result{.id = current_->id,
                    .kind = current_->kind,
                    .weight = done.weight(),
                    .metrics = metrics_from(done),
                    .update = done.update(),
                    .model = {}};
  FLUVIAL_TRY(check_metrics(result.metrics));
  if (current_->kind == TaskKind::kTrain) {
    FLUVIAL_TRY(
        take_result({done.weight(), done.update(), done.has_device() ? &done.device() : nullptr, std::move(fd)}));
    result.ranges =
        current_->answered ? std::move(*current_->answered) : round::ByteRanges::whole(current_->schema.model_bytes());
    if (!result.ranges.covers(current_->ready)) {
      return Error{Code::kInvalidArgument, "announced bytes that it does not answer for"};
    }
    result.model = current_->model;
    result.device = current_->device;
  } else if (fd.valid() || done.has_device() || done.weight() > 0 || done.update()) {
    return Error{Code::kInvalidArgument, "an evaluation with a descriptor, device memory or a weight"};
  }
  current_.reset();
  if (const auto owner = owner_.lock()) owner->done(id_, std::move(result));
  return {};
}

Status Session::on_failed(const v1::TaskFailed& failed) {
  FLUVIAL_TRY(check_current(failed.id()));
  const TaskId task = std::exchange(current_, std::nullopt)->id;
  if (const auto owner = owner_.lock()) {
    const std::string reason = failed.message().empty() ? "it says no reason" : printable(failed.message());
    owner->failed(id_, task, Error{Code::kInternal, reason});
  }
  return {};
}

Status Session::check_assignable(const Task& task) const {
  if (!info_) return Error{Code::kNotFound, "this worker has not attached yet"};
  if (info_->kind != task.kind) {
    return Error{Code::kFailedPrecondition,
                 fmt::format("worker {} cannot be asked to {}", info_->name, task_kind_name(task.kind))};
  }
  if (current_) {
    return Error{Code::kFailedPrecondition,
                 fmt::format("worker {} is busy with task {}", info_->name, current_->id.value())};
  }
  return {};
}

void Session::tell(const EndedRun& ended) {
  if (info_ && !ended_) send(run_ended_message(ended));
}

void Session::tell(const ActiveRun& active) {
  if (info_ && !ended_) send(run_active_message(active));
}

void Session::tell(const RefusedUpdate& refused) {
  if (info_ && !ended_ && info_->hears_refusals) send(update_refused_message(refused));
}

// A worker of an earlier version takes only memory that nobody can ever write to again.
Result<std::shared_ptr<const SharedModel>> Session::for_worker(std::shared_ptr<const SharedModel> model) const {
  if (model == nullptr || !model->is_kept() || info_->takes_kept_models) return model;
  return SharedModel::copy_of(model->bytes());
}

void Session::tell(const CommittedModel& committed) {
  if (!info_ || ended_) return;
  Result<std::shared_ptr<const SharedModel>> model = for_worker(committed.model);
  if (!model.ok()) return end(model.error());
  send(committed_message(committed), std::move(*model));
}

void Session::assign(Task task) {
  Status status = check_assignable(task);
  if (status.ok()) {
    const Result<std::string> body = encode(task_message(task), kMessageBytesMax);
    Result<std::shared_ptr<const SharedModel>> model = for_worker(task.model);
    if (body.ok() && model.ok()) {
      current_ = Current{.id = task.id, .kind = task.kind, .schema = std::move(task.schema)};
      return send(FrameWriter(*body, std::move(*model)));
    }
    status = body.ok() ? model.error() : body.error();
  }
  if (const auto owner = owner_.lock()) owner->failed(id_, task.id, status.error());
}

// ---- writing and the end ---------------------------------------------------------------------------------------

void Session::send(const v1::LocalMessage& message, std::shared_ptr<const SharedModel> model) {
  const Result<std::string> body = encode(message, kMessageBytesMax);
  if (!body.ok()) return end(body.error());
  send(FrameWriter(*body, std::move(model)));
}

void Session::send(FrameWriter frame) {
  outbox_.push_back(std::move(frame));
  if (!writing_) flush();
}

void Session::flush() {
  while (!outbox_.empty()) {
    const Result<bool> written = outbox_.front().write(socket_.native_handle());
    if (!written.ok()) return end(written.error());
    if (!*written) {
      if (!std::exchange(writing_, true)) {
        arm(write_deadline_, options_.message_deadline, "did not read a message in time");
      }
      socket_.async_wait(Descriptor::wait_write, [self = shared_from_this()](error_code error) {
        if (!error && !self->ended_) self->flush();
      });
      return;
    }
    outbox_.pop_front();
    if (std::exchange(writing_, false)) disarm(write_deadline_);
  }
}

void say_last(int socket, const v1::LocalMessage& message) {
  const Result<std::string> body = encode(message, kMessageBytesMax);
  FLUVIAL_CHECK(body.ok(), "a reason that does not fit a message");  // printable() has cut it
  (void)FrameWriter(*body).write(socket);  // the connection ends either way, and its owner knows why
}

void Session::end(const Error& reason) {
  if (std::exchange(ended_, true)) return;
  const bool was_attached = info_.has_value();
  if (outbox_.empty()) {
    const bool is_replaced = reason.code == Code::kAlreadyExists;
    say_last(socket_.native_handle(),
             was_attached ? detach_message(reason.message, is_replaced) : refused_message(reason));
  }
  error_code ignored;
  socket_.close(ignored);
  process_.close(ignored);
  read_deadline_.cancel();
  write_deadline_.cancel();
  const auto owner = owner_.lock();
  if (!owner) return;
  if (current_) {
    const TaskId task = std::exchange(current_, std::nullopt)->id;
    owner->failed(id_, task, Error{Code::kUnavailable, fmt::format("worker {}: {}", info_->name, reason.message)});
  }
  owner->ended(id_, was_attached,
               was_attached ? reason.message : fmt::format("process {}: {}", peer_.pid, reason.message));
}

}  // namespace fluvial::local
