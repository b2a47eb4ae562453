#include "examples/digits/worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <cmath>
#include <thread>

#include "core/base/testing.h"
#include "core/local/frame.h"
#include "core/local/message.h"
#include "core/local/socket.h"
#include "core/local/test_support.h"
#include "examples/digits/model.h"
#include "examples/digits/random.h"
#include "examples/digits/trainer.h"

namespace fluvial::digits {
namespace {

using local::Agent;
using local::Task;
using local::TaskId;
using local::TaskKind;

Examples some_images() {
  Examples examples{.inputs = 4, .pixels = {}, .labels = {}};
  Rng rng(2);
  for (std::size_t i = 0; i < 25; ++i) {
    for (std::size_t p = 0; p < 4; ++p) examples.pixels.push_back(static_cast<float>(rng.uniform()));
    examples.labels.push_back(static_cast<std::uint8_t>(rng.below(kClasses)));
  }
  return examples;
}

const ModelSpec kWorkerSpec{.kind = ModelKind::kMlp, .inputs = 4};

Task task_of(std::uint64_t id, TaskKind kind = TaskKind::kTrain) {
  Task task{.id = TaskId(id), .kind = kind, .run = RunId(1), .round = RoundId(5), .version = ModelVersion(4)};
  task.schema = schema_of(kWorkerSpec);
  task.local_steps = 12;
  task.config = {{"learning_rate", 0.5}, {"batch_size", 3.0}};
  Model model = initial_model(kWorkerSpec, 1);
  model.counters = {100};
  Buffer bytes(task.schema.model_bytes());
  model_to_bytes(task.schema, model, bytes.span());
  task.model = local::SharedModel::copy_of(bytes.span()).value();
  return task;
}

// A worker on a thread, until its agent detaches it.
class Running {
 public:
  Running(const Agent& agent, TaskKind kind, Answer answer)
      : thread_([this, socket = agent.socket(), kind, answer = std::move(answer)] {
          ended = serve_tasks({.socket = socket, .options = {.name = "digits", .kind = kind}}, answer);
        }) {}
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  ~Running() { join(); }
  void join() {
    if (thread_.joinable()) thread_.join();
  }
  Status ended = Error{Code::kInternal, "still running"};

