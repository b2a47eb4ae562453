// Workers that break the protocol: each is detached with a reason, nobody else notices, and no descriptor stays behind.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/base/rng.h"
#include "core/local/test_support.h"
#include "core/local/worker_client.h"

namespace fluvial::local {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kModelBytes = 16;  // of train_task()
constexpr int kAllSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;

UniqueFd memfd(std::uint64_t size_bytes, int seals) {
  UniqueFd fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(size_bytes)), 0);
  EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  return fd;
}

struct Case {
  const char* name;
  bool attaches;  // and holds task 1; otherwise its connection is refused
  std::function<void(RawPeer&)> act;
  const char* reason;  // a part of it
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

v1::LocalMessage done(std::uint64_t id = 1, std::uint64_t weight = 1) { return done_message(TaskId(id), weight, {}); }

std::vector<Case> cases() {
  return {
      {"Garbage", false, [](RawPeer& p) { p.send_bytes(RawPeer::framed("\xff\xff\xff\xff")); }, "no message"},
      {"AnHttpRequest", false, [](RawPeer& p) { p.send_bytes("GET / HTTP/1.1\r\n\r\n"); }, "a message of"},
      {"TooLong", false, [](RawPeer& p) { p.send_bytes(std::string(4, '\x7f')); }, "a message of"},
      {"Empty", false, [](RawPeer& p) { p.send_bytes(std::string(4, '\0')); }, "a message of 0 bytes"},
      {"NotAttachFirst", false, [](RawPeer& p) { p.send(done()); }, "not Attach"},
      {"NoBody", false, [](RawPeer& p) { p.send_bytes(RawPeer::framed(std::string("\xa2\x06\x00", 3))); },
       "not Attach"},
      {"AnotherProtocol", false,
       [](RawPeer& p) {
         v1::LocalMessage message = attach_message("old", TaskKind::kTrain);
         message.mutable_attach()->set_protocol(9);
         p.send(message);
       },
       "speaks local protocol 9"},
      {"NoName", false, [](RawPeer& p) { p.send(attach_message("", TaskKind::kTrain)); }, "worker \"\""},
      {"ANameForTheLog", false, [](RawPeer& p) { p.send(attach_message("a\nb", TaskKind::kTrain)); }, "worker \"a?b\""},
      {"ADescriptorWithAttach", false,
       [](RawPeer& p) { p.send(attach_message("gift", TaskKind::kTrain), {memfd(1, 0).get()}); }, "a descriptor with"},
      {"ClosesAtOnce", false, [](RawPeer& p) { p.close(); }, "closed its connection"},
      {"BreaksOffInItsName", false,
       [](RawPeer& p) {
         p.send_bytes(RawPeer::framed("attach me").substr(0, 6));
         p.close();
       },
       "middle of a message"},
      {"AttachesTwice", true, [](RawPeer& p) { p.send(attach_message("again", TaskKind::kTrain)); }, "not a worker's"},
      {"GivesTasks", true, [](RawPeer& p) { p.send(task_message(train_task(5))); }, "not a worker's"},
      {"AnotherTask", true, [](RawPeer& p) { p.send(done(2), {memfd(kModelBytes, kAllSeals).get()}); },
       "task 2, which it was not given"},
      {"FailsAnotherTask", true, [](RawPeer& p) { p.send(failed_message(TaskId(2), "")); }, "was not given"},
      {"AnswersTwice", true,
       [](RawPeer& p) {
         p.send(failed_message(TaskId(1), "once"));
         p.send(failed_message(TaskId(1), "twice"));
       },
       "was not given"},
      {"NoModel", true, [](RawPeer& p) { p.send(done()); }, "without its memfd"},
      {"APipeForAModel", true,
       [](RawPeer& p) {
         int ends[2];
         ASSERT_EQ(::pipe(ends), 0);
         const UniqueFd reading(ends[0]);
         const UniqueFd writing(ends[1]);
         p.send(done(), {ends[0]});
       },
       "no memfd"},
      {"AFileForAModel", true,
       [](RawPeer& p) { p.send(done(), {UniqueFd(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC)).get()}); },
       "no memfd"},
      {"Unsealed", true, [](RawPeer& p) { p.send(done(), {memfd(kModelBytes, 0).get()}); }, "lacks F_SEAL_SHRINK"},
      {"Writable", true, [](RawPeer& p) { p.send(done(), {memfd(kModelBytes, F_SEAL_SHRINK | F_SEAL_GROW).get()}); },
       "lacks F_SEAL_WRITE"},
      {"TooShort", true, [](RawPeer& p) { p.send(done(), {memfd(kModelBytes - 1, kAllSeals).get()}); },
       "has 15 bytes; expected 16"},
      {"TooLarge", true, [](RawPeer& p) { p.send(done(), {memfd(std::uint64_t{1} << 40, kAllSeals).get()}); },
       "expected 16"},
      {"TwoModels", true,
       [](RawPeer& p) {
         const UniqueFd model = memfd(kModelBytes, kAllSeals);
         p.send(done(), {model.get(), model.get()});
       },
       "more than 1 descriptor"},
      {"ManyModels", true,
       [](RawPeer& p) {
         const UniqueFd model = memfd(kModelBytes, kAllSeals);
         p.send(done(), std::vector<int>(200, model.get()));
       },
       "more than 1 descriptor"},
      {"AModelInEachPart", true,
       [](RawPeer& p) {
         const UniqueFd model = memfd(kModelBytes, kAllSeals);
         const std::string bytes = RawPeer::framed(done().SerializeAsString());
         p.send_bytes(bytes.substr(0, 2), {model.get()});
         p.send_bytes(bytes.substr(2), {model.get()});
       },
       "more than 1 descriptor"},
      {"NoWeight", true, [](RawPeer& p) { p.send(done(1, 0), {memfd(kModelBytes, kAllSeals).get()}); }, "weight 0"},
      {"TooManyMetrics", true,
       [](RawPeer& p) {
         Metrics metrics;
         for (int i = 0; i < 65; ++i) metrics[std::to_string(i)] = i;
         p.send(done_message(TaskId(1), 1, metrics), {memfd(kModelBytes, kAllSeals).get()});
       },
       "65 metrics"},
      {"AMetricForTheLog", true,
       [](RawPeer& p) { p.send(done_message(TaskId(1), 1, {{"a\"b\n", 1}}), {memfd(kModelBytes, kAllSeals).get()}); },
       "metric \"a\"b?\""},
      {"DiesInTheMiddle", true,
       [](RawPeer& p) {
         const UniqueFd model = memfd(kModelBytes, kAllSeals);
         p.send_bytes(RawPeer::framed(done().SerializeAsString()).substr(0, 5), {model.get()});
         p.close();
       },
       "middle of a message"},
      {"Dies", true, [](RawPeer& p) { p.close(); }, "closed its connection"},
  };
}

