// Whom committed models are given to, and when a run's evaluations are over.
#include "coordinator/service/evaluator.h"

#include <gmock/gmock.h>

#include <array>
#include <set>

#include "core/tree/test_runtime.h"

namespace fluvial::coordinator {
namespace {

using ::testing::ElementsAre;
using Evaluated = std::pair<RunId, RoundId>;

constexpr RunId kRunOne(1), kRunAfter(2);
constexpr local::WorkerId kEvaluatingWorker(7);

class EvaluatorTest : public ::testing::Test {
 protected:
  ~EvaluatorTest() override { runtime_.run(tasks_.join()); }

  void attach() {
    runtime_.on_strand([this] { evaluator_->worker_attached(kEvaluatingWorker, {}); });
  }
  void committed(RunId run, std::uint64_t version, std::size_t bytes) {  // on the strand
    const SharedBytes model{nullptr, {memory_.data(), bytes}};
    evaluator_->committed({run, ModelVersion(version), {}, bytes}, model, std::make_shared<round::Schema>(), {});
  }
  void commit(RunId run, std::uint64_t version) {
    runtime_.on_strand([&] { committed(run, version, memory_.size()); });
  }
  void evaluated() {
    runtime_.on_strand([this] { evaluator_->task_done(kEvaluatingWorker, {}); });
  }
  std::set<RunId> awaited() {
    return runtime_.on_strand([this] {
      std::set<RunId> runs;
      for (const RunId run : {kRunOne, kRunAfter}) {
        if (evaluator_->awaits(run)) runs.insert(run);
      }
      return runs;
    });
  }

  std::array<std::byte, 8> memory_{};
  tree::TestRuntime runtime_{Role::kCoordinator};
  net::TaskGroup tasks_{runtime_.get().strand, [](const std::string&, const std::string&) {}};
  std::vector<Evaluated> done_;
  tree::Mailbox<int> less_;
  std::shared_ptr<Evaluator> evaluator_ = std::make_shared<Evaluator>(
      runtime_.get(), tasks_,
      [this](RunId run, RoundId round, const round::Metrics&) { done_.emplace_back(run, round); },
      [this] { less_.put(0); });
};

TEST_F(EvaluatorTest, ARunIsAwaitedWhileAWorkerHasItsModelOrItIsTheNext) {
  commit(kRunOne, 1);
  EXPECT_THAT(awaited(), ElementsAre()) << "nobody evaluates";
  attach();
  commit(kRunAfter, 1);
  EXPECT_THAT(awaited(), ElementsAre(kRunOne, kRunAfter));
  evaluated();
  EXPECT_THAT(awaited(), ElementsAre(kRunAfter)) << "the worker is busy, but not with that one";
  evaluated();
  EXPECT_THAT(awaited(), ElementsAre());
  EXPECT_THAT(done_, ElementsAre(Evaluated(kRunOne, RoundId(1)), Evaluated(kRunAfter, RoundId(1))));
}

TEST_F(EvaluatorTest, WhatIsTheNextNoMoreIsNotAwaited) {
  attach();
  commit(kRunAfter, 1);
  commit(kRunOne, 5);
  EXPECT_THAT(awaited(), ElementsAre(kRunOne, kRunAfter));
  commit(kRunAfter, 2);
  EXPECT_THAT(awaited(), ElementsAre(kRunAfter));
}

TEST_F(EvaluatorTest, AWorkerThatLeavesIsNotAwaited) {
  attach();
  commit(kRunOne, 1);
  runtime_.on_strand([this] { evaluator_->worker_detached(kEvaluatingWorker, "killed"); });
  EXPECT_THAT(awaited(), ElementsAre());
}

TEST_F(EvaluatorTest, AModelForWhichThereIsNoMemoryIsLeftOut) {
  attach();
  runtime_.on_strand([this] {
    committed(kRunOne, 1, std::size_t{1} << 60);
    committed(kRunOne, 2, memory_.size());  // before anybody could share the one before
  });
  while (!runtime_.log().contains("no memory to evaluate a model; it is left out")) less_.take();
  EXPECT_THAT(awaited(), ElementsAre(kRunOne)) << "the worker has the one that came meanwhile";
  evaluated();
  EXPECT_THAT(done_, ElementsAre(Evaluated(kRunOne, RoundId(2))));
  EXPECT_THAT(awaited(), ElementsAre());
}

}  // namespace
}  // namespace fluvial::coordinator
