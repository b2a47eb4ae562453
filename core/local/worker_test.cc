#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmath>
#include <limits>

#include "core/local/test_support.h"
#include "core/local/worker_client.h"

namespace fluvial::local {
namespace {

using namespace std::chrono_literals;

WorkerClient attach(const Agent& agent, std::string name, TaskKind kind = TaskKind::kTrain) {
  Result<WorkerClient> client = WorkerClient::attach(agent.socket(), {.name = std::move(name), .kind = kind});
  EXPECT_TRUE(client.ok()) << client.error().to_string();
  return std::move(client).value();
}

Task next(WorkerClient& client) {
  Result<std::optional<Task>> task = client.next_task();
  EXPECT_TRUE(task.ok()) << task.error().to_string();
  EXPECT_TRUE(task->has_value());
  return std::move(**task);
}

// Answers with each byte of the model turned over.
Status answer(WorkerClient& client, const Task& task, std::uint64_t weight = 5) {
  FLUVIAL_ASSIGN(MemfdWriter model, client.new_model());
  for (std::size_t i = 0; i < model.span().size(); ++i) model.span()[i] = ~task.model->bytes()[i];
  return client.submit(std::move(model), weight, {{"loss", 0.25}});
}

TEST(Worker, TrainsWhatItIsGiven) {
  Agent agent;
  WorkerClient client = attach(agent, "gpu-0");
  EXPECT_EQ(client.node(), "hospital-a");
  const WorkerId worker = agent.worker("gpu-0");
  const Task given = train_task(11);
  agent.server().assign(worker, given);

  const Task task = next(client);
  EXPECT_EQ(task.id, given.id);
  EXPECT_EQ(task.kind, TaskKind::kTrain);
  EXPECT_EQ(task.run, given.run);
  EXPECT_EQ(task.run_name, "digits");
  EXPECT_EQ(task.round, given.round);
  EXPECT_EQ(task.version, given.version);
  EXPECT_EQ(task.schema, given.schema);
  EXPECT_EQ(task.local_steps, given.local_steps);
  EXPECT_EQ(task.optimizer, "fedavg");
  EXPECT_EQ(task.config, given.config);
  EXPECT_EQ(as_text(task.model->bytes()), as_text(given.model->bytes()));
  ASSERT_TRUE(answer(client, task).ok());

  agent.recorder().wait([&](const Seen& seen) { return seen.done.contains(given.id); });
  const TaskResult result = agent.recorder().seen().done.at(given.id);
  EXPECT_EQ(result.weight, 5u);
  EXPECT_EQ(result.metrics, (Metrics{{"loss", 0.25}}));
  EXPECT_EQ(result.model->bytes()[3], ~given.model->bytes()[3]);
}

TEST(Worker, EvaluatesAndMayReportWhatIsNotFinite) {
  Agent agent;
  WorkerClient client = attach(agent, "judge", TaskKind::kEvaluate);
  Task given = train_task(1);
  given.kind = TaskKind::kEvaluate;
  agent.server().assign(agent.worker("judge"), given);
  EXPECT_EQ(next(client).kind, TaskKind::kEvaluate);
  ASSERT_TRUE(client.submit_evaluation({{"loss", std::numeric_limits<double>::quiet_NaN()}, {"accuracy", 0.9}}).ok());
  agent.recorder().wait([&](const Seen& seen) { return seen.done.contains(given.id); });
  const TaskResult result = agent.recorder().seen().done.at(given.id);
  EXPECT_EQ(result.model, nullptr);
  EXPECT_TRUE(std::isnan(result.metrics.at("loss")));
  EXPECT_EQ(result.metrics.at("accuracy"), 0.9);
}

TEST(Worker, SaysThatItCouldNotAndIsAskedAgain) {
  Agent agent;
  WorkerClient client = attach(agent, "gpu-0");
  const WorkerId worker = agent.worker("gpu-0");
  agent.server().assign(worker, train_task(1));
  next(client);
  ASSERT_TRUE(client.fail("out of\nmemory").ok());
  agent.recorder().wait([](const Seen& seen) { return seen.failed.contains(TaskId(1)); });
  EXPECT_EQ(agent.recorder().seen().failed.at(TaskId(1)), (Error{Code::kInternal, "out of memory"}));
  agent.server().assign(worker, train_task(2));
  EXPECT_TRUE(answer(client, next(client)).ok());
  agent.recorder().wait([](const Seen& seen) { return seen.done.contains(TaskId(2)); });
}

TEST(Worker, IsToldOfRunsThatEndAndGoesOnToTheNext) {
  Agent agent;
  WorkerClient client = attach(agent, "gpu-0");
  const WorkerId worker = agent.worker("gpu-0");
  agent.server().run_ended({RunId(4), "digits", "done"});
  agent.server().assign(worker, train_task(1));
  agent.server().run_ended({RunId(5), "letters", "stopped"});
  EXPECT_TRUE(answer(client, next(client)).ok());
  agent.recorder().wait([](const Seen& seen) { return seen.done.contains(TaskId(1)); });  // else it is busy still
  agent.server().assign(worker, train_task(2));
  EXPECT_TRUE(answer(client, next(client)).ok());
  agent.recorder().wait([](const Seen& seen) { return seen.done.contains(TaskId(2)); });
}

// What a process that was killed left running may have its connection still.
TEST(Worker, IsGoneWithItsProcessThoughAForkHoldsItsConnection) {
  Agent agent;
  int test[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, test), 0);
  char word = 0;
  const pid_t process = ::fork();
  if (process == 0) {
    const Result<WorkerClient> client = WorkerClient::attach(agent.socket(), {.name = "gpu-0"});
    if (::fork() == 0) {
      ::close(test[1]);
      (void)!::write(test[0], "f", 1);
      (void)!::read(test[0], &word, 1);  // until the test ends
      ::_exit(0);
    }
    for (;;) ::pause();
  }
  ::close(test[0]);
  ASSERT_EQ(::read(test[1], &word, 1), 1) << "it has forked";
  agent.server().assign(agent.worker("gpu-0"), train_task(1));
  ::kill(process, SIGKILL);
  agent.recorder().wait([](const Seen& seen) { return !seen.detached.empty(); });
  EXPECT_EQ(agent.recorder().seen().failed.at(TaskId(1)).code, Code::kUnavailable);
  EXPECT_EQ(agent.recorder().seen().detached.begin()->second, "its process " + std::to_string(process) + " has ended");
  ::close(test[1]);
  ::waitpid(process, nullptr, 0);
}

TEST(Worker, TakesThePlaceOfAnotherProcessByItsNameIfThatWasChosen) {
  Agent agent;
  const pid_t process = ::fork();
  if (process == 0) {
    Result<WorkerClient> client = WorkerClient::attach(agent.socket(), {.name = "gpu-0", .named = true});
    const Result<std::optional<Task>> task = client.ok() ? client->next_task() : client.error();
    ::_exit(task.ok() && !*task && client->detach_reason().starts_with("another process") ? 0 : 1);
  }
  agent.worker("gpu-0");
  const auto own = [&] { return WorkerClient::attach(agent.socket(), {.name = "gpu-0", .named = true}).value(); };
  const WorkerClient label = attach(agent, "gpu-0");
  EXPECT_TRUE(agent.recorder().seen().detached.empty());
  const WorkerClient first = own();
  int status = 0;
  ASSERT_EQ(::waitpid(process, &status, 0), process);
  EXPECT_EQ(status, 0);
  const WorkerClient beside = own();  // of this process, as a thread of it would
  agent.recorder().wait([](const Seen& seen) { return seen.attached.size() == 4; });
  EXPECT_EQ(agent.recorder().seen().detached.size(), 1U);
}

TEST(Worker, IsToldWhenItAttachesOfRunsThatHadEnded) {
  Agent agent;
  WorkerClient early = attach(agent, "early");
  EXPECT_TRUE(early.ended().empty());
  const auto end = [&](RunId run, const char* name, const char* state) {
    agent.server().run_ended({run, name, state});
    EXPECT_EQ(std::get<EndedRun>(early.next_event().value().value()).run, run);  // and the server knows it
  };
  end(RunId(3), "digits", "done");
  end(RunId(4), "letters", "stopped");
  WorkerClient client = attach(agent, "late");
  ASSERT_EQ(client.ended().size(), 2U);
  EXPECT_EQ(client.ended()[0].run, RunId(3));
  EXPECT_EQ(client.ended()[1].name, "letters");
  EXPECT_EQ(client.ended()[1].state, "stopped");
  agent.server().assign(agent.worker("late"), train_task(1));  // of run 3, which goes on after all
  next(client);
  EXPECT_EQ(attach(agent, "later").ended().size(), 1U);
  for (std::uint64_t run = 10; run < 40; ++run) end(RunId(run), "many", "done");
  const WorkerClient last = attach(agent, "last");
  ASSERT_EQ(last.ended().size(), kEndedRunsMax);
  EXPECT_EQ(last.ended().back().run, RunId(39));
}

TEST(Worker, HearsWhyWhatItGaveCountsNowhereIfItWantsTo) {
  Agent agent;
  WorkerClient client = attach(agent, "gpu-0");
  RawPeer of_0_2(agent.socket());
  of_0_2.attach("gpu-1");
  agent.worker("gpu-1");
  agent.server().update_refused({RunId(3), RoundId(7), "tensor 'w', value 42 is nan", 40});
  agent.server().run_ended({RunId(3), "digits", "done"});
  const WorkerClient::Event told = client.next_event().value().value();
  ASSERT_TRUE(std::holds_alternative<RefusedUpdate>(told));
  EXPECT_EQ(std::get<RefusedUpdate>(told).run, RunId(3));
  EXPECT_EQ(std::get<RefusedUpdate>(told).round, RoundId(7));
  EXPECT_EQ(std::get<RefusedUpdate>(told).reason, "tensor 'w', value 42 is nan");
  EXPECT_EQ(std::get<RefusedUpdate>(told).weight_max, 40u);
  EXPECT_TRUE(of_0_2.receive().has_run_ended()) << "it would take the other for nonsense";
}

TEST(Worker, ManyReadTheOneCopyOfAModel) {
  Agent agent;
  std::vector<WorkerClient> clients;
  const Task shared = train_task(1, 1 << 16);
  for (int i = 0; i < 8; ++i) {
    const std::string name = "gpu-" + std::to_string(i);
    clients.push_back(attach(agent, name));
    Task task = shared;
    task.id = TaskId(static_cast<std::uint64_t>(i) + 1);
    agent.server().assign(agent.worker(name), task);
  }
  for (WorkerClient& client : clients) {
    const Task task = next(client);
    EXPECT_EQ(as_text(task.model->bytes()), as_text(shared.model->bytes()));
    EXPECT_TRUE(answer(client, task).ok());
  }
  agent.recorder().wait([](const Seen& seen) { return seen.done.size() == 8; });
}

TEST(Worker, ASchemaLargerThanASocketsBufferArrives) {
  Agent agent;
  WorkerClient client = attach(agent, "gpu-0");
  const Task given = long_task(1, 40'000, 256);  // 10 MiB: several frames, where it comes over the network
  agent.server().assign(agent.worker("gpu-0"), given);
  EXPECT_EQ(next(client).schema, given.schema);
}

TEST(Worker, ASchemaThatFitsNoMessageFailsTheTaskAlone) {
  Agent agent;
  const WorkerClient client = attach(agent, "gpu-0");
  const Task given = long_task(1, 65'000, 505);
  agent.server().assign(agent.worker("gpu-0"), given);
  agent.recorder().wait([](const Seen& seen) { return seen.failed.contains(TaskId(1)); });
  EXPECT_EQ(agent.recorder().seen().failed.at(TaskId(1)).code, Code::kInvalidArgument);
  EXPECT_TRUE(agent.recorder().seen().detached.empty());
}

TEST(Worker, WhatItCannotTakeFailsAndHurtsNobody) {
  Agent agent;
  WorkerClient client = attach(agent, "gpu-0");
  const WorkerId worker = agent.worker("gpu-0");
  Task evaluation = train_task(1);
  evaluation.kind = TaskKind::kEvaluate;
  agent.server().assign(worker, evaluation);
  agent.server().assign(WorkerId(99), train_task(2));
  agent.server().assign(worker, train_task(3));
  agent.server().assign(worker, train_task(4));  // one at a time
  agent.recorder().wait([](const Seen& seen) { return seen.failed.size() == 3; });
  EXPECT_EQ(agent.recorder().seen().failed.at(TaskId(1)).code, Code::kFailedPrecondition);
  EXPECT_EQ(agent.recorder().seen().failed.at(TaskId(2)).code, Code::kNotFound);
  EXPECT_EQ(agent.recorder().seen().failed.at(TaskId(4)).code, Code::kFailedPrecondition);
  EXPECT_TRUE(answer(client, next(client)).ok());
  agent.recorder().wait([](const Seen& seen) { return seen.done.contains(TaskId(3)); });
}

TEST(Worker, TheClientRefusesCallsOutOfOrder) {
  Agent agent;
  WorkerClient client = attach(agent, "gpu-0");
  EXPECT_FALSE(client.new_model().ok());
  EXPECT_FALSE(client.submit_evaluation({}).ok());
  EXPECT_FALSE(client.fail("what?").ok());
  agent.server().assign(agent.worker("gpu-0"), train_task(1));
  const Task task = next(client);
  EXPECT_EQ(client.next_task().error().code, Code::kFailedPrecondition);
  EXPECT_FALSE(client.submit_evaluation({}).ok());
  EXPECT_FALSE(client.submit(MemfdWriter::create(3).value(), 1, {}).ok());
  EXPECT_FALSE(client.submit(client.new_model().value(), 0, {}).ok());
  EXPECT_FALSE(client.submit(client.new_model().value(), 1, {{"bad name", 1}}).ok());
  EXPECT_TRUE(answer(client, task).ok());
}

TEST(Worker, LearnsWhyItIsDetached) {
  Agent agent;
  WorkerClient client = attach(agent, "gpu-0");
  agent.server().close("maintenance");
  const Result<std::optional<Task>> task = client.next_task();
  ASSERT_TRUE(task.ok()) << task.error().to_string();
  EXPECT_FALSE(task->has_value());
  EXPECT_EQ(client.detach_reason(), "maintenance");
  agent.stop();
  EXPECT_EQ(agent.recorder().seen().detached.size(), 1u);
  EXPECT_FALSE(std::filesystem::exists(agent.socket()));
}

TEST(Worker, ATaskInHandWhenTheAgentEndsHasItsOutcome) {
  Agent agent;
  WorkerClient client = attach(agent, "gpu-0");
  agent.server().assign(agent.worker("gpu-0"), train_task(1));
  const Task task = next(client);
  agent.stop();
  EXPECT_EQ(agent.recorder().seen().failed.at(TaskId(1)).code, Code::kUnavailable);
  const Status submitted = answer(client, task);
  EXPECT_EQ(submitted.error().code, Code::kUnavailable);
  const Result<std::optional<Task>> none = client.next_task();
  ASSERT_TRUE(none.ok());
  EXPECT_FALSE(none->has_value());
}

TEST(Worker, AnAgentGoneWithoutAWordIsAnError) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder / "agent.sock";
  const UniqueFd listener = listen_unix(path).value();
  std::thread agent([&] {
    pollfd ready{.fd = listener.get(), .events = POLLIN, .revents = 0};
    ASSERT_EQ(::poll(&ready, 1, 60'000), 1);
    const UniqueFd peer(::accept(listener.get(), nullptr, nullptr));
    FrameReader reader(kMessageBytesMax);
    ASSERT_TRUE(reader.read(peer.get()).ok());
    ASSERT_TRUE(FrameWriter(encode(attached_message("brief"), kMessageBytesMax).value()).write(peer.get()).ok());
  });
  Result<WorkerClient> client = WorkerClient::attach(path, {.name = "gpu-0"});
  agent.join();
  ASSERT_TRUE(client.ok()) << client.error().to_string();
  EXPECT_EQ(client->next_task().error().code, Code::kUnavailable);
}

TEST(Worker, DetachesByItself) {
  Agent agent;
  WorkerClient client = attach(agent, "gpu-0");
  const WorkerId worker = agent.worker("gpu-0");
  ASSERT_TRUE(client.detach("enough").ok());
  agent.recorder().wait([&](const Seen& seen) { return seen.detached.contains(worker); });
  EXPECT_EQ(agent.recorder().seen().detached.at(worker), "detached: enough");
  EXPECT_EQ(client.next_task().error().code, Code::kFailedPrecondition);
}

TEST(Worker, WaitsForAnAgentThatIsNotThereYet) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder / "agent.sock";
  EXPECT_EQ(WorkerClient::attach_with_retry(path, {.name = "early"}, 0ms).error().code, Code::kUnavailable);
  std::thread early([&] {
    const Result<WorkerClient> client = WorkerClient::attach_with_retry(path, {.name = "early"}, 60s);
    EXPECT_TRUE(client.ok()) << client.error().to_string();
  });
  Agent agent([&](WorkerServerOptions& options) { options.socket = path; });
  agent.recorder().wait([](const Seen& seen) { return !seen.attached.empty(); });
  early.join();
}

TEST(Worker, OneTooManyIsRefusedUntilAnotherGoes) {
  Agent agent([](WorkerServerOptions& options) { options.workers_max = 1; });
  WorkerClient first = attach(agent, "first");
  const WorkerId worker = agent.worker("first");
  const Result<WorkerClient> second = WorkerClient::attach(agent.socket(), {.name = "second"});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, Code::kResourceExhausted);
  ASSERT_TRUE(first.detach("bye").ok());
  agent.recorder().wait([&](const Seen& seen) { return seen.detached.contains(worker); });
  attach(agent, "third");
}

TEST(Worker, OneOfTheOtherKindIsToldWhereItBelongs) {
  Agent agent([](WorkerServerOptions& options) {
    options.only = TaskKind::kEvaluate;
    options.others_belong = "workers train at a site";
  });
  const Result<WorkerClient> trainer = WorkerClient::attach(agent.socket(), {.name = "trainer"});
  ASSERT_FALSE(trainer.ok());
  EXPECT_EQ(trainer.error().code, Code::kFailedPrecondition);
  EXPECT_THAT(trainer.error().message, testing::HasSubstr("workers train at a site"));
  agent.recorder().wait([](const Seen& seen) { return seen.refused.size() == 1; });
  const WorkerClient judge = attach(agent, "judge", TaskKind::kEvaluate);
  agent.worker("judge");
}

TEST(Worker, AProcessThatDiesWithATaskIsDetached) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const TemporaryFolder folder;
  const std::filesystem::path path = folder / "agent.sock";
  const pid_t child = ::fork();
  if (child == 0) {
    char go = 0;
    if (::read(ends[0], &go, 1) != 1) ::_exit(2);
    Result<WorkerClient> client = WorkerClient::attach(path, {.name = "mortal"});
    const bool busy = client.ok() && client->next_task().ok();
    ::_exit(busy ? 0 : 1);
  }
  Agent agent([&](WorkerServerOptions& options) { options.socket = path; });
  ASSERT_EQ(::write(ends[1], "g", 1), 1);
  const WorkerId worker = agent.worker("mortal");
  agent.server().assign(worker, train_task(1));
  agent.recorder().wait([&](const Seen& seen) { return seen.detached.contains(worker); });
  EXPECT_EQ(agent.recorder().seen().failed.at(TaskId(1)).code, Code::kUnavailable);
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(Worker, AnotherUsersProcessIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const TemporaryFolder folder;
  const std::filesystem::path path = folder / "agent.sock";
  const pid_t child = ::fork();
  if (child == 0) {
    char go = 0;
    if (::setuid(65534) != 0 || ::read(ends[0], &go, 1) != 1) ::_exit(2);
    const Result<WorkerClient> client = WorkerClient::attach(path, {.name = "stranger"});
    ::_exit(!client.ok() && client.error().code == Code::kPermissionDenied ? 0 : 1);
  }
  Agent agent([&](WorkerServerOptions& options) { options.socket = path; });
  ASSERT_EQ(::chmod(folder.path().c_str(), 0755), 0);
  ASSERT_EQ(::chmod(path.c_str(), 0666), 0);  // so that only the credentials stand in the way
  ASSERT_EQ(::write(ends[1], "g", 1), 1);
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  agent.recorder().wait([](const Seen& seen) { return !seen.refused.empty(); });
  EXPECT_NE(agent.recorder().seen().refused[0].find("user 65534"), std::string::npos)
      << agent.recorder().seen().refused[0];
  ::close(ends[0]);
  ::close(ends[1]);
}

}  // namespace
}  // namespace fluvial::local
