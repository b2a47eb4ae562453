#include "edge/service/trainer_desk.h"

#include <boost/asio/strand.hpp>
#include <future>

#include "edge/service/test_support.h"

namespace fluvial::edge {
namespace {

using local::TaskId;
using local::WorkerId;

class DeskTest : public testing::Test {
 protected:
  explicit DeskTest(DeskOptions options = {.workers = 2}) : desk_(runtime_.get().strand, options, runtime_.get().log) {
    desk_.set_assign([this](WorkerId worker, local::Task task) { given_.emplace_back(worker, std::move(task)); });
  }
  ~DeskTest() override {
    runtime_.on_strand([&] { desk_.stop(); });
    runtime_.threads().stop();
  }
  void attach(std::uint64_t id, const std::string& name, local::TaskKind kind = local::TaskKind::kTrain) {
    runtime_.on_strand([&] { desk_.worker_attached(WorkerId(id), {name, kind, 1}); });
  }
  void train() {
    TrainJob job;
    job.run = RunId(1);
    job.round = RoundId(2);
    job.plan.local_steps = 5;
    job.plan.worker = {{"learning_rate", 0.25}};
    const std::vector<float> base(4, 1.0F);
    job.base = held_model(RunId(1), 1, round::Schema::make({{"w", round::DType::kF32, {4}}}).value(),
                          std::as_bytes(std::span(base)));
    runtime_.on_strand(
        [&] { desk_.train(std::move(job), [this](Result<Trained> trained) { done_.set_value(std::move(trained)); }); });
  }
  void answer(std::size_t given, std::uint64_t weight, double loss) {
    local::TaskResult result;
    result.id = given_[given].second.id;
    result.weight = weight;
    result.metrics = {{"loss", loss}};
    result.model = shared(std::vector<float>(4, static_cast<float>(weight)));
    runtime_.on_strand([&] { desk_.task_done(given_[given].first, std::move(result)); });
  }
  void fail(std::size_t given, Code code) {
    const auto& [worker, task] = given_[given];
    runtime_.on_strand([&] { desk_.task_failed(worker, task.id, {code, "no memory"}); });
  }
  Result<Trained> done() { return done_.get_future().get(); }

  TestRuntime runtime_;
  TrainerDesk desk_;
  std::vector<std::pair<WorkerId, local::Task>> given_;
  std::promise<Result<Trained>> done_;
};

TEST_F(DeskTest, WaitsForItsWorkersAndJoinsWhatTheyBringInTheirOrder) {
  train();
  attach(1, "trainer-1");
  attach(2, "judge", local::TaskKind::kEvaluate);
  EXPECT_TRUE(given_.empty());
  EXPECT_TRUE(runtime_.log().contains("waiting for training workers"));
  attach(3, "trainer-0");
  ASSERT_EQ(given_.size(), 2u);
  EXPECT_EQ(given_[0].first, WorkerId(3)) << "by name";
  EXPECT_EQ(given_[0].second.local_steps, 5u);
  EXPECT_EQ(given_[0].second.parameters.at("learning_rate"), 0.25);
  EXPECT_EQ(desk_.workers(), 2u);
  answer(1, 30, 2.0);
  answer(0, 10, 1.0);
  const Trained trained = done().value();
  ASSERT_EQ(trained.parts.size(), 2u);
  EXPECT_EQ(trained.parts[0].weight, 10u);
  EXPECT_EQ(trained.parts[1].weight, 30u);
  EXPECT_EQ(trained.weight, 40u);
  EXPECT_DOUBLE_EQ(trained.metrics.at("loss"), 1.75);
}

TEST_F(DeskTest, ATaskWhoseWorkerGoesAwayIsGivenToAnother) {
  attach(1, "trainer-0");
  attach(2, "trainer-1");
  train();
  fail(0, Code::kUnavailable);
  EXPECT_EQ(given_.size(), 2u) << "nobody is free";
  runtime_.on_strand([&] { desk_.worker_detached(WorkerId(1), "killed"); });
  answer(1, 7, 1.0);
  ASSERT_EQ(given_.size(), 3u) << "the other one is free now";
  EXPECT_EQ(given_[2].first, WorkerId(2));
  answer(2, 5, 1.0);
  EXPECT_EQ(done()->weight, 12u);
}

TEST_F(DeskTest, GoesOnWithoutAWorkerThatFails) {
  attach(1, "trainer-0");
  attach(2, "trainer-1");
  train();
  fail(0, Code::kInternal);
  answer(1, 7, 1.0);
  EXPECT_EQ(done()->parts.size(), 1u);
}

TEST_F(DeskTest, FailsWhenAllFailOrTheWeightIsNone) {
  attach(1, "trainer-0");
  attach(2, "trainer-1");
  train();
  fail(0, Code::kInternal);
  fail(1, Code::kInternal);
  EXPECT_EQ(done().error().message, "no memory");

  done_ = {};
  train();
  answer(2, 1, 1.0);
  answer(3, round::kWeightLimit - 1, 1.0);
  EXPECT_EQ(done().error().code, Code::kInvalidArgument);
}

class ImpatientDeskTest : public DeskTest {
 protected:
  ImpatientDeskTest()
      : DeskTest({.workers = 1,
                  .attach_deadline = std::chrono::milliseconds(20),
                  .task_deadline = std::chrono::milliseconds(20)}) {}
};

TEST_F(ImpatientDeskTest, GivesUpAtTheDeadlines) {
  train();
  EXPECT_NE(done().error().message.find("worker_attach_deadline_ms"), std::string::npos);

  done_ = {};
  attach(1, "trainer-0");
  train();
  EXPECT_NE(done().error().message.find("worker_task_deadline_ms"), std::string::npos);
  answer(0, 5, 1.0);  // what nobody waits for any more frees the worker
  done_ = {};
  train();
  EXPECT_EQ(given_.size(), 2u);
}

}  // namespace
}  // namespace fluvial::edge
