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

constexpr std::uint64_t kTaskBytes = 16;  // of train_task()
constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;
constexpr int kSealedWhole = kSizeSeals | F_SEAL_WRITE;

UniqueFd sealed_memfd(std::uint64_t size_bytes, int seals) {
  UniqueFd fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(::ftruncate(fd.get(), static_cast<off_t>(size_bytes)), 0);
  EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  return fd;
}

struct HostileCase {
  const char* name;
  bool attaches;  // and holds task 1; otherwise its connection is refused
  std::function<void(RawPeer&)> act;
  const char* reason;  // a part of it
};
void PrintTo(const HostileCase& c, std::ostream* out) { *out << c.name; }

v1::LocalMessage done_of(std::uint64_t id = 1, std::uint64_t weight = 1, Metrics metrics = {}) {
  return done_message({.id = TaskId(id), .weight = weight, .metrics = std::move(metrics)});
}
v1::LocalMessage attaching(std::string name, std::optional<Group> group = {}) {
  return attach_message({.name = std::move(name), .group = std::move(group)});
}
v1::LocalMessage ready(std::initializer_list<round::ByteRange> ranges, std::uint64_t weight = 1) {
  v1::LocalMessage message = ready_message({.id = TaskId(1), .weight = weight});
  for (const round::ByteRange& range : ranges) {
    v1::Range& added = *message.mutable_task_ready()->add_ranges();
    added.set_first_byte(range.first_byte);
    added.set_bytes(range.bytes);
  }
  return message;
}
void send_ready(RawPeer& p, std::initializer_list<round::ByteRange> ranges) {
  p.send(ready(ranges), {sealed_memfd(kTaskBytes, kSizeSeals).get()});
}

