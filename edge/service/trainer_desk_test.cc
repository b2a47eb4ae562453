#include "edge/service/trainer_desk.h"

#include "edge/service/test_desk.h"

namespace fluvial::edge {
namespace {

using local::TaskId;
using local::WorkerId;

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
  EXPECT_EQ(given_[0].second.config, (round::WorkerConfig{{"learning_rate", 0.25}, {"network", "small"}}));
  EXPECT_EQ(desk_.workers(), 2u);
  answer(1, 30, 2.0);
  answer(0, 10, 1.0);
  const Trained trained = done().value();
  ASSERT_EQ(trained.parts.size(), 2u);
  EXPECT_EQ(trained.parts[0].weight, 10u);
  EXPECT_EQ(trained.parts[1].weight, 30u);
  EXPECT_EQ(trained.weight, 40u);
  EXPECT_DOUBLE_EQ(trained.metrics.at("loss"), 1.75);
  EXPECT_EQ(trained.workers(), (std::vector<std::string>{"trainer-0", "trainer-1"}));
}

// An update that claimed less would weigh less than it should, beside those of sites that may say what they have.
TEST_F(DeskTest, MoreSamplesThanTheSiteMayHaveAreRefusedAndNotCut) {
  weight_max_ = 40;
  attach(1, "trainer-0");
  attach(2, "trainer-1");
  train();
  EXPECT_EQ(given_[0].second.weight_max, 40u) << "it is told to the workers";
  answer(0, 10, 1.0);
  answer(1, 30, 1.0);
  EXPECT_EQ(done()->weight, 40u);
  train(3);
  answer(2, 11, 1.0);
  answer(3, 30, 1.0);
  const Error together = done().error();
  EXPECT_EQ(together.code, Code::kPermissionDenied);
  EXPECT_TRUE(
      together.message.starts_with("samples: a worker has 30, others of the site 11, and all together may have 40"));
  train(4);
  answer(4, 41, 1.0);
  answer(5, 1, 1.0);
  EXPECT_EQ(done().error().code, Code::kPermissionDenied);
}

TEST_F(DeskTest, ATaskWhoseWorkerGoesAwayIsGivenToASpareOne) {
  attach(1, "trainer-0");
  attach(2, "trainer-1");
  train();
  die(0);
  EXPECT_EQ(given_.size(), 2u) << "nobody is free";
  attach(3, "trainer-0");
  ASSERT_EQ(given_.size(), 3u);
  EXPECT_EQ(given_[2].first, WorkerId(3));
  answer(1, 7, 1.0);
  answer(2, 5, 1.0);
  EXPECT_EQ(done()->weight, 12u);
}

TEST_F(DeskTest, NobodyTrainsForARunThatIsOver) {
  attach(1, "trainer-0");
  train();  // which waits for a second one
  runtime_.on_strand([&] { desk_.run_ended(RunId(99)); });
  EXPECT_TRUE(given_.empty());
  runtime_.on_strand([&] { desk_.run_ended(RunId(1)); });
  EXPECT_EQ(done().error(), (Error{Code::kCancelled, "its run is over"}));
  attach(2, "trainer-1");
  EXPECT_TRUE(given_.empty());
  train(2);
  ASSERT_EQ(given_.size(), 2u);
  runtime_.on_strand([&] { desk_.run_ended(RunId(1)); });  // who works goes on
  answer(0, 5, 1.0);
  answer(1, 7, 1.0);
  EXPECT_EQ(done()->weight, 12u);
}

TEST_F(DeskTest, SaysWhetherAnybodyHasATask) {
  using Changes = std::vector<bool>;
  attach(1, "trainer-0");
  attach(2, "trainer-1");
  EXPECT_EQ(working_, Changes{});
  train();
  EXPECT_EQ(working_, Changes{true});
  answer(0, 7, 1.0);
  EXPECT_EQ(working_, Changes{true}) << "the other one goes on";
  answer(1, 7, 1.0);
  EXPECT_EQ(working_, (Changes{true, false}));
  train(3);
  die(2);
  EXPECT_EQ(working_, (Changes{true, false, true}));
  die(3);
  EXPECT_EQ(working_, (Changes{true, false, true, false}));
}

TEST_F(DeskTest, TheOnlyWorkersTaskWaitsForAnother) {
  attach(1, "trainer-0");
  attach(2, "trainer-1");
  train();
  die(0);
  die(1);
  attach(3, "trainer-0");
  ASSERT_EQ(given_.size(), 3u);
  answer(2, 5, 1.0);
  EXPECT_EQ(done()->weight, 5u) << "and goes without the one that nobody took over";
}

TEST_F(DeskTest, GoesOnWithoutAWorkerThatFails) {
  attach(1, "trainer-0");
  attach(2, "trainer-1");
  train();
  fail(0, Code::kInternal);
  answer(1, 7, 1.0);
  const Trained trained = done().value();
  EXPECT_EQ(trained.parts.size(), 1u);
  EXPECT_EQ(trained.weight, 7u);
}

TEST_F(DeskTest, GoesOnWithoutAWorkerThatDiesAndDoesNotWaitForItAgain) {
  attach(1, "trainer-0");
  attach(2, "trainer-1");
  train();
  answer(1, 7, 1.0);
  die(0);
  EXPECT_EQ(done()->weight, 7u);
  train(3);
  ASSERT_EQ(given_.size(), 3u) << "at once";
  answer(2, 8, 1.0);
  EXPECT_EQ(done()->weight, 8u);
  attach(3, "trainer-0");
  train(4);
  EXPECT_EQ(given_.size(), 5u) << "it is back";
}

TEST_F(DeskTest, FailsWhenAllFailOrTheWeightIsNone) {
  attach(1, "trainer-0");
  attach(2, "trainer-1");
  train();
  fail(0, Code::kInternal);
  fail(1, Code::kInternal);
  EXPECT_EQ(done().error().message, "no memory");

  train();
  answer(2, 1, 1.0);
  answer(3, round::kWeightLimit - 1, 1.0);
  EXPECT_EQ(done().error().code, Code::kPermissionDenied) << "no update may weigh that much";
}

// ---- workers.missing = "decline" -------------------------------------------------------------------------------

TEST_F(DeskTest, SitsTheRoundOutWhenAWorkerFailsOrDiesAndThePlanSaysSo) {
  plan_.workers_missing = round::MissingWorkers::kDecline;
  attach(1, "trainer-0");
  attach(2, "trainer-1");
  train();
  fail(1, Code::kInternal);
  EXPECT_EQ(done().error().message, "no memory") << "at once";
  train(3);
  EXPECT_EQ(given_.size(), 2u) << "the other has not answered yet";
  answer(0, 7, 1.0);
  ASSERT_EQ(given_.size(), 4u) << "what nobody waited for any more";
  answer(2, 7, 1.0);
  die(3);
  EXPECT_EQ(done().error().code, Code::kUnavailable);
  EXPECT_EQ(desk_.outcomes().of(RunId(1), "trainer-0"), (LastResult{RoundId(3), {}})) << "in no update";
}

TEST_F(DeskTest, ASpareWorkerKeepsTheSiteInTheRound) {
  plan_.workers_missing = round::MissingWorkers::kDecline;
  for (std::uint64_t id = 1; id <= 3; ++id) attach(id, "trainer-" + std::to_string(id));
  train();
  die(0);
  ASSERT_EQ(given_.size(), 3u);
  EXPECT_EQ(given_[2].first, WorkerId(3));
  answer(1, 7, 1.0);
  answer(2, 5, 1.0);
  EXPECT_EQ(done()->weight, 12u);
}

// ---- deadlines -------------------------------------------------------------------------------------------------

TEST_F(ImpatientDeskTest, GivesUpAtTheDeadlines) {
  train();
  EXPECT_NE(done().error().message.find("worker_attach_deadline_ms"), std::string::npos);

  attach(1, "trainer-0");
  train();
  EXPECT_NE(done().error().message.find("worker_task_deadline_ms"), std::string::npos);
  answer(0, 5, 1.0);  // what nobody waits for any more frees the worker
  train();
  EXPECT_EQ(given_.size(), 2u);
}

class PatientDeskTest : public DeskTest {
 protected:
  PatientDeskTest() : DeskTest({.workers = 2, .attach_deadline = std::chrono::milliseconds(20)}) {
    plan_.workers_deadline = std::chrono::milliseconds(20);
  }
};

TEST_F(PatientDeskTest, ThePlansDeadlineLeavesAWorkerThatHangsBehind) {
  plan_.workers_deadline = std::chrono::milliseconds(1'000);  // long enough for the other to answer
  attach(1, "trainer-0");
  attach(2, "trainer-1");
  train();
  answer(1, 7, 1.0);
  const Trained trained = done().value();
  EXPECT_EQ(trained.weight, 7u) << "its own weight";
  EXPECT_EQ(trained.workers(), std::vector<std::string>{"trainer-1"});
  plan_.workers_deadline = {};
  train(3);
  ASSERT_EQ(given_.size(), 3u) << "nobody waits for it again";
  answer(2, 8, 1.0);
  EXPECT_EQ(done()->weight, 8u);
  answer(0, 5, 1.0);  // now it answers
  EXPECT_EQ(desk_.outcomes().of(RunId(1), "trainer-0"), (LastResult{RoundId(2), {}}));
  train(4);
  EXPECT_EQ(given_.size(), 5u);
}

TEST_F(PatientDeskTest, ThePlansDeadlineMakesTheSiteDeclineWhereItSaysSo) {
  plan_.workers_missing = round::MissingWorkers::kDecline;
  attach(1, "trainer-0");
  attach(2, "trainer-1");
  train();
  answer(1, 7, 1.0);
  EXPECT_EQ(done().error().message, "no answer within the plan's workers.deadline_ms (20 ms)");
}

TEST_F(PatientDeskTest, BeginsWithTheWorkersThatCame) {
  plan_.workers_deadline = {};
  attach(1, "trainer-0");
  train();
  for (bool given = false; !given;) given = runtime_.on_strand([&] { return !given_.empty(); });
  answer(0, 7, 1.0);
  EXPECT_EQ(done()->weight, 7u);
  plan_.workers_missing = round::MissingWorkers::kDecline;
  train(3);
  EXPECT_NE(done().error().message.find("1 of 2 training workers"), std::string::npos);
}

// ---- what workers are told -------------------------------------------------------------------------------------

TEST_F(DeskTest, ATaskSaysWhatBecameOfTheLastResultOfAWorkerOfThatName) {
  attach(1, "trainer-0");
  attach(2, "trainer-1");
  train();
  EXPECT_FALSE(given_[0].second.previous);
  answer(0, 10, 1.0);
  fail(1, Code::kInternal);
  const Trained trained = done().value();
  desk_.outcomes().used(RunId(1), RoundId(2), trained.workers());
  desk_.outcomes().decided(RunId(1), RoundId(2), Outcome::kLate);
  train(3);
  using enum local::ResultOutcome;
  EXPECT_EQ(given_[2].second.previous, (local::Previous{RoundId(2), kLate}));
  EXPECT_FALSE(given_[3].second.previous) << "it gave none";
  answer(2, 10, 1.0);
  answer(3, 10, 1.0);
  (void)done();
  train(4);
  EXPECT_EQ(given_[5].second.previous, (local::Previous{RoundId(3), kUnused})) << "no update was made of it";
}

TEST_F(DeskTest, CommittedModelsGoToThoseWhoAnsweredAndWantThem) {
  attach(1, {.name = "trainer-0", .pid = 1, .wants_models = true});
  attach(2, "trainer-1");
  attach(3, {.name = "trainer-2", .pid = 1, .wants_models = true});
  const local::CommittedModel model{.run = RunId(1), .round = RoundId(2), .model = shared(std::vector<float>(4))};
  train();
  answer(0, 10, 1.0);
  EXPECT_TRUE(desk_.owes(RunId(1), RoundId(2)));
  EXPECT_FALSE(desk_.owes(RunId(1), RoundId(1)));
  EXPECT_FALSE(desk_.owes(RunId(9), RoundId(2)));
  answer(1, 10, 1.0);
  (void)done();
  runtime_.on_strand([&] { desk_.committed(model); });
  using Told = std::vector<std::pair<WorkerId, RoundId>>;
  EXPECT_EQ(told_, (Told{{WorkerId(1), RoundId(2)}})) << "the third had no task";
  EXPECT_FALSE(desk_.owes(RunId(1), RoundId(2)));
  runtime_.on_strand([&] { desk_.committed(model); });
  EXPECT_EQ(told_.size(), 1u) << "once";

  train(3);
  local::CommittedModel next = model;
  next.round = RoundId(3);
  runtime_.on_strand([&] { desk_.committed(next); });
  fail(2, Code::kInternal);
  EXPECT_EQ(told_, (Told{{WorkerId(1), RoundId(2)}, {WorkerId(1), RoundId(3)}})) << "late, and at once";
}

class Held final : public local::DeviceMemory {};

TEST_F(DeskTest, HoldsAWorkersDeviceMemoryOpenUntilItBringsAnotherOrLeavesOrTheRunEnds) {
  attach(1, "trainer-0");
  attach(2, "trainer-1");
  const auto bring = [this] {  // by trainer-0
    const std::size_t given = given_.size();
    train();
    std::weak_ptr<const local::DeviceMemory> brought;
    {
      auto memory = std::make_shared<const Held>();
      brought = memory;
      answer(given, 10, 1.0, {0, kBytes}, std::move(memory));
    }
    answer(given + 1, 10, 1.0);
    EXPECT_EQ(done()->parts[0].shards[0].device, brought.lock());
    return brought;
  };
  const auto first = bring();
  EXPECT_FALSE(first.expired()) << "it lies there in the next round, too";
  const auto second = bring();
  EXPECT_TRUE(first.expired());
  runtime_.on_strand([&] { desk_.let_go(); });
  EXPECT_TRUE(second.expired());
  const auto third = bring();
  EXPECT_FALSE(third.expired());
  runtime_.on_strand([&] { desk_.worker_detached(WorkerId(1), "done"); });
  EXPECT_TRUE(third.expired());
}

}  // namespace
}  // namespace fluvial::edge
