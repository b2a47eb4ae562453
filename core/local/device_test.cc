// Results in a device's memory, without a device: the calls of the agent's opener, what reaches the handler, and what
// ends a worker's connection.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/local/test_support.h"
#include "core/local/worker_client.h"

namespace fluvial::local {
namespace {

constexpr std::uint64_t kModelBytes = 16;  // of train_task()

DeviceUuid uuid(int fill) {
  DeviceUuid id;
  id.fill(static_cast<std::byte>(fill));
  return id;
}

DeviceLocation location(int device, int handle) {
  DeviceLocation at{.device = uuid(device), .first_byte = 32};
  at.handle.fill(static_cast<std::byte>(handle));
  return at;
}

constexpr int kForeignHandle = 9;  // cannot be opened

class OpenedMemory final : public DeviceMemory {
 public:
  OpenedMemory(const DeviceLocation& location, std::uint64_t count) : at(location), values(count) {}
  const DeviceLocation at;
  const std::uint64_t values;
};

Result<std::shared_ptr<const DeviceMemory>> open_memory(const DeviceLocation& at, std::uint64_t values) {
  if (at.handle[0] == static_cast<std::byte>(kForeignHandle)) {
    return Error{Code::kInvalidArgument, "a handle that cannot be opened"};
  }
  return std::shared_ptr<const DeviceMemory>(std::make_shared<const OpenedMemory>(at, values));
}

const OpenedMemory& opened(const std::shared_ptr<const DeviceMemory>& memory) {
  return dynamic_cast<const OpenedMemory&>(*memory);
}

void offer_devices(WorkerServerOptions& options) {
  options.devices = {uuid(1), uuid(2)};
  options.open_device = open_memory;
}

// A schema with an integer tensor after an averaged one: 16 and 8 bytes.
Task counted_task(std::uint64_t id) {
  Task task = train_task(id);
  task.schema = round::Schema::make({{"w", round::DType::kF32, {4}}, {"steps", round::DType::kI64, {1}}}).value();
  task.model = SharedModel::copy_of(as_byte_span(std::string(24, '\0'))).value();
  return task;
}

round::ByteRanges ranges(std::initializer_list<round::ByteRange> list) {
  round::ByteRanges set;
  for (const round::ByteRange& range : list) EXPECT_TRUE(set.add(range).ok());
  return set;
}

class DeviceResult : public testing::Test {
 protected:
  TaskResult wait_done(std::uint64_t id) {
    agent_.recorder().wait([&](const Seen& seen) { return seen.done.contains(TaskId(id)); });
    return agent_.recorder().seen().done.at(TaskId(id));
  }
  WorkerClient attach(std::string name) {
    Result<WorkerClient> client = WorkerClient::attach(agent_.socket(), {.name = std::move(name)});
    EXPECT_TRUE(client.ok()) << client.error().to_string();
    return std::move(client).value();
  }
  void give(WorkerClient& client, std::string_view name, Task task) {
    agent_.server().assign(agent_.worker(name), std::move(task));
    ASSERT_TRUE(client.next_task().value().has_value());
  }
  Agent agent_{offer_devices};
};

TEST_F(DeviceResult, IsOpenedWhereTheWorkerSaysItLies) {
  WorkerClient client = attach("gpu-0");
  EXPECT_EQ(client.devices(), (std::vector<DeviceUuid>{uuid(1), uuid(2)}));
  give(client, "gpu-0", train_task(1));
  ASSERT_TRUE(client.submit(location(2, 5), nullptr, {.weight = 3, .update = true}).ok());
  const TaskResult result = wait_done(1);
  ASSERT_TRUE(result.device);
  EXPECT_EQ(opened(result.device).at, location(2, 5));
  EXPECT_EQ(opened(result.device).values, 4u);
  EXPECT_EQ(result.model, nullptr);
  EXPECT_EQ(result.ranges, round::ByteRanges::whole(kModelBytes));
  EXPECT_TRUE(result.update);
}

TEST_F(DeviceResult, IsOpenedOnceATaskAndClosedWithItsLastOwner) {
  WorkerClient client = attach("gpu-0");
  give(client, "gpu-0", train_task(1));
  ASSERT_TRUE(client.ready(location(1, 5), nullptr, ranges({{8, 4}}), 3).ok());
  ASSERT_TRUE(client.ready(location(1, 5), nullptr, ranges({{0, 8}}), 3).ok());
  ASSERT_TRUE(client.submit(location(1, 5), nullptr, {.weight = 3}).ok());
  const TaskResult first = wait_done(1);
  const Seen seen = agent_.recorder().seen();
  for (const TaskReady& ready : seen.ready.at(TaskId(1))) EXPECT_EQ(ready.device, first.device);
  give(client, "gpu-0", train_task(2));
  ASSERT_TRUE(client.submit(location(1, 5), nullptr, {.weight = 3}).ok());
  const TaskResult second = wait_done(2);
  EXPECT_NE(first.device, second.device) << "the same memory, and another task's result";
  EXPECT_EQ(second.device.use_count(), 2) << "this one's and the recorder's: the session keeps none";
}

TEST_F(DeviceResult, BringsItsIntegersInSharedMemory) {
  WorkerClient client = attach("gpu-0");
  give(client, "gpu-0", counted_task(1));
  ResultBuffer integers = ResultBuffer::create(24).value();
  integers.span()[16] = std::byte{7};
  ASSERT_TRUE(client.submit(location(1, 5), &integers, {.weight = 3}).ok());
  const TaskResult result = wait_done(1);
  EXPECT_EQ(opened(result.device).values, 4u);
  ASSERT_TRUE(result.model);
  EXPECT_EQ(result.model->bytes()[16], std::byte{7});
}

TEST_F(DeviceResult, IsAnOfferThatAWorkerNeedNotTake) {
  WorkerClient client = attach("gpu-0");
  const ResultBuffer buffer = ResultBuffer::create(kModelBytes).value();
  give(client, "gpu-0", train_task(1));
  ASSERT_TRUE(client.submit(buffer, {.weight = 3}).ok());
  EXPECT_EQ(wait_done(1).device, nullptr);
  give(client, "gpu-0", train_task(2));
  ASSERT_TRUE(client.submit(location(1, 5), nullptr, {.weight = 3}).ok());
  EXPECT_TRUE(wait_done(2).device);
}

TEST(DeviceOffer, IsEmptyWithoutDevices) {
  Agent agent;
  const Result<WorkerClient> client = WorkerClient::attach(agent.socket(), {.name = "gpu-0"});
  ASSERT_TRUE(client.ok());
  EXPECT_TRUE(client->devices().empty());
}

TEST(DeviceUuidText, IsAsTheDriversToolsWriteIt) {
  DeviceUuid id;
  for (std::size_t i = 0; i < id.size(); ++i) id[i] = static_cast<std::byte>(0xf0 + i);
  EXPECT_EQ(to_string(id), "GPU-f0f1f2f3-f4f5-f6f7-f8f9-fafbfcfdfeff");
}

// ---- workers that break the protocol -----------------------------------------------------------------------------

UniqueFd memfd() {
  UniqueFd fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(::ftruncate(fd.get(), kModelBytes), 0);
  EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  return fd;
}

using Change = std::function<void(v1::DeviceMemory&)>;
v1::LocalMessage done(const Change& change = [](v1::DeviceMemory&) {}) {
  v1::LocalMessage message = done_message({.id = TaskId(1), .weight = 1}, location(1, 5));
  change(*message.mutable_task_done()->mutable_device());
  return message;
}
v1::LocalMessage ready() {
  return ready_message({.id = TaskId(1), .weight = 1, .ranges = ranges({{0, 4}})}, location(1, 5));
}

struct Case {
  const char* name;
  std::function<void(RawPeer&)> act;
  const char* reason;  // a part of it
  bool integers = false;
  TaskKind kind = TaskKind::kTrain;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

std::vector<Case> cases() {
  const auto with = [](const Change& change) { return [change](RawPeer& p) { p.send(done(change)); }; };
  return {
      {"NoUuid", with([](auto& device) { device.clear_device(); }), "a device's UUID of 0 bytes; expected 16"},
      {"ALongUuid", with([](auto& device) { device.set_device(std::string(17, 1)); }), "UUID of 17 bytes"},
      {"NoHandle", with([](auto& device) { device.clear_handle(); }), "a handle of device memory of 0 bytes"},
      {"AShortHandle", with([](auto& device) { device.set_handle("short"); }), "of 5 bytes; expected 64"},
      {"ALongHandle", with([](auto& device) { device.set_handle(std::string(20'000, 1)); }), "of 20000 bytes"},
      {"NotAligned", with([](auto& device) { device.set_first_byte(8); }), "from byte 8 on; expected a multiple of 16"},
      {"AnotherDevice", with([](auto& device) { device.set_device(std::string(16, 3)); }),
       "GPU-03030303-0303-0303-0303-030303030303, from which this agent takes none"},
      {"CannotBeOpened", with([](auto& device) { device.set_handle(std::string(64, kForeignHandle)); }),
       "a handle that cannot be opened"},
      {"AMemfdWhereThereAreNoIntegers", [](RawPeer& p) { p.send(done(), {memfd().get()}); },
       "a descriptor for a result that lies in a device's memory alone"},
      {"NoMemfdForTheIntegers", [](RawPeer& p) { p.send(done()); }, "without its memfd", true},
      {"AMemfdTooShortForTheIntegers", [](RawPeer& p) { p.send(done(), {memfd().get()}); }, "expected 24", true},
      {"Twice",
       [](RawPeer& p) {
         p.send(ready());
         p.send(done());
       },
       "device memory for a result that has some"},
      {"AfterAMemfd",
       [](RawPeer& p) {
         p.send(ready_message({.id = TaskId(1), .weight = 1, .ranges = ranges({{0, 4}})}), {memfd().get()});
         p.send(done());
       },
       "device memory for a result that has some"},
      {"AMemfdAfterwards",
       [](RawPeer& p) {
         p.send(ready());
         p.send(done_message({.id = TaskId(1), .weight = 1}), {memfd().get()});
       },
       "a second descriptor"},
      {"AnEvaluation",
       [](RawPeer& p) {
         v1::LocalMessage message = done();
         message.mutable_task_done()->set_weight(0);
         p.send(message);
       },
       "an evaluation with", false, TaskKind::kEvaluate},
  };
}

class HostileDeviceResult : public testing::TestWithParam<Case> {};

TEST_P(HostileDeviceResult, DetachesItsWorkerWithAReasonAndHurtsNobody) {
  const Case& c = GetParam();
  const std::size_t before = open_fds();
  {
    Agent agent(offer_devices);
    Result<WorkerClient> honest = WorkerClient::attach(agent.socket(), {.name = "honest"});
    ASSERT_TRUE(honest.ok());
    agent.server().assign(agent.worker("honest"), train_task(100));

    RawPeer peer(agent.socket());
    peer.attach("hostile", c.kind);
    const WorkerId hostile = agent.worker("hostile");
    Task task = c.integers ? counted_task(1) : train_task(1);
    task.kind = c.kind;
    agent.server().assign(hostile, std::move(task));
    ASSERT_TRUE(peer.receive().has_task());
    c.act(peer);
    agent.recorder().wait([&](const Seen& seen) { return seen.detached.contains(hostile); });
    const std::string reason = agent.recorder().seen().detached.at(hostile);
    EXPECT_NE(reason.find(c.reason), std::string::npos) << reason;
    EXPECT_TRUE(agent.recorder().seen().failed.contains(TaskId(1)));

    ASSERT_TRUE(honest->next_task().value().has_value());
    ASSERT_TRUE(honest->submit(location(1, 5), nullptr, {.weight = 1}).ok());
    agent.recorder().wait([](const Seen& seen) { return seen.done.contains(TaskId(100)); });
  }
  EXPECT_EQ(open_fds(), before);
}

INSTANTIATE_TEST_SUITE_P(Workers, HostileDeviceResult, testing::ValuesIn(cases()),
                         [](const testing::TestParamInfo<Case>& info) { return info.param.name; });

TEST(HostileDeviceResultOfAnAgentWithoutDevices, DetachesItsWorker) {
  Agent agent;
  RawPeer peer(agent.socket());
  peer.attach("gpu-0");
  const WorkerId worker = agent.worker("gpu-0");
  agent.server().assign(worker, train_task(1));
  ASSERT_TRUE(peer.receive().has_task());
  peer.send(done());
  agent.recorder().wait([&](const Seen& seen) { return seen.detached.contains(worker); });
  EXPECT_NE(agent.recorder().seen().detached.at(worker).find("from which this agent takes none"), std::string::npos);
}

}  // namespace
}  // namespace fluvial::local
