#include "core/local/worker_server.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <boost/asio/post.hpp>
#include <boost/asio/strand.hpp>
#include <boost/system/system_error.hpp>
#include <cerrno>
#include <map>
#include <vector>

#include "core/local/session.h"

namespace fluvial::local {
namespace asio = boost::asio;
using boost::system::error_code;

namespace {
// Out of descriptors: the pause before the next try.
constexpr std::chrono::milliseconds kAcceptPause{100};
}  // namespace

class WorkerServer::Impl final : public SessionOwner, public std::enable_shared_from_this<Impl> {
 public:
  Impl(WorkerServerOptions options, const asio::any_io_executor& executor, UniqueFd listener, ino_t inode,
       std::shared_ptr<WorkerHandler> handler)
      : options_(std::move(options)),
        strand_(asio::make_strand(executor)),
        listener_(strand_),
        pause_(strand_),
        inode_(inode),
        handler_(std::move(handler)) {
    listener_.assign(listener.get());
    (void)listener.release();
  }
  ~Impl() override {
    if (handler_) remove_socket_file(options_.socket, inode_);  // its io_context went without a close()
  }

  const asio::any_io_executor& strand() const { return strand_; }

  void wait_acceptable() {
    listener_.async_wait(asio::posix::stream_descriptor::wait_read, [self = shared_from_this()](error_code error) {
      if (!error) self->accept();
    });
  }

  void assign(WorkerId worker, Task task) {
    if (!handler_) return;  // closed
    std::erase_if(ended_runs_, [&](const EndedRun& ended) { return ended.run == task.run; });
    const auto session = sessions_.find(worker);
    if (session != sessions_.end()) return session->second->assign(std::move(task));
    handler_->task_failed(worker, task.id, Error{Code::kNotFound, fmt::format("worker {} is gone", worker.value())});
  }

  void committed(WorkerId worker, const CommittedModel& model) {
    const auto found = sessions_.find(worker);
    if (found == sessions_.end()) return;
    const std::shared_ptr<Session> session = found->second;  // one that cannot be told ends
    session->tell(model);
  }

  void update_refused(const RefusedUpdate& refused) {
    const std::map<WorkerId, std::shared_ptr<Session>> sessions = sessions_;  // one that cannot be told ends
    for (const auto& [id, session] : sessions) session->tell(refused);
  }

  void run_active(const ActiveRun& active) {
    active_runs_[active.run] = active.name;
    if (active_runs_.size() > kEndedRunsMax) active_runs_.erase(active_runs_.begin());
    const std::map<WorkerId, std::shared_ptr<Session>> sessions = sessions_;  // one that cannot be told ends
    for (const auto& [id, session] : sessions) session->tell(active);
  }

  void run_ended(const EndedRun& ended) {
    active_runs_.erase(ended.run);
    std::erase_if(ended_runs_, [&](const EndedRun& before) { return before.run == ended.run; });
    ended_runs_.push_back(ended);
    if (ended_runs_.size() > kEndedRunsMax) ended_runs_.erase(ended_runs_.begin());
    const std::map<WorkerId, std::shared_ptr<Session>> sessions = sessions_;  // one that cannot be told ends
    for (const auto& [id, session] : sessions) session->tell(ended);
  }

  void close(const std::string& reason) {
    if (!handler_) return;
    error_code ignored;
    listener_.close(ignored);
    pause_.cancel();
    remove_socket_file(options_.socket, inode_);
    const std::map<WorkerId, std::shared_ptr<Session>> sessions = sessions_;
    for (const auto& [id, session] : sessions) session->end(Error{Code::kCancelled, reason});
    handler_.reset();
  }

 private:
  // Processes of that name: one was started anew, and the one before is stuck, or forgotten. Of one process each of its
  // threads may have a connection.
  void replace_others(WorkerId worker, const WorkerInfo& info) {
    const std::map<WorkerId, std::shared_ptr<Session>> sessions = sessions_;
    for (const auto& [id, session] : sessions) {
      const std::optional<WorkerInfo>& other = session->info();
      if (id == worker || !other || !other->named || other->group || other->name != info.name) continue;
      if (other->pid == info.pid && info.pid != 0) continue;
      session->end(Error{Code::kAlreadyExists, fmt::format("another process ({}) has attached as worker {}; each "
                                                           "process that trains needs a name of its own",
                                                           info.pid, info.name)});
    }
  }