 private:
  std::thread thread_;
};

Answer trainer(const Trainer& trainer) {
  return [&trainer](local::WorkerClient& client, const Task& task) { return trainer.answer(client, task); };
}

local::TaskResult done(Agent& agent, const Task& task) {
  agent.server().assign(agent.worker("digits"), task);
  agent.recorder().wait([&](const local::Seen& seen) { return seen.done.contains(task.id); });
  return agent.recorder().seen().done.at(task.id);
}

Error failed(Agent& agent, const Task& task) {
  agent.server().assign(agent.worker("digits"), task);
  agent.recorder().wait([&](const local::Seen& seen) { return seen.failed.contains(task.id); });
  return agent.recorder().seen().failed.at(task.id);
}

// Accepts a connection, lets the worker attach, and closes: with a good-bye if there is a reason.
void welcome_one(int listener, std::string_view node, const std::string& reason = "") {
  pollfd ready{.fd = listener, .events = POLLIN};
  ASSERT_EQ(::poll(&ready, 1, 60'000), 1);
  const local::UniqueFd fd(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
  local::FrameReader attach(local::kWorkerMessageBytesMax);
  ASSERT_TRUE(attach.read(fd.get()).ok());
  std::vector<v1::LocalMessage> messages{local::attached_message(node)};
  if (!reason.empty()) messages.push_back(local::detach_message(reason));
  for (const v1::LocalMessage& message : messages) {
    local::FrameWriter frame(message.SerializeAsString(), nullptr);
    ASSERT_TRUE(frame.write(fd.get()).ok());
  }
}

TEST(DigitsWorker, TrainsTheTasksStepsOnItsImages) {
  Agent agent;
  const Trainer worker(some_images(), 7, 2);
  Running running(agent, TaskKind::kTrain, trainer(worker));
  const Task task = task_of(1);
  const local::TaskResult result = done(agent, task);
  const Model trained = model_from_bytes(task.schema, result.model->bytes());

  Model expected = initial_model(kWorkerSpec, 1);
  const Score score =
      train(kWorkerSpec, expected.parameters, some_images(), sgd_from_config(task.config).value(), 12, mix({7, 5, 2}));
  EXPECT_EQ(trained.parameters, expected.parameters);
  EXPECT_EQ(trained.counters, std::vector<std::int64_t>{112});
  EXPECT_EQ(result.weight, 25u);
  EXPECT_EQ(result.metrics, (local::Metrics{{"accuracy", score.accuracy}, {"loss", score.loss}}));

  agent.stop();
  running.join();
  EXPECT_TRUE(running.ended.ok());
}

TEST(DigitsWorker, RefusesATaskThatDoesNotFitAndGoesOn) {
  Agent agent;
  const Trainer worker(some_images(), 7, 2);
  const Running running(agent, TaskKind::kTrain, trainer(worker));
  EXPECT_THAT(failed(agent, local::train_task(1)).message, ::testing::HasSubstr("4 pixels"));
  Task task = task_of(2);
  task.config["dropout"] = 0.5;
  EXPECT_THAT(failed(agent, task).message, ::testing::HasSubstr("dropout"));
  EXPECT_EQ(done(agent, task_of(3)).weight, 25u);
  agent.stop();
}

TEST(DigitsWorker, HandsInANanInTheRoundItIsToldTo) {
  Agent agent;
  const Trainer worker(some_images(), 7, 2, {.nan_round = 6});
  const Running running(agent, TaskKind::kTrain, trainer(worker));
  Task task = task_of(1);
  EXPECT_TRUE(std::isfinite(model_from_bytes(task.schema, done(agent, task).model->bytes()).parameters[0]));
  task.id = TaskId(2);
  task.round = RoundId(6);
  EXPECT_TRUE(std::isnan(model_from_bytes(task.schema, done(agent, task).model->bytes()).parameters[0]));
  agent.stop();
}

TEST(DigitsWorker, TestsAModel) {
  Agent agent;
  const Examples images = some_images();
  const Running running(agent, TaskKind::kEvaluate, [&](local::WorkerClient& client, const Task& task) {
    return answer_evaluation(images, client, task);
  });
  const Score score = evaluate(kWorkerSpec, initial_model(kWorkerSpec, 1).parameters, images);
  EXPECT_EQ(done(agent, task_of(1, TaskKind::kEvaluate)).metrics,
            (local::Metrics{{"test_accuracy", score.accuracy}, {"test_loss", score.loss}}));
  agent.stop();
}

// An agent accepts a worker and dies without a message; then another listens at the same place.
TEST(DigitsWorker, AttachesAgainToAnAgentThatCameBack) {
  const TemporaryFolder folder;
  const auto socket = folder / "agent.sock";
  local::UniqueFd listener = local::listen_unix(socket).value();
  const Trainer worker(some_images(), 7, 2);
  std::vector<std::string> said;
  std::thread thread([&] {
    EXPECT_TRUE(serve_tasks({.socket = socket,
                             .options = {.name = "digits", .kind = TaskKind::kTrain},
                             .say = [&](const std::string& line) { said.push_back(line); }},
                            trainer(worker))
                    .ok());
  });
  welcome_one(listener.get(), "first");
  welcome_one(listener.get(), "second", "that is all");
  thread.join();
  EXPECT_THAT(said,
              ::testing::ElementsAre("attached to first", ::testing::_, "attached to second", "detached: that is all"));
}

TEST(DigitsWorker, GivesUpOnAnAgentThatStaysAway) {
  const TemporaryFolder folder;
  const Trainer worker(some_images(), 7, 2);
  const Status ended = serve_tasks({.socket = folder / "agent.sock",
                                    .options = {.name = "digits", .kind = TaskKind::kTrain},
                                    .patience = std::chrono::milliseconds(0)},
                                   trainer(worker));
  EXPECT_EQ(ended.error().code, Code::kUnavailable);
}

}  // namespace
}  // namespace fluvial::digits
