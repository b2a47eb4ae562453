// Shared by the room's tests: a server on a thread, a handler that records its calls,
// and a peer that may send anything.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <cstring>
#include <filesystem>
#include <functional>
#include <thread>

#include "core/base/testing.h"
#include "core/local/frame.h"
#include "core/local/message.h"
#include "core/local/socket.h"
#include "core/local/worker_server.h"

namespace fluvial::local {

inline std::size_t open_fds() {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) count += entry.path().empty() ? 0 : 1;
  return count;
}

// Everything the server said.
struct Seen {
  std::map<WorkerId, WorkerInfo> attached;
  std::map<WorkerId, std::string> detached;
  std::map<TaskId, std::vector<TaskReady>> ready;
  std::map<TaskId, TaskResult> done;
  std::map<TaskId, Error> failed;
  std::vector<std::string> refused;
};

// Writes it down. Thread safe.
class Recorder final : public WorkerHandler {
 public:
  void worker_attached(WorkerId worker, const WorkerInfo& info) override {
    seen_.change([&](Seen& seen) { seen.attached[worker] = info; });
  }
  void worker_detached(WorkerId worker, const std::string& reason) override {
    seen_.change([&](Seen& seen) { seen.detached[worker] = reason; });
  }
  void task_ready(WorkerId, TaskReady ready) override {
    seen_.change([&](Seen& seen) { seen.ready[ready.id].push_back(std::move(ready)); });
  }
  void task_done(WorkerId, TaskResult result) override {
    seen_.change([&](Seen& seen) { seen.done[result.id] = std::move(result); });
  }
  void task_failed(WorkerId, TaskId task, const Error& error) override {
    seen_.change([&](Seen& seen) { seen.failed.insert_or_assign(task, error); });
  }
  void connection_refused(const std::string& reason) override {
    seen_.change([&](Seen& seen) { seen.refused.push_back(reason); });
  }

  void wait(const std::function<bool(const Seen&)>& holds) { seen_.wait(holds); }
  Seen seen() { return seen_.copy(); }

 private:
  Watched<Seen> seen_;
};

// A server whose strand runs on a thread of its own.
class Agent {
 public:
  explicit Agent(std::function<void(WorkerServerOptions&)> adjust = [](WorkerServerOptions&) {}) {
    WorkerServerOptions options{.socket = folder_ / "run/agent.sock", .node = "hospital-a"};
    adjust(options);
    socket_ = options.socket;
    Result<std::unique_ptr<WorkerServer>> started = WorkerServer::listen(options, context_.get_executor(), recorder_);
    EXPECT_TRUE(started.ok()) << started.error().to_string();
    server_ = std::move(started).value();
    thread_ = std::thread([this] { context_.run(); });
  }
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;
  ~Agent() { stop(); }
  void stop() {  // returns when the server has let everything go
    server_.reset();
    if (thread_.joinable()) thread_.join();
  }

  const std::filesystem::path& socket() const { return socket_; }
  WorkerServer& server() { return *server_; }
  Recorder& recorder() { return *recorder_; }
  WorkerId worker(std::string_view name) {  // once it has attached
    WorkerId found;
    recorder_->wait([&](const Seen& seen) {
      for (const auto& [id, info] : seen.attached) {
        if (info.name == name && !seen.detached.contains(id)) found = id;
      }
      return found.value() != 0;
    });
    return found;
  }

 private:
  TemporaryFolder folder_;
  std::filesystem::path socket_;
  boost::asio::io_context context_;
  std::shared_ptr<Recorder> recorder_ = std::make_shared<Recorder>();
  std::unique_ptr<WorkerServer> server_;
  std::thread thread_;
};

inline Task train_task(std::uint64_t id, std::uint64_t values = 4) {
  Task task{.id = TaskId(id),
            .run = RunId(3),
            .run_name = "digits",
            .round = RoundId(7),
            .version = ModelVersion(6),
            .local_steps = 20,
            .optimizer = "fedavg"};
  task.schema = round::Schema::make({{"w", round::DType::kF32, {values}}}).value();
  Buffer bytes(task.schema.model_bytes());
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes.data()[i] = static_cast<std::byte>(i);
  task.model = SharedModel::copy_of(bytes.span()).value();
  task.config = {
      {"learning_rate", 0.1}, {"nesterov", true}, {"network", "small"}, {"widths", std::vector<double>{8, 16}}};
  return task;
}

// A task with a long message: `tensors` tensors, each with a long name.
inline Task long_task(std::uint64_t id, int tensors, std::size_t name_bytes) {
  std::vector<round::Tensor> list{{"w", round::DType::kF32, {1}}};
  for (int i = 0; i < tensors; ++i) {
    list.push_back({std::string(name_bytes, 'x') + std::to_string(i), round::DType::kU8, {1}});
  }
  Task task = train_task(id);
  task.schema = round::Schema::make(std::move(list)).value();
  const std::string bytes(task.schema.model_bytes(), 'm');
  task.model = SharedModel::copy_of(as_byte_span(bytes)).value();
  return task;
}

// A peer that speaks the framing and nothing else.
class RawPeer {
 public:
  explicit RawPeer(const std::filesystem::path& socket) : fd_(connect_unix(socket).value()) {}

  void send(const v1::LocalMessage& message, const std::vector<int>& fds = {}) {
    send_bytes(framed(message.SerializeAsString()), fds);
  }
  void send_bytes(std::string_view bytes, const std::vector<int>& fds = {}) {
    std::vector<char> control(CMSG_SPACE(sizeof(int) * fds.size()));
    std::string copy(bytes);
    iovec part{.iov_base = copy.data(), .iov_len = copy.size()};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    if (!fds.empty()) {
      header.msg_control = control.data();
      header.msg_controllen = control.size();
      cmsghdr* const rights = CMSG_FIRSTHDR(&header);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
      std::memcpy(CMSG_DATA(rights), fds.data(), sizeof(int) * fds.size());
    }
    (void)::sendmsg(fd_.get(), &header, MSG_NOSIGNAL);  // the server may have ended us already
  }
  // The next message; one without a body when the server closed.
  v1::LocalMessage receive(UniqueFd* fd = nullptr) {
    FrameReader reader(kMessageBytesMax);
    const Result<FrameReader::State> state = reader.read(fd_.get());
    if (!state.ok() || *state != FrameReader::State::kComplete) return {};
    Frame frame = reader.take();
    if (fd != nullptr) *fd = std::move(frame.fd);
    return decode(frame.body).value();
  }
  void attach(std::string_view name, TaskKind kind = TaskKind::kTrain) {
    send(attach_message({.name = std::string(name), .kind = kind}));
    EXPECT_EQ(receive().attached().node(), "hospital-a");
  }
  void close() { fd_.reset(); }

  static std::string framed(std::string_view body) {
    std::string bytes(4, '\0');
    store_le<std::uint32_t>(std::as_writable_bytes(std::span(bytes)).data(), static_cast<std::uint32_t>(body.size()));
    return bytes.append(body);
  }

 private:
  UniqueFd fd_;
};

}  // namespace fluvial::local
