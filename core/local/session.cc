#include "core/local/session.h"

#include <fmt/format.h>

#include <boost/asio/error.hpp>
#include <utility>

namespace fluvial::local {
namespace asio = boost::asio;
using boost::system::error_code;

Session::Session(WorkerId id, asio::any_io_executor strand, UniqueFd socket, Peer peer,
                 const WorkerServerOptions& options, std::weak_ptr<SessionOwner> owner)
    : id_(id),
      peer_(peer),
      socket_(strand),
      read_deadline_(strand, Timer::time_point::max()),
      write_deadline_(strand, Timer::time_point::max()),
      options_(options),
      owner_(std::move(owner)) {
  socket_.assign(socket.get());  // throws when the reactor takes no more; then `socket` still closes it
  (void)socket.release();
}

void Session::start() {
  arm(read_deadline_, options_.handshake_deadline, "did not attach in time");
  on_readable();
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
  if (frame.fd.valid() && !message.has_task_done()) {
    return Error{Code::kInvalidArgument, "a descriptor with a message that has none"};
  }
  if (!info_) {
    if (!message.has_attach()) return Error{Code::kInvalidArgument, "its first message is not Attach"};
    return on_attach(message.attach());
  }
  switch (message.body_case()) {
    case v1::LocalMessage::kTaskDone: return on_done(message.task_done(), std::move(frame.fd));
    case v1::LocalMessage::kTaskFailed: return on_failed(message.task_failed());
    case v1::LocalMessage::kDetach: return Error{Code::kCancelled, "detached: " + printable(message.detach().reason())};
    default: return Error{Code::kInvalidArgument, "a message that is not a worker's to send"};
  }
}

Status Session::on_attach(const v1::Attach& attach) {
  if (attach.protocol() != kLocalProtocol) {
    return Error{Code::kFailedPrecondition,
                 fmt::format("speaks local protocol {}; this agent speaks {}", attach.protocol(), kLocalProtocol)};
  }
  FLUVIAL_TRY(check_name("worker", attach.worker()));
  FLUVIAL_ASSIGN(const std::string body, encode(attached_message(options_.node), kMessageBytesMax));
  info_ = WorkerInfo{
      .name = attach.worker(), .kind = attach.evaluates() ? TaskKind::kEvaluate : TaskKind::kTrain, .pid = peer_.pid};
  disarm(read_deadline_);
  send(FrameWriter(body));
  if (const auto owner = owner_.lock(); owner && !ended_) owner->attached(id_, *info_);
  return {};
}

// ---- tasks -----------------------------------------------------------------------------------------------------

Status Session::check_current(std::uint64_t id) const {
  if (!current_ || current_->id.value() != id) {
    return Error{Code::kInvalidArgument, fmt::format("answered task {}, which it was not given", id)};
  }
  return {};
}

Status Session::on_done(const v1::TaskDone& done, UniqueFd fd) {
  FLUVIAL_TRY(check_current(done.id()));
  TaskResult result{
      .id = current_->id, .kind = current_->kind, .weight = done.weight(), .metrics = metrics_from(done), .model = {}};
  FLUVIAL_TRY(check_metrics(result.metrics));
  const bool trained = current_->kind == TaskKind::kTrain;
  if (trained != fd.valid()) {
    return Error{Code::kInvalidArgument,
                 trained ? "a trained model without its memfd" : "an evaluation with a descriptor"};
  }
  if (trained != (done.weight() > 0)) {
    return Error{Code::kInvalidArgument, trained ? "a trained model of weight 0" : "an evaluation with a weight"};
  }
  if (trained) {
    FLUVIAL_ASSIGN(result.model, SharedModel::adopt(std::move(fd), current_->model_bytes));
  }
  current_.reset();
  if (const auto owner = owner_.lock()) owner->done(id_, std::move(result));
  return {};
}

Status Session::on_failed(const v1::TaskFailed& failed) {
  FLUVIAL_TRY(check_current(failed.id()));
  const TaskId task = std::exchange(current_, std::nullopt)->id;
  if (const auto owner = owner_.lock()) {
    owner->failed(id_, task, Error{Code::kInternal, printable(failed.message())});
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
  if (!info_ || ended_) return;
  if (const Result<std::string> body = encode(run_ended_message(ended), kMessageBytesMax); body.ok()) {
    send(FrameWriter(*body));
  }
}

void Session::assign(Task task) {
  Status status = check_assignable(task);
  if (status.ok()) {
    const Result<std::string> body = encode(task_message(task), kMessageBytesMax);
    if (body.ok()) {
      current_ = Current{.id = task.id, .kind = task.kind, .model_bytes = task.schema.model_bytes()};
      return send(FrameWriter(*body, std::move(task.model)));
    }
    status = body.error();
  }
  if (const auto owner = owner_.lock()) owner->failed(id_, task.id, status.error());
}

// ---- writing and the end ---------------------------------------------------------------------------------------

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

void Session::end(const Error& reason) {
  if (std::exchange(ended_, true)) return;
  // The peer is told why, once and without waiting: what its socket does not take now it will not learn.
  const bool was_attached = info_.has_value();
  if (outbox_.empty()) {
    const Result<std::string> body =
        encode(was_attached ? detach_message(reason.message) : refused_message(reason), kMessageBytesMax);
    if (body.ok()) (void)FrameWriter(*body).write(socket_.native_handle());
  }
  error_code ignored;
  socket_.close(ignored);
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