const std::vector<HostileCase> kCases = {
    {"Garbage", false, [](RawPeer& p) { p.send_bytes(RawPeer::framed("\xff\xff\xff\xff")); }, "no message"},
    {"AnHttpRequest", false, [](RawPeer& p) { p.send_bytes("GET / HTTP/1.1\r\n\r\n"); }, "a message of"},
    {"TooLong", false, [](RawPeer& p) { p.send_bytes(std::string(4, '\x7f')); }, "a message of"},
    {"Empty", false, [](RawPeer& p) { p.send_bytes(std::string(4, '\0')); }, "a message of 0 bytes"},
    {"NotAttachFirst", false, [](RawPeer& p) { p.send(done_of()); }, "not Attach"},
    {"NoBody", false, [](RawPeer& p) { p.send_bytes(RawPeer::framed(std::string("\xa2\x06\x00", 3))); }, "not Attach"},
    {"AnotherProtocol", false,
     [](RawPeer& p) {
       v1::LocalMessage message = attaching("old");
       message.mutable_attach()->set_protocol(9);
       p.send(message);
     },
     "speaks local protocol 9"},
    {"NoName", false, [](RawPeer& p) { p.send(attaching("")); }, "worker \"\""},
    {"ANameForTheLog", false, [](RawPeer& p) { p.send(attaching("a\nb")); }, "worker \"a b\""},
    {"ADescriptorWithAttach", false, [](RawPeer& p) { p.send(attaching("gift"), {sealed_memfd(1, 0).get()}); },
     "a descriptor with"},
    {"ClosesAtOnce", false, [](RawPeer& p) { p.close(); }, "closed its connection"},
    {"BreaksOffInItsName", false,
     [](RawPeer& p) {
       p.send_bytes(RawPeer::framed("attach me").substr(0, 6));
       p.close();
     },
     "middle of a message"},
    {"AttachesTwice", true, [](RawPeer& p) { p.send(attaching("again")); }, "not a worker's"},
    {"GivesTasks", true, [](RawPeer& p) { p.send(task_message(train_task(5))); }, "not a worker's"},
    {"AnotherTask", true, [](RawPeer& p) { p.send(done_of(2), {sealed_memfd(kTaskBytes, kSealedWhole).get()}); },
     "task 2, which it was not given"},
    {"FailsAnotherTask", true, [](RawPeer& p) { p.send(failed_message(TaskId(2), "")); }, "was not given"},
    {"AnswersTwice", true,
     [](RawPeer& p) {
       p.send(failed_message(TaskId(1), "once"));
       p.send(failed_message(TaskId(1), "twice"));
     },
     "was not given"},
    {"NoModel", true, [](RawPeer& p) { p.send(done_of()); }, "without its memfd"},
    {"APipeForAModel", true,
     [](RawPeer& p) {
       int ends[2];
       ASSERT_EQ(::pipe(ends), 0);
       const UniqueFd reading(ends[0]);
       const UniqueFd writing(ends[1]);
       p.send(done_of(), {ends[0]});
     },
     "no memfd"},
    {"AFileForAModel", true,
     [](RawPeer& p) { p.send(done_of(), {UniqueFd(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC)).get()}); },
     "no memfd"},
    {"Unsealed", true, [](RawPeer& p) { p.send(done_of(), {sealed_memfd(kTaskBytes, 0).get()}); },
     "lacks F_SEAL_SHRINK"},
    {"MayGrow", true, [](RawPeer& p) { p.send(done_of(), {sealed_memfd(kTaskBytes, F_SEAL_SHRINK).get()}); },
     "lacks F_SEAL_GROW"},
    {"TooShort", true, [](RawPeer& p) { p.send(done_of(), {sealed_memfd(kTaskBytes - 1, kSealedWhole).get()}); },
     "has 15 bytes; expected 16"},
    {"TooLarge", true,
     [](RawPeer& p) { p.send(done_of(), {sealed_memfd(std::uint64_t{1} << 40, kSealedWhole).get()}); }, "expected 16"},
    {"TwoModels", true,
     [](RawPeer& p) {
       const UniqueFd model = sealed_memfd(kTaskBytes, kSealedWhole);
       p.send(done_of(), {model.get(), model.get()});
     },
     "more than 1 descriptor"},
    {"ManyModels", true,
     [](RawPeer& p) {
       const UniqueFd model = sealed_memfd(kTaskBytes, kSealedWhole);
       p.send(done_of(), std::vector<int>(200, model.get()));
     },
     "more than 1 descriptor"},
    {"AModelInEachPart", true,
     [](RawPeer& p) {
       const UniqueFd model = sealed_memfd(kTaskBytes, kSealedWhole);
       const std::string bytes = RawPeer::framed(done_of().SerializeAsString());
       p.send_bytes(bytes.substr(0, 2), {model.get()});
       p.send_bytes(bytes.substr(2), {model.get()});
     },
     "more than 1 descriptor"},
    {"NoWeight", true, [](RawPeer& p) { p.send(done_of(1, 0), {sealed_memfd(kTaskBytes, kSealedWhole).get()}); },
     "weight 0"},
    {"TooManyMetrics", true,
     [](RawPeer& p) {
       Metrics metrics;
       for (int i = 0; i < 65; ++i) metrics[std::to_string(i)] = i;
       p.send(done_of(1, 1, metrics), {sealed_memfd(kTaskBytes, kSealedWhole).get()});
     },
     "65 metrics"},
    {"AMetricForTheLog", true,
     [](RawPeer& p) { p.send(done_of(1, 1, {{"a\"b\n", 1}}), {sealed_memfd(kTaskBytes, kSealedWhole).get()}); },
     "metric \"a\"b \""},
    {"ARankOfNoGroup", false,
     [](RawPeer& p) {
       v1::LocalMessage message = attaching("lost");
       message.mutable_attach()->set_ranks(2);
       p.send(message);
     },
     "group \"\""},
    {"AGroupForTheLog", false, [](RawPeer& p) { p.send(attaching("a", Group{"b\n", 0, 2})); }, "group \"b \""},
    {"ARankBeyondTheLast", false, [](RawPeer& p) { p.send(attaching("a", Group{"fsdp", 2, 2})); },
     "rank 2 of 2 in group fsdp"},
    {"TooManyRanks", false, [](RawPeer& p) { p.send(attaching("a", Group{"fsdp", 2, 65})); }, "at most 64"},
    {"NoRanks", false, [](RawPeer& p) { p.send(attaching("a", Group{"fsdp", 0, 0})); }, "rank 0 of 0"},
    {"ReadyWithoutMemory", true, [](RawPeer& p) { p.send(ready({{0, 4}})); }, "without its memfd"},
    {"ReadyForAnotherTask", true,
     [](RawPeer& p) {
       v1::LocalMessage message = ready({{0, 4}});
       message.mutable_task_ready()->set_id(7);
       p.send(message, {sealed_memfd(kTaskBytes, kSizeSeals).get()});
     },
     "task 7, which it was not given"},
    {"ReadyTwice", true, [](RawPeer& p) { send_ready(p, {{4, 8}, {8, 4}}); }, "byte 8 is given twice"},
    {"ReadyTwiceInTwoMessages", true,
     [](RawPeer& p) {
       send_ready(p, {{4, 8}});
       p.send(ready({{0, 8}}));
     },
     "byte 4 is given twice"},
    {"ReadyBeyondTheEnd", true, [](RawPeer& p) { send_ready(p, {{12, 8}}); }, "beyond the model's 16"},
    {"ReadyFarBeyondTheEnd", true, [](RawPeer& p) { send_ready(p, {{8, ~std::uint64_t{0}}}); }, "beyond the model's"},
    {"ReadyInAValue", true, [](RawPeer& p) { send_ready(p, {{4, 6}}); }, "cuts a value at byte 10"},
    {"ReadyWithoutWeight", true,
     [](RawPeer& p) { p.send(ready({{0, 4}}, 0), {sealed_memfd(kTaskBytes, kSizeSeals).get()}); }, "weight 0"},
    {"AnotherWeightThanAnnounced", true,
     [](RawPeer& p) {
       send_ready(p, {{0, 4}});
       p.send(ready({{4, 4}}, 2));
     },
     "not the one announced"},
    {"AnotherKindThanAnnounced", true,
     [](RawPeer& p) {
       send_ready(p, {{0, 4}});
       v1::LocalMessage message = done_of();
       message.mutable_task_done()->set_update(true);
       p.send(message);
     },
     "not the one announced"},
    {"MemoryTwice", true,
     [](RawPeer& p) {
       send_ready(p, {{0, 4}});
       p.send(done_of(), {sealed_memfd(kTaskBytes, kSizeSeals).get()});
     },
     "a second descriptor"},
    {"RangesWithoutAGroup", true,
     [](RawPeer& p) {
       v1::LocalMessage message;
       message.mutable_task_ranges()->set_id(1);
       p.send(message);
     },
     "in no group"},
    {"RangesOfAnotherTask", true,
     [](RawPeer& p) {
       v1::LocalMessage message;
       message.mutable_task_ranges()->set_id(2);
       p.send(message);
     },
     "answered task 2"},
    {"CommitsARound", true,
     [](RawPeer& p) {
       v1::LocalMessage message;
       message.mutable_committed()->set_round(1);
       p.send(message);
     },
     "not a worker's"},
    {"DiesInTheMiddle", true,
     [](RawPeer& p) {
       const UniqueFd model = sealed_memfd(kTaskBytes, kSealedWhole);
       p.send_bytes(RawPeer::framed(done_of().SerializeAsString()).substr(0, 5), {model.get()});
       p.close();
     },
     "middle of a message"},
    {"Dies", true, [](RawPeer& p) { p.close(); }, "closed its connection"},
};

