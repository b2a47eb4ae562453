#include "core/tree/reporter.h"

#include <gtest/gtest.h>

#include "core/tree/test_runtime.h"
#include "core/wire/report_mapping.h"

namespace fluvial::tree {
namespace {

using round::Doing;
using round::NodeReport;

constexpr NodeId kSelf{2};

class ReporterTest : public testing::Test {
 protected:
  explicit ReporterTest(const Reporter::Often& often = {}) {
    own_.node = kSelf;
    own_.doing = Doing::kIdle;
    reporter_ = std::make_unique<Reporter>(
        node_.get(), [this] { return own_; },
        [this](v1::Envelope message) { sent_.put(std::move(*message.mutable_report())); }, often);
  }
  ~ReporterTest() override {
    node_.on_strand([this] { reporter_.reset(); });
  }

  static NodeReport of(std::uint32_t node, Doing doing) {
    NodeReport report;
    report.node = NodeId(node);
    report.doing = doing;
    return report;
  }
  template <typename F>
  void turn(F f) {  // of the strand: what is done in one goes up together
    node_.on_strand(f);
  }
  std::map<NodeId, NodeReport> next() {
    const auto reports = wire::from_proto(sent_.take());
    EXPECT_TRUE(reports.ok());
    std::map<NodeId, NodeReport> by_node;
    for (const NodeReport& report : *reports) by_node[report.node] = report;
    return by_node;
  }

  TestRuntime node_{Role::kAggregator};
  Mailbox<v1::Report> sent_;
  NodeReport own_;
  std::unique_ptr<Reporter> reporter_;
};

TEST_F(ReporterTest, AllThatIsKnownGoesUpWhenAParentIsThere) {
  turn([&] {
    reporter_->below(of(7, Doing::kTraining));
    reporter_->below(of(8, Doing::kSending));
    reporter_->below(of(9, Doing::kIdle));
    reporter_->left(NodeId(9));
    reporter_->parent_up(true);
  });
  auto said = next();
  EXPECT_EQ(said.size(), 3u);
  EXPECT_EQ(said[kSelf].doing, Doing::kIdle);
  EXPECT_EQ(said[NodeId(7)].doing, Doing::kTraining);
  turn([&] {
    reporter_->parent_down();
    reporter_->parent_up(true);
  });
  EXPECT_EQ(next().size(), 3u) << "another parent hears all of it, too";
}

TEST_F(ReporterTest, AParentThatTakesNoReportsGetsNone) {
  turn([&] {
    reporter_->parent_up(false);
    reporter_->changed();
    reporter_->below(of(7, Doing::kTraining));
  });
  turn([&] { reporter_->parent_up(true); });
  EXPECT_EQ(next().size(), 2u);
  EXPECT_TRUE(sent_.empty());
}

TEST_F(ReporterTest, OfEachNodeTheNewestGoesUpAndOnlyWhatChanged) {
  turn([&] { reporter_->parent_up(true); });
  EXPECT_EQ(next().size(), 1u);
  turn([&] {
    reporter_->changed();  // nothing has
    for (int i = 0; i < 1'000; ++i) reporter_->below(of(7, Doing::kTraining));
    reporter_->below(of(7, Doing::kSending));
  });
  auto said = next();
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(said[NodeId(7)].doing, Doing::kSending);
  turn([&] {
    own_.doing = Doing::kMerging;
    own_.bytes_up = 5;
    reporter_->changed();
  });
  said = next();
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(said[kSelf].doing, Doing::kMerging);
}

class RareReportsTest : public ReporterTest {
 protected:
  RareReportsTest() : ReporterTest({.per_second = 1e-6, .at_once = 3}) {}
};

TEST_F(RareReportsTest, AfterARestWhatChangesGoesUpAtOnce) {
  turn([&] { reporter_->parent_up(true); });
  EXPECT_EQ(next()[kSelf].workers, 0u);
  turn([&] {
    own_.workers = 1;
    reporter_->changed();
  });
  EXPECT_EQ(next()[kSelf].workers, 1u);
  turn([&] {
    NodeReport below = of(7, Doing::kIdle);
    below.workers = 1;
    reporter_->below(std::move(below));
  });
  EXPECT_EQ(next()[NodeId(7)].workers, 1u);
}

TEST_F(ReporterTest, ARoundGoesUpOnceAlsoWithoutAParentAtItsEnd) {
  const auto round = [](std::uint64_t number) {
    return round::RoundSpans{RunId(1), RoundId(number), {{round::SpanKind::kTrain, {}, {}, {}}}};
  };
  turn([&] {
    NodeReport below = of(7, Doing::kIdle);
    below.rounds = {round(4)};
    reporter_->below(std::move(below));
    reporter_->below(of(7, Doing::kTraining));
    for (std::uint64_t number = 1; number <= 6; ++number) reporter_->rounds_over({round(number)});
    reporter_->parent_up(true);
  });
  auto said = next();
  ASSERT_EQ(said[kSelf].rounds.size(), round::kReportedRoundsMax);
  EXPECT_EQ(said[kSelf].rounds.front().round, RoundId(3));
  ASSERT_EQ(said[NodeId(7)].rounds.size(), 1u);
  turn([&] {
    reporter_->below(of(7, Doing::kSending));
    reporter_->rounds_over({round(7)});
  });
  said = next();
  ASSERT_EQ(said[kSelf].rounds.size(), 1u);
  EXPECT_TRUE(said[NodeId(7)].rounds.empty());
}

}  // namespace
}  // namespace fluvial::tree
