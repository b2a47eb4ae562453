#include "edge/service/worker_news.h"

#include "edge/service/test_support.h"

namespace fluvial::edge {
namespace {

constexpr RunId kNewsRun{1};

// Writes down what it is told, in a word or two.
class ToldTrainers final : public Trainers {
 public:
  Status open(Events) override { return {}; }
  void stop() override {}
  void train(TrainJob, Done) override {}
  void committed(local::CommittedModel model) override {
    told_.put("round " + std::to_string(model.round.value()) + " of " + model.run_name);
    owes_ = false;
  }
  void none_committed() override {}
  bool owes(RunId, RoundId) const override { return owes_; }
  void let_go() override { told_.put("let go"); }
  void run_active(local::ActiveRun active) override { told_.put(active.name + " goes on"); }
  void run_ended(local::EndedRun ended) override { told_.put(ended.name + " is " + ended.state); }
  void update_refused(local::RefusedUpdate refused) override {
    told_.put("round " + std::to_string(refused.round.value()) + " is refused: " + refused.reason);
  }
  WorkerOutcomes& outcomes() override { return outcomes_; }
  std::size_t workers() const override { return 1; }
  std::string holders() const override { return ""; }

  std::string next() { return told_.take(); }
  bool heard_nothing() { return told_.empty(); }
  void owe() { owes_ = true; }

 private:
  Mailbox<std::string> told_;
  WorkerOutcomes outcomes_;
  bool owes_ = false;
};

class MissingModels final : public SiteReport {
 public:
  void last_model_missing(RunId, RoundId round) override { missing_.put(round); }
  RoundId next() { return missing_.take(); }
  bool none() { return missing_.empty(); }

 private:
  Mailbox<RoundId> missing_;
};

class WorkerNewsTest : public testing::Test {
 protected:
  explicit WorkerNewsTest(std::chrono::milliseconds patience = std::chrono::minutes(1))
      : news_(site_, trainers_, models_, false, patience, [] {}) {}
  ~WorkerNewsTest() override { stop(); }
  template <typename F>
  auto on_strand(F f) {
    return runtime_.on_strand(std::move(f));
  }
  static HeldModel model(std::uint64_t version) {
    const std::vector<float> values = draw(version, 4);
    return held_model(kNewsRun, version, round::Schema::make({{"w", round::DType::kF32, {4}}}).value(),
                      std::as_bytes(std::span(values)));
  }
  void stop() {
    on_strand([&] {
      site_.stop();
      news_.stop();
    });
    runtime_.threads().run(tasks_.join());
  }
  // Its first round is committed, and that was the last one.
  void end_run() {
    on_strand([&] {
      news_.carry_out(news_.ends().opened(kNewsRun, "test", RoundId(1), model(0).ref));
      news_.carry_out(news_.ends().committed(kNewsRun, RoundId(1), model(1).ref));
      news_.carry_out(news_.ends().ended(kNewsRun, "done"));
    });
    EXPECT_EQ(trainers_.next(), "test goes on");
  }

  TestRuntime runtime_;
  net::TaskGroup tasks_{runtime_.get().strand};
  ToldTrainers trainers_;
  MissingModels report_;
  SiteContext site_{.runtime = runtime_.get(),
                    .tasks = tasks_,
                    .self = SiteId(7),
                    .store = runtime_.open_store(),
                    .gpus = nullptr,
                    .report = report_,
                    .outcomes = trainers_.outcomes(),
                    .request_stop = [] {},
                    .is_over = [](RunId) { return false; },
                    .stopped = net::AsyncSignal(runtime_.get().strand)};
  tree::ModelReceiver models_{runtime_.get(), tasks_, {}};  // nothing is wanted
  WorkerNews news_;
};
class ImpatientNewsTest : public WorkerNewsTest {
 protected:
  ImpatientNewsTest() : WorkerNewsTest(std::chrono::milliseconds(1)) {}
};

TEST_F(WorkerNewsTest, TheEndFollowsTheLastModelThatWorkersWaitFor) {
  on_strand([&] { trainers_.owe(); });
  end_run();
  EXPECT_TRUE(trainers_.heard_nothing());
  on_strand([&] { news_.model_held(model(1)); });
  EXPECT_EQ(trainers_.next(), "round 1 of test");
  EXPECT_EQ(trainers_.next(), "let go");
  EXPECT_EQ(trainers_.next(), "test is done");
  EXPECT_TRUE(report_.none());
}

TEST_F(WorkerNewsTest, WhereNobodyWaitsForTheLastModelTheEndIsToldAtOnce) {
  end_run();
  EXPECT_EQ(trainers_.next(), "let go");
  EXPECT_EQ(trainers_.next(), "test is done");
}

TEST_F(ImpatientNewsTest, ALastModelThatDoesNotArriveIsNotWaitedForForEver) {
  on_strand([&] { trainers_.owe(); });
  end_run();
  EXPECT_EQ(report_.next(), RoundId(1));
  EXPECT_EQ(trainers_.next(), "let go");
  EXPECT_EQ(trainers_.next(), "test is done");
}

TEST_F(WorkerNewsTest, ARefusedUpdateIsToldOnceThoughItIsSaidInEachAttempt) {
  on_strand([&] {
    news_.refused(kNewsRun, RoundId(1), "too long");
    news_.refused(kNewsRun, RoundId(1), "too long");
    news_.refused(kNewsRun, RoundId(2), "too long");
    news_.not_used(kNewsRun, RoundId(3), "NaN");
    news_.not_used(kNewsRun, RoundId(3), "NaN");
  });
  for (const char* told : {"round 1 is refused: too long", "round 2 is refused: too long", "round 3 is refused: NaN",
                           "round 3 is refused: NaN"}) {
    EXPECT_EQ(trainers_.next(), told);
  }
  EXPECT_TRUE(trainers_.heard_nothing());
}

TEST_F(WorkerNewsTest, WhoeverStopsTellsNothing) {
  on_strand([&] { trainers_.owe(); });
  end_run();
  stop();
  EXPECT_TRUE(trainers_.heard_nothing());
}

}  // namespace
}  // namespace fluvial::edge