class Hostile : public testing::TestWithParam<Case> {};

TEST_P(Hostile, IsDetachedWithAReasonAndHurtsNobody) {
  const Case& c = GetParam();
  const std::size_t before = open_fds();
  {
    Agent agent;
    Result<WorkerClient> honest = WorkerClient::attach(agent.socket(), {.name = "honest"});
    ASSERT_TRUE(honest.ok());
    agent.server().assign(agent.worker("honest"), train_task(100));

    RawPeer peer(agent.socket());
    WorkerId hostile;
    if (c.attaches) {
      peer.attach("hostile");
      hostile = agent.worker("hostile");
      agent.server().assign(hostile, train_task(1));
      UniqueFd model;
      ASSERT_TRUE(peer.receive(&model).has_task());
      ASSERT_TRUE(model.valid());
    }
    c.act(peer);
    std::string reason;
    agent.recorder().wait([&](const Seen& seen) {
      if (c.attaches && seen.detached.contains(hostile)) reason = seen.detached.at(hostile);
      if (!c.attaches && !seen.refused.empty()) reason = seen.refused[0];
      return !reason.empty();
    });
    EXPECT_NE(reason.find(c.reason), std::string::npos) << reason;
    EXPECT_EQ(agent.recorder().seen().failed.contains(TaskId(1)), c.attaches) << "one outcome before the detachment";
    EXPECT_TRUE(agent.recorder().seen().done.empty());

    const Result<std::optional<Task>> task = honest->next_task();
    ASSERT_TRUE(task.ok() && task->has_value());
    ASSERT_TRUE(honest->submit(honest->new_model().value(), 1, {}).ok());
    agent.recorder().wait([](const Seen& seen) { return seen.done.contains(TaskId(100)); });
    EXPECT_EQ(agent.recorder().seen().detached.size(), c.attaches ? 1u : 0u);
  }
  EXPECT_EQ(open_fds(), before);
}