class Hostile : public testing::TestWithParam<HostileCase> {};

TEST_P(Hostile, IsDetachedWithAReasonAndHurtsNobody) {
  const HostileCase& c = GetParam();
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

INSTANTIATE_TEST_SUITE_P(Workers, Hostile, testing::ValuesIn(kCases),
                         [](const testing::TestParamInfo<HostileCase>& info) { return info.param.name; });

TEST(HostileWorker, IsToldWhatItDidWrong) {
  Agent agent;
  RawPeer peer(agent.socket());
  peer.attach("clumsy");
  peer.send(done_of(4));
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
    const UniqueFd model = sealed_memfd(kTaskBytes, kSealedWhole);
    peer.send(done_of(1, with_model ? 0 : 7), with_model ? std::vector<int>{model.get()} : std::vector<int>{});
    agent.recorder().wait([&](const Seen& seen) { return seen.detached.contains(worker); });
  }
}

TEST(HostileWorker, ARankThatAnnouncesWhatItDoesNotAnswerForIsDetached) {
  Agent agent;
  RawPeer peer(agent.socket());
  peer.send(attaching("rank-0", Group{"fsdp", 0, 2}));
  ASSERT_TRUE(peer.receive().has_attached());
  const WorkerId worker = agent.worker("rank-0");
  agent.server().assign(worker, train_task(1));
  ASSERT_TRUE(peer.receive().has_task());
  send_ready(peer, {{8, 4}});
  for (const v1::LocalMessage& message : ranges_messages(TaskId(1), round::ByteRanges::whole(8))) peer.send(message);
  peer.send(done_of());
  agent.recorder().wait([&](const Seen& seen) { return seen.detached.contains(worker); });
  EXPECT_EQ(agent.recorder().seen().detached.at(worker), "announced bytes that it does not answer for");
}

TEST(HostileWorker, ARankThatIsThereAndAnotherNumberOfRanksAreRefused) {
  Agent agent;
  Result<WorkerClient> first = WorkerClient::attach(agent.socket(), {.name = "a", .group = Group{"fsdp", 1, 2}});
  ASSERT_TRUE(first.ok());
  const Result<WorkerClient> twice = WorkerClient::attach(agent.socket(), {.name = "b", .group = Group{"fsdp", 1, 2}});
  EXPECT_EQ(twice.error().code, Code::kAlreadyExists);
  EXPECT_NE(twice.error().message.find("rank 1 of group fsdp is attached already"), std::string::npos);
  const Result<WorkerClient> three = WorkerClient::attach(agent.socket(), {.name = "b", .group = Group{"fsdp", 0, 3}});
  EXPECT_NE(three.error().message.find("group fsdp has 2 ranks, not 3"), std::string::npos);
  EXPECT_TRUE(WorkerClient::attach(agent.socket(), {.name = "b", .group = Group{"other", 1, 3}}).ok());
  const WorkerId worker = agent.worker("a");
  ASSERT_TRUE(first->detach("done").ok());
  agent.recorder().wait([&](const Seen& seen) { return seen.detached.contains(worker); });
  EXPECT_TRUE(WorkerClient::attach(agent.socket(), {.name = "b", .group = Group{"fsdp", 1, 2}}).ok()) << "it is gone";
}