  void accept() {
    for (;;) {
      if (!listener_.is_open()) return;  // closed by a handler call meanwhile
      UniqueFd socket(::accept4(listener_.native_handle(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (socket.valid()) {
        take(std::move(socket));
        continue;
      }
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return wait_acceptable();
      handler_->connection_refused(system_error(Code::kResourceExhausted, "accepting a worker").message);
      pause_.expires_after(kAcceptPause);
      return pause_.async_wait([self = shared_from_this()](error_code error) {
        if (!error) self->accept();
      });
    }
  }

  Result<Peer> check_peer(int socket) const {
    FLUVIAL_ASSIGN(const Peer peer, peer_of(socket));
    if (!peer_may_attach(peer.uid, ::geteuid())) {
      return Error{Code::kPermissionDenied, fmt::format("process {} runs as user {}; only user {} and root may attach",
                                                        peer.pid, peer.uid, ::geteuid())};
    }
    if (sessions_.size() >= options_.workers_max) {
      return Error{Code::kResourceExhausted, fmt::format("{} workers are attached already", sessions_.size())};
    }
    return peer;
  }

  void take(UniqueFd socket) {
    const Result<Peer> peer = check_peer(socket.get());
    if (!peer.ok()) {
      say_last(socket.get(), refused_message(peer.error()));
      return handler_->connection_refused(peer.error().message);
    }
    const WorkerId id = next_id_;
    next_id_ = id.next();
    try {
      auto session = std::make_shared<Session>(id, strand_, std::move(socket), *peer, options_, weak_from_this());
      sessions_.emplace(id, session);
      session->start();
    } catch (const boost::system::system_error& error) {
      handler_->connection_refused(error.what());
    }
  }

  Status admit(const WorkerInfo& info) const override {
    if (options_.only && info.kind != *options_.only) {
      return Error{Code::kFailedPrecondition, fmt::format("worker {} attached to {}, and {} has only tasks to {}: {}",
                                                          info.name, task_kind_name(info.kind), options_.node,
                                                          task_kind_name(*options_.only), options_.others_belong)};
    }
    if (!info.group) return {};
    const Group& group = *info.group;
    for (const auto& [id, session] : sessions_) {
      if (!session->info() || !session->info()->group || session->info()->group->name != group.name) continue;
      const Group& other = *session->info()->group;
      if (other.ranks != group.ranks) {
        return Error{Code::kInvalidArgument, fmt::format("group {} has {} ranks, not {}; take another name for another "
                                                         "group",
                                                         group.name, other.ranks, group.ranks)};
      }
      if (other.rank == group.rank) {
        return Error{Code::kAlreadyExists, fmt::format("rank {} of group {} is attached already, as process {}",
                                                       group.rank, group.name, session->info()->pid)};
      }
    }
    return {};
  }
  std::vector<EndedRun> ended_runs() const override { return ended_runs_; }
  std::vector<ActiveRun> active_runs() const override {
    std::vector<ActiveRun> active;
    for (const auto& [run, name] : active_runs_) active.push_back({run, name});
    return active;
  }
  void attached(WorkerId worker, const WorkerInfo& info) override {
    handler_->worker_attached(worker, info);
    if (info.named && !info.group) replace_others(worker, info);  // it can take their task
  }
  void ready(WorkerId worker, TaskReady ready) override { handler_->task_ready(worker, std::move(ready)); }
  void done(WorkerId worker, TaskResult result) override { handler_->task_done(worker, std::move(result)); }
  void failed(WorkerId worker, TaskId task, const Error& error) override { handler_->task_failed(worker, task, error); }
  void ended(WorkerId worker, bool was_attached, const std::string& reason) override {
    sessions_.erase(worker);
    if (was_attached) return handler_->worker_detached(worker, reason);
    handler_->connection_refused(reason);
  }

  const WorkerServerOptions options_;
  asio::any_io_executor strand_;
  asio::posix::stream_descriptor listener_;
  asio::steady_timer pause_;
  const ino_t inode_;
  std::shared_ptr<WorkerHandler> handler_;  // none once closed
  std::map<WorkerId, std::shared_ptr<Session>> sessions_;
  std::vector<EndedRun> ended_runs_;  // the last ones
  std::map<RunId, std::string> active_runs_;
  WorkerId next_id_{1};
};

Result<std::unique_ptr<WorkerServer>> WorkerServer::listen(WorkerServerOptions options, asio::any_io_executor executor,
                                                           std::shared_ptr<WorkerHandler> handler) {
  FLUVIAL_CHECK(options.devices.empty() || options.open_device, "devices without a way to open their memory");
  FLUVIAL_ASSIGN(UniqueFd listener, listen_unix(options.socket));
  FLUVIAL_ASSIGN(const ino_t inode, socket_file_inode(options.socket));
  try {
    auto impl = std::make_shared<Impl>(std::move(options), executor, std::move(listener), inode, std::move(handler));
    asio::post(impl->strand(), [impl] { impl->wait_acceptable(); });
    return std::unique_ptr<WorkerServer>(new WorkerServer(std::move(impl)));
  } catch (const boost::system::system_error& error) {
    return Error{Code::kResourceExhausted, fmt::format("watching the agent's socket: {}", error.what())};
  }
}

WorkerServer::WorkerServer(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
WorkerServer::~WorkerServer() { close(); }

void WorkerServer::assign(WorkerId worker, Task task) {
  FLUVIAL_CHECK(task.model && task.model->bytes().size() == task.schema.model_bytes(),
                "a task's model must fit its schema");
  asio::post(impl_->strand(),
             [impl = impl_, worker, task = std::move(task)]() mutable { impl->assign(worker, std::move(task)); });
}

void WorkerServer::committed(WorkerId worker, CommittedModel model) {
  FLUVIAL_CHECK(model.model, "a committed model without the model");
  asio::post(impl_->strand(), [impl = impl_, worker, model = std::move(model)] { impl->committed(worker, model); });
}

void WorkerServer::update_refused(RefusedUpdate refused) {
  asio::post(impl_->strand(), [impl = impl_, refused = std::move(refused)] { impl->update_refused(refused); });
}

void WorkerServer::run_active(ActiveRun active) {
  asio::post(impl_->strand(), [impl = impl_, active = std::move(active)] { impl->run_active(active); });
}

void WorkerServer::run_ended(EndedRun ended) {
  asio::post(impl_->strand(), [impl = impl_, ended = std::move(ended)] { impl->run_ended(ended); });
}

void WorkerServer::close(std::string reason) {
  asio::post(impl_->strand(), [impl = impl_, reason = std::move(reason)] { impl->close(reason); });
}

}  // namespace fluvial::local
