// The local protocol at an agent. Messages of any content: what is read is written and read again as the same, names
// and numbers within their bounds. And a worker that says anything, in any order, with any descriptors, at a session of
// its own: each task has one outcome, a result is memory of the model's size with ranges within it, the end comes once
// and with a reason, and no descriptor stays behind.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <bitset>
#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/local/message.h"
#include "core/local/session.h"
#include "core/wire/silence.h"
#include "tests/fuzz/errors.h"
#include "tests/fuzz/input.h"

namespace fluvial::fuzz {
namespace {

using namespace local;  // NOLINT(google-build-using-namespace): the room under test

// ---- messages ----------------------------------------------------------------------------------------------------

void check_worker(const v1::Attach& attach) {
  const Result<WorkerOptions> worker = worker_from(attach);
  check_error(worker);
  if (!worker.ok()) return;
  FLUVIAL_CHECK(is_printable(worker->name) && worker->name.size() <= kNameBytesMax, "a name for a log line");
  if (worker->group) FLUVIAL_CHECK(worker->group->rank < worker->group->ranks, "a rank beyond the last");
  const auto again = worker_from(attach_message(*worker).attach());
  FLUVIAL_CHECK(again.ok() && again->name == worker->name && again->kind == worker->kind &&
                    again->group == worker->group && again->wants_models == worker->wants_models &&
                    again->hears_refusals == worker->hears_refusals,
                "a worker is read again as another");
}

void check_task(const v1::Task& message) {
  const Result<Task> task = task_from(message);
  check_error(task);
  if (!task.ok()) return;
  FLUVIAL_CHECK(is_printable(task->run_name) && is_printable(task->optimizer), "a name for a log line");
  const auto again = task_from(task_message(*task).task());
  FLUVIAL_CHECK(again.ok() && again->id == task->id && again->kind == task->kind && again->run == task->run &&
                    again->run_name == task->run_name && again->round == task->round &&
                    again->version == task->version && again->schema == task->schema &&
                    again->local_steps == task->local_steps && again->previous == task->previous &&
                    again->config == task->config && again->optimizer == task->optimizer,
                "a task is read again as another");
}

void check_device(const v1::DeviceMemory& device) {
  const Result<DeviceLocation> location = device_from(device);
  check_error(location);
  if (location.ok()) FLUVIAL_CHECK(location->first_byte % kDeviceAlignment == 0, "memory that begins within a word");
}

void check_ranges(const google::protobuf::RepeatedPtrField<v1::Range>& ranges) {
  static const round::Schema schema =
      round::Schema::make({{"w", round::DType::kF32, {40}}, {"n", round::DType::kI8, {3}}}).value();
  round::ByteRanges read;
  const Status added = add_ranges(ranges, schema, read);
  check_error(added);
  if (!added.ok()) return;
  std::uint64_t bytes = 0;
  for (const round::ByteRange& range : read.ranges()) {
    FLUVIAL_CHECK(range.bytes > 0 && range.end() <= schema.model_bytes(), "a range beyond the model");
    bytes += range.bytes;
  }
  std::uint64_t given = 0;
  for (const v1::Range& range : ranges) given += range.bytes();
  FLUVIAL_CHECK(given == bytes, "ranges that overlap");
}

void check_ranges(const v1::TaskRanges& ranges) {
  static const round::Schema schema = round::Schema::make({{"w", round::DType::kF32, {4'096}}}).value();
  round::ByteRanges read;
  const Status appended = append_ranges(ranges, schema, read);
  check_error(appended);
  if (!appended.ok()) return;
  FLUVIAL_CHECK(read.empty() || read.ranges().back().end() <= schema.model_bytes(), "a range beyond the model");
  round::ByteRanges again;
  for (const v1::LocalMessage& message : ranges_messages(TaskId(1), read)) {
    FLUVIAL_CHECK(append_ranges(message.task_ranges(), schema, again).ok(), "ranges that cannot be written");
  }
  FLUVIAL_CHECK(again == read, "ranges are read again as others");
}

void read_message(std::string_view body) {
  const Result<v1::LocalMessage> message = decode(body);
  check_error(message);
  if (!message.ok()) return;
  check_worker(message->attach());
  check_task(message->task());
  check_device(message->task_done().device());
  check_ranges(message->task_ranges());
  check_ranges(message->task_ready().ranges());
  check_error(check_metrics(metrics_from(message->task_done())));
  check_error(devices_from(message->attached()));
  FLUVIAL_CHECK(is_printable(committed_from(message->committed()).run_name), "a name for a log line");
  FLUVIAL_CHECK(is_printable(ended_from(message->run_ended()).name), "a name for a log line");
  FLUVIAL_CHECK(is_printable(refused_from(message->update_refused()).reason), "a reason for a log line");
  FLUVIAL_CHECK(is_printable(printable(message->detach().reason())), "a reason for a log line");
  const Result<std::string> own = encode(*message, kMessageBytesMax);
  FLUVIAL_CHECK(own.ok() && decode(*own).ok(), "what was read can be written");
}

// ---- a worker ----------------------------------------------------------------------------------------------------

constexpr std::uint64_t kModelBytes = 16;

const round::Schema& model_schema() {
  static const round::Schema schema = round::Schema::make({{"w", round::DType::kF32, {kModelBytes / 4}}}).value();
  return schema;
}

const std::shared_ptr<const SharedModel>& held_model() {
  static const std::string bytes(kModelBytes, 'm');
  static const auto model = SharedModel::copy_of(as_byte_span(bytes)).value();
  return model;
}

// What the agent hears of it.
class Record final : public SessionOwner {
 public:
  Status admit(const WorkerInfo& info) const override {
    FLUVIAL_CHECK(!attached_, "it attaches once");
    FLUVIAL_CHECK(check_name("worker", info.name).ok(), "a worker without a name");
    if (info.name == "unwanted") return Error{Code::kResourceExhausted, "nobody wants it"};
    return {};
  }
  void attached(WorkerId, const WorkerInfo& info) override {
    attached_ = true;
    kind_ = info.kind;
    in_group_ = info.group.has_value();
  }
  void ready(WorkerId, TaskReady ready) override {
    FLUVIAL_CHECK(assigned_ == ready.id && kind_ == TaskKind::kTrain, "a part of a task that it has not");
    check_memory(ready.model);
    check_within(ready.ranges);
    FLUVIAL_CHECK(ready.weight > 0, "a weight of 0");
    announced_.join(ready.ranges);
    weight_ = ready.weight;
  }
  void done(WorkerId, TaskResult result) override {
    end_task(result.id);
    FLUVIAL_CHECK(result.kind == kind_ && result.metrics.size() <= kMetricsMax, "a result of another kind");
    if (kind_ != TaskKind::kTrain) return;
    FLUVIAL_CHECK(result.weight > 0 && (!weight_ || weight_ == result.weight), "another weight than announced");
    check_memory(result.model);
    check_within(result.ranges);
    FLUVIAL_CHECK(in_group_ || result.ranges == round::ByteRanges::whole(kModelBytes), "a part of a model");
    FLUVIAL_CHECK(result.ranges.covers(announced_), "less than was announced");
  }
  void failed(WorkerId, TaskId task, const Error& error) override {
    check_error(error);
    if (assigned_ == task) return end_task(task);
    FLUVIAL_CHECK(refused_ == task, "the failure of a task that it has not");
    refused_ = TaskId();
  }
  void ended(WorkerId, bool was_attached, const std::string& reason) override {
    FLUVIAL_CHECK(!ended_ && was_attached == attached_, "it ends once");
    FLUVIAL_CHECK(assigned_ == TaskId(), "a task without an outcome");
    check_error(Error{Code::kInternal, reason});
    ended_ = true;
  }

  bool has_ended() const { return ended_; }
  bool may_have(TaskKind kind) const { return attached_ && !ended_ && kind_ == kind && assigned_ == TaskId(); }
  void assigning(TaskId task, TaskKind kind) {
    (may_have(kind) ? assigned_ : refused_) = task;
    announced_ = {};
    weight_.reset();
  }
  bool has_answered(TaskId task) const { return refused_ != task; }

 private:
  void end_task(TaskId task) {
    FLUVIAL_CHECK(assigned_ == task && task != TaskId(), "an outcome of a task that it has not, or a second one");
    assigned_ = TaskId();
  }
  static void check_memory(const std::shared_ptr<const SharedModel>& model) {
    FLUVIAL_CHECK(model && model->bytes().size() == kModelBytes, "a result that is not the model's size");
    unsigned sum = 0;
    for (const std::byte byte : model->bytes()) sum += std::to_integer<unsigned>(byte);  // all of it can be read
    FLUVIAL_CHECK(sum <= 255 * kModelBytes, "bytes");
  }
  static void check_within(const round::ByteRanges& ranges) {
    FLUVIAL_CHECK(ranges.empty() || ranges.ranges().back().end() <= kModelBytes, "a range beyond the model");
  }

  bool attached_ = false;
  bool ended_ = false;
  bool in_group_ = false;
  TaskKind kind_ = TaskKind::kTrain;
  TaskId assigned_;
  TaskId refused_;
  round::ByteRanges announced_;
  std::optional<std::uint64_t> weight_;
};

UniqueFd memory_of(Input& input) {
  constexpr int kSeals[] = {F_SEAL_SHRINK | F_SEAL_GROW, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE, F_SEAL_SHRINK, 0};
  if (input.below(16) == 0) return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  UniqueFd fd(::memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const std::uint64_t size = input.below(8) == 0 ? input.number<std::uint32_t>() : kModelBytes;
  FLUVIAL_CHECK(::ftruncate(fd.get(), static_cast<off_t>(size)) == 0, "memory");
  const int seals = input.below(8) == 0 ? kSeals[input.below(std::size(kSeals))] : kSeals[0];
  FLUVIAL_CHECK(::fcntl(fd.get(), F_ADD_SEALS, seals) == 0, "seals");
  return fd;
}

void send(int socket, std::string_view bytes, const std::vector<UniqueFd>& fds) {
  std::vector<int> numbers;
  for (const UniqueFd& fd : fds) numbers.push_back(fd.get());
  std::vector<char> control(CMSG_SPACE(sizeof(int) * numbers.size()));
  std::string copy(bytes);
  iovec part{.iov_base = copy.data(), .iov_len = copy.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (!numbers.empty()) {
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    cmsghdr* const rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int) * numbers.size());
    std::copy(numbers.begin(), numbers.end(), reinterpret_cast<int*>(CMSG_DATA(rights)));  // NOLINT: as cmsg(3) has it
  }
  static_cast<void>(::sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT));
}

v1::LocalMessage attach_of(Input& input) {
  WorkerOptions options{.name = input.below(4) != 0 ? "gpu-0" : input.text()};
  if (input.below(4) == 0) options.kind = TaskKind::kEvaluate;
  if (input.below(4) == 0) {
    options.group = Group{.name = input.below(4) != 0 ? "fsdp" : input.text(),
                          .rank = input.byte() % 4U,
                          .ranks = input.below(8) == 0 ? input.byte() : 4U};
  }
  return attach_message(options);
}

void fill_ranges(Input& input, v1::TaskReady* message) {
  for (std::size_t ranges = input.below(4); ranges > 0; --ranges) {
    v1::Range& range = *message->add_ranges();
    range.set_first_byte(input.below(16) == 0 ? input.number<std::uint64_t>() : 4 * input.below(5));
    range.set_bytes(input.below(16) == 0 ? input.number<std::uint64_t>() : 4 * input.below(5));
  }
}

template <typename Message>
void fill_result(Input& input, std::uint64_t task, Message* message) {
  message->set_id(input.below(16) == 0 ? input.byte() : task);
  message->set_weight(input.below(8) == 0 ? input.number<std::uint32_t>() : 1);
  message->set_update(input.below(8) == 0);
  if (input.below(16) == 0) message->mutable_device()->set_device(input.text());
}

// One message of a worker, of its task mostly.
v1::LocalMessage message_of(Input& input, std::uint64_t task) {
  v1::LocalMessage message;
  switch (input.below(7)) {
    case 0: return attach_of(input);
    case 1:
      fill_result(input, task, message.mutable_task_ready());
      fill_ranges(input, message.mutable_task_ready());
      break;
    case 2:
      fill_result(input, task, message.mutable_task_done());
      for (std::size_t metrics = input.below(4); metrics > 0; --metrics) {
        (*message.mutable_task_done()->mutable_metrics())[input.flag() ? "loss" : input.text()] = input.byte();
      }
      break;
    case 3:
      message.mutable_task_done()->set_id(task);
      message.mutable_task_done()->set_weight(input.below(2));
      break;
    case 4:
      message.mutable_task_ranges()->set_id(input.below(16) == 0 ? input.byte() : task);
      for (std::size_t numbers = input.below(8); numbers > 0; --numbers) {
        message.mutable_task_ranges()->add_numbers(input.below(16) == 0 ? input.number<std::uint64_t>()
                                                                        : 4 * input.below(3));
      }
      break;
    case 5:
      message.mutable_task_failed()->set_id(input.below(8) == 0 ? input.byte() : task);
      message.mutable_task_failed()->set_message(input.text());
      break;
    default:
      if (input.flag()) message.mutable_detach()->set_reason(input.text());
      break;
  }
  return message;
}

std::string framed(std::string_view body) {
  std::string bytes(4, '\0');
  store_le<std::uint32_t>(reinterpret_cast<std::byte*>(bytes.data()),  // NOLINT: bytes as text
                          static_cast<std::uint32_t>(body.size()));
  return bytes.append(body);
}

class Agent {
 public:
  Agent() {
    int ends[2];
    FLUVIAL_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0, "a pair of sockets");
    worker_ = UniqueFd(ends[0]);
    options_.node = "hospital-a";
    session_ = std::make_shared<Session>(WorkerId(1), context().get_executor(), UniqueFd(ends[1]), Peer{7, 0}, options_,
                                         record_);
    session_->start();
    turn();
  }
  ~Agent() {
    session_->end(Error{Code::kCancelled, "the agent ends"});
    FLUVIAL_CHECK(record_->has_ended(), "a session that does not end");
    session_.reset();
    turn();
  }
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  void step(Input& input) {
    switch (input.below(8)) {
      case 0: return assign(input);
      case 1: return say(as_text(input.bytes()), input);
      case 2: return say(framed(as_text(input.bytes())), input);
      case 3: return end_writing(input);
      case 4: return listen();
      default: return say(framed(message_of(input, task_).SerializeAsString()), input);
    }
  }

 private:
  static boost::asio::io_context& context() {
    static boost::asio::io_context one(1);
    return one;
  }
  void turn() {
    context().restart();
    while (context().poll() > 0) continue;
  }
  void say(std::string_view bytes, Input& input) {
    std::vector<UniqueFd> fds;
    const std::size_t few = input.below(8);
    for (std::size_t count = few < 4 ? 0 : few < 7 ? 1 : input.below(12); count > 0; --count) {
      fds.push_back(memory_of(input));
    }
    const std::size_t first = input.below(4) == 0 ? std::min<std::size_t>(input.byte(), bytes.size()) : bytes.size();
    if (first > 0) send(worker_.get(), bytes.substr(0, first), fds);
    turn();
    if (first < bytes.size()) send(worker_.get(), bytes.substr(first), {});
    turn();
  }
  void assign(Input& input) {
    Task task;
    task.id = TaskId(++task_);
    task.kind = input.below(4) == 0 ? TaskKind::kEvaluate : TaskKind::kTrain;
    task.run_name = "digits";
    task.schema = model_schema();
    task.model = held_model();
    if (record_->has_ended()) return;
    const TaskId id = task.id;
    const bool taken = record_->may_have(task.kind);
    record_->assigning(id, task.kind);
    session_->assign(std::move(task));
    turn();
    FLUVIAL_CHECK(taken || record_->has_answered(id), "a task that was refused without a word");
    if (!taken) --task_;
  }
  void listen() {  // all that it was told, descriptors and all
    for (;;) {
      const auto state = reader_.read(worker_.get());
      if (!state.ok() || *state != FrameReader::State::kComplete) break;
      FLUVIAL_CHECK(decode(reader_.take().body).ok(), "an agent that says what is no message");
    }
    turn();
  }
  void end_writing(Input& input) {
    if (input.below(8) == 0) ::shutdown(worker_.get(), SHUT_WR);
    turn();
  }

  WorkerServerOptions options_;
  std::shared_ptr<Record> record_ = std::make_shared<Record>();
  UniqueFd worker_;
  FrameReader reader_{kMessageBytesMax};  // the worker's
  std::shared_ptr<Session> session_;
  std::uint64_t task_ = 0;
};

// Which descriptors are open. A step opens few, each at the lowest free number, and so far below the last one here.
std::bitset<256> open_fds() {
  std::bitset<256> open;
  for (std::size_t fd = 0; fd < open.size(); ++fd) open[fd] = ::fcntl(static_cast<int>(fd), F_GETFD) >= 0;
  return open;
}

// The model, and the reactor that the first agent makes.
void make_what_stays() {
  static const bool made = [] {
    wire::silence_protobuf();
    held_model();
    const Agent first;
    return true;
  }();
  static_cast<void>(made);
}

void run(ByteSpan bytes) {
  Input input(bytes);
  make_what_stays();
  if (input.below(4) == 0) return read_message(as_text(input.rest()));
  const std::bitset<256> before = open_fds();
  {
    Agent agent;
    while (!input.done()) agent.step(input);
  }
  FLUVIAL_CHECK(open_fds() == before, "a descriptor stays behind");
}

}  // namespace
}  // namespace fluvial::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fluvial::fuzz::run(std::as_bytes(std::span(data, size)));
  return 0;
}