TEST(HostileWorker, MoreEarlyRangesThanAnAgentKeepsAreRefused) {
  Agent agent;
  RawPeer peer(agent.socket());
  peer.attach("dust");
  const WorkerId worker = agent.worker("dust");
  const Task task = train_task(1, 3 * kEarlyRangesMax);
  agent.server().assign(worker, task);
  ASSERT_TRUE(peer.receive().has_task());
  v1::LocalMessage message = ready({});
  for (std::uint64_t i = 0; i <= kEarlyRangesMax; ++i) {
    v1::Range& added = *message.mutable_task_ready()->add_ranges();
    added.set_first_byte(8 * i);
    added.set_bytes(4);
  }
  peer.send(message, {sealed_memfd(task.schema.model_bytes(), kSizeSeals).get()});
  agent.recorder().wait([&](const Seen& seen) { return seen.detached.contains(worker); });
  EXPECT_EQ(agent.recorder().seen().detached.at(worker), "more than 2048 ranges that do not touch");
}

// What an agent says to a rank that names these numbers, in messages of 3,000 of them.
std::string answer_to_ranges(const std::vector<std::uint64_t>& numbers, std::uint64_t values) {
  Agent agent;
  RawPeer peer(agent.socket());
  peer.send(attaching("dust", Group{"fsdp", 0, 2}));
  EXPECT_TRUE(peer.receive().has_attached());
  const WorkerId worker = agent.worker("dust");
  agent.server().assign(worker, train_task(1, values));
  EXPECT_TRUE(peer.receive().has_task());
  for (std::size_t at = 0; at < numbers.size(); at += 3'000) {
    v1::LocalMessage message;
    message.mutable_task_ranges()->set_id(1);
    const auto part = std::span(numbers).subspan(at, std::min<std::size_t>(3'000, numbers.size() - at));
    message.mutable_task_ranges()->mutable_numbers()->Add(part.begin(), part.end());
    peer.send(message);
  }
  agent.recorder().wait([&](const Seen& seen) { return seen.detached.contains(worker); });
  return agent.recorder().seen().detached.at(worker);
}

TEST(HostileWorker, MoreRangesOfARankThanAnAgentKeepsAreRefused) {
  EXPECT_EQ(answer_to_ranges(std::vector<std::uint64_t>(2 * kRangesMax + 2, 4), 3 * kRangesMax),
            "more than 1048576 ranges that do not touch");
}

TEST(HostileWorker, RangesOfARankThatAreNoneOfTheModelAreRefused) {
  constexpr std::uint64_t kMost = ~std::uint64_t{0};
  EXPECT_EQ(answer_to_ranges({0, 4, 8}, 4), "half of a range");
  EXPECT_EQ(answer_to_ranges({4, 4, kMost, 4}, 4),
            "a range that begins 18446744073709551615 bytes behind byte 8, beyond the model");
  EXPECT_EQ(answer_to_ranges({8, kMost}, 4),
            "a range of 18446744073709551615 bytes from byte 8 reaches beyond the model's 16");
  EXPECT_EQ(answer_to_ranges({0, 4, 2, 4}, 4), "a range of 4 bytes from byte 6 cuts a value at byte 6");
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

TEST(HostileWorker, AFailureWithoutAReasonIsNoEmptyLine) {
  Agent agent;
  RawPeer peer(agent.socket());
  peer.attach("silent");
  agent.server().assign(agent.worker("silent"), train_task(1));
  UniqueFd model;
  ASSERT_TRUE(peer.receive(&model).has_task());
  peer.send(failed_message(TaskId(1), ""));
  agent.recorder().wait([](const Seen& seen) { return seen.failed.contains(TaskId(1)); });
  EXPECT_EQ(agent.recorder().seen().failed.at(TaskId(1)).message, "it says no reason");
}

TEST(HostileWorker, BytesThatAreNoTextWriteNothingToStandardError) {
  testing::internal::CaptureStderr();
  const auto decoded = decode("\x0a\x03\x12\x01\xff");  // Attach, whose worker's name is no UTF-8
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_FALSE(decoded.ok());
}

}  // namespace
}  // namespace fluvial::local