INSTANTIATE_TEST_SUITE_P(Workers, Hostile, testing::ValuesIn(cases()),
                         [](const testing::TestParamInfo<Case>& info) { return info.param.name; });

TEST(HostileWorker, IsToldWhatItDidWrong) {
  Agent agent;
  RawPeer peer(agent.socket());
  peer.attach("clumsy");
  peer.send(done(4));
  EXPECT_EQ(peer.receive().detach().reason(), "answered task 4, which it was not given");
  EXPECT_EQ(peer.receive().body_case(), v1::LocalMessage::BODY_NOT_SET);
}

TEST(HostileWorker, ThatSaysNothingIsRefusedAtTheHandshakesDeadline) {
  Agent agent([](WorkerServerOptions& options) { options.handshake_deadline = 20ms; });
  RawPeer silent(agent.socket());
  RawPeer slow(agent.socket());
  slow.send_bytes("\x10");
  agent.recorder().wait([](const Seen& seen) { return seen.refused.size() == 2; });
  EXPECT_NE(agent.recorder().seen().refused[0].find("did not attach in time"), std::string::npos);
}

TEST(HostileWorker, ThatDoesNotFinishItsMessageIsDetached) {
  Agent agent([](WorkerServerOptions& options) { options.message_deadline = 20ms; });
  RawPeer peer(agent.socket());
  peer.attach("trickle");
  const WorkerId worker = agent.worker("trickle");
  peer.send_bytes("\x10");
  agent.recorder().wait([&](const Seen& seen) { return seen.detached.contains(worker); });
  EXPECT_EQ(agent.recorder().seen().detached.at(worker), "did not finish a message in time");
}

TEST(HostileWorker, ThatDoesNotReadIsDetached) {
  Agent agent([](WorkerServerOptions& options) { options.message_deadline = 20ms; });
  RawPeer peer(agent.socket());
  peer.attach("deaf");
  const WorkerId worker = agent.worker("deaf");
  const Task task = long_task(1, 8000, 400);
  agent.server().assign(worker, task);
  agent.recorder().wait([&](const Seen& seen) { return seen.detached.contains(worker); });
  EXPECT_EQ(agent.recorder().seen().detached.at(worker), "did not read a message in time");
  EXPECT_EQ(agent.recorder().seen().failed.at(TaskId(1)).code, Code::kUnavailable);
}

TEST(HostileWorker, AnEvaluatorThatSendsAModelOrAWeightIsDetached) {
  Agent agent;
  for (const bool with_model : {true, false}) {
    RawPeer peer(agent.socket());
    peer.attach("judge", TaskKind::kEvaluate);
    const WorkerId worker = agent.worker("judge");
    Task task = train_task(1);
    task.kind = TaskKind::kEvaluate;
    agent.server().assign(worker, task);
    ASSERT_TRUE(peer.receive().has_task());
    const UniqueFd model = memfd(kModelBytes, kAllSeals);
    peer.send(done(1, with_model ? 0 : 7), with_model ? std::vector<int>{model.get()} : std::vector<int>{});
    agent.recorder().wait([&](const Seen& seen) { return seen.detached.contains(worker); });
  }
}

TEST(HostileWorker, RandomBytesNeverGetFurtherThanADetachment) {
  const std::size_t before = open_fds();
  {
    Agent agent;
    Rng rng(20);
    for (std::size_t i = 0; i < 200; ++i) {
      RawPeer peer(agent.socket());
      const bool attaches = i % 2 == 0;
      if (attaches) peer.attach("noise");
      std::string body(1 + rng.below(64), '\0');
      for (char& c : body) c = static_cast<char>(rng.next() & 0xff);
      peer.send_bytes(i % 4 < 2 ? RawPeer::framed(body) : body);
    }
    agent.recorder().wait([](const Seen& seen) { return seen.detached.size() == 100 && seen.refused.size() == 100; });
  }
  EXPECT_EQ(open_fds(), before);
}

}  // namespace
}  // namespace fluvial::local
