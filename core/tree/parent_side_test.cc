// A parent's side of the open round, without sockets: children that remember what they were told, and an owner that
// says what the test tells it to.
#include "core/tree/parent_side.h"

#include <gmock/gmock.h>

#include <chrono>
#include <map>
#include <utility>
#include <vector>

#include "core/transfer/test_support.h"
#include "core/tree/test_runtime.h"

namespace fluvial::tree {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using transfer::test_head;
using transfer::test_values;

const RunId kRun(1);
const RoundId kRound(1);
constexpr round::MadeFrom kSecond{1, {std::byte{7}}};

class FakeChildren final : public Children {
 public:
  std::set<NodeId> nodes() const override { return {NodeId(8), NodeId(9)}; }
  void send(NodeId child, v1::Envelope message) override { told.emplace_back(child, std::move(message)); }
  transfer::RoundBook& book() override { return book_; }
  const store::StagingBudget& budget() const override { return budget_; }
  void sums(std::uint64_t value_count) override { summed_values = value_count; }
  std::vector<std::pair<NodeId, v1::Envelope>> told;
  std::uint64_t summed_values = 0;

 private:
  store::StagingBudget budget_{1 << 20};
  transfer::RoundBook book_;
};

// Sites 1 and 2 are below node 8, site 3 below node 9.
class FakeOwner final : public RoundOwner {
 public:
  bool is_current(RunId run, RoundId round) const override { return run == kRun && round == kRound; }
  bool takes(RunId run, RoundId round, bool) const override {
    return is_current(run, round) || (run == kRun && round == before);
  }
  round::MadeFrom made_from() const override { return open_pass; }
  const round::Gather& gather() const override { return gather_; }
  Status may_take(const transfer::UpdateHead& head) const override {
    return gather_.admit(head.site, head.lease, head.weight);
  }
  Status may_take(const transfer::PartialHead& head) const override { return gather_.admit(head.what.contributors); }
  Result<transfer::Terms> terms(bool) override { return transfer::test_terms(); }
  NodeId via(SiteId site) const override { return site <= SiteId(2) ? NodeId(8) : NodeId(9); }
  NodeId way_to(const round::Participant& participant) const override { return via(participant.site); }
  AttemptId open_attempt() const override { return attempt; }
  bool is_here(SiteId site) const override { return here.contains(site); }
  void heard(SiteId site) override { heard_of.insert(site); }
  bool may_bring(NodeId child, SiteId site) const override { return via(site) == child; }
  std::uint32_t share(SiteId site) const override { return gather_.share(site); }
  std::vector<SiteId> miscounted(const round::ContributorSet&) const override { return wrong; }
  std::set<SiteId> heard_of;
  void staged(ArrivalId arrival, const round::Arrival& what) override { arrivals.emplace_back(arrival, what); }
  void taken(ArrivalId, const round::ContributorSet& with_probes) override {
    sum = with_probes;
    if (on_taken) on_taken();
  }
  void take_failed(ArrivalId, NodeId, const Error& error) override { failures.push_back(error); }
  void will_not_be_in(const round::Refusal& refusal) override { refusals.push_back(refusal); }
  void has_declined(AttemptId, const round::Refusal& refusal) override { declines.push_back(refusal); }
  bool knows_authors() override { return true; }
  void are_accused(NodeId by, const std::vector<round::Refusal>& conflicts) override {
    for (const round::Refusal& conflict : conflicts) accused.emplace_back(by, conflict.site);
  }

  round::Gather gather_{{{SiteId(1), Epoch(1), 100}, {SiteId(2), Epoch(1), 100}, {SiteId(3), Epoch(1), 100}}};
  std::vector<std::pair<ArrivalId, round::Arrival>> arrivals;
  std::vector<round::Refusal> refusals;
  std::vector<round::Refusal> declines;
  std::vector<std::pair<NodeId, SiteId>> accused;
  std::vector<Error> failures;
  round::ContributorSet sum;
  RoundId before;  // the window before, whose updates may come in; 0: there are none
  std::vector<SiteId> wrong;
  AttemptId attempt{1};
  round::MadeFrom open_pass;
  std::set<SiteId> here{SiteId(1), SiteId(2)};
  std::function<void()> on_taken;
};

class ParentSideTest : public transfer::TransferTest {
 protected:
  ParentSideTest() {
    side_.begin_sum(kRun, kRound, {{transfer::kTestValues, transfer::kTestChunkValues}, 0, transfer::kTestScale});
    side_.begin();
  }
  ArrivalId bring(std::uint32_t site) {
    side_.arrived(arrival(test_head(site), test_values(1)));
    return owner_.arrivals.back().first;
  }
  // What node `via` says that these sites bring together.
  static transfer::PartialHead partial(std::uint32_t via, std::initializer_list<std::uint32_t> sites) {
    transfer::PartialHead head;
    head.child = NodeId(via);
    head.run = kRun;
    head.round = kRound;
    head.sequence = 5;
    for (const std::uint32_t id : sites) {
      EXPECT_TRUE(head.what.contributors.add({SiteId(id), Epoch(1), 10, {}, 0, {}}).ok());
    }
    return head;
  }
  const v1::Receipt& last_receipt() const { return children_.told.back().second.receipt(); }

  TestRuntime runtime_{Role::kAggregator, 1};
  telemetry::Metrics& metrics_ = runtime_.metrics();
  FakeOwner owner_;
  FakeChildren children_;
  ParentSide side_{runtime_.get(), owner_, children_};
};

TEST_F(ParentSideTest, ItsChildrenAreToldHowLargeTheModelIsThatIsSummed) {
  EXPECT_EQ(children_.summed_values, transfer::kTestValues);
  const auto reset = [this](RunId run, std::uint64_t values) {
    side_.reset_sum(run, {{values, transfer::kTestChunkValues}, 0, transfer::kTestScale});
  };
  reset(kRun, 5 * transfer::kTestValues);
  EXPECT_EQ(children_.summed_values, 5 * transfer::kTestValues);
  reset(kRun, transfer::kTestValues);
  EXPECT_EQ(children_.summed_values, 5 * transfer::kTestValues) << "of the longest pass";
  reset(RunId(2), transfer::kTestValues);
  EXPECT_EQ(children_.summed_values, transfer::kTestValues) << "another run's model";
}

TEST_F(ParentSideTest, TheOpenRoundIsMeasuredWhenItIsScraped) {
  const auto sites = [this](const char* state) { return metrics_.gauge("round_sites", {{"state", state}}).value(); };
  metrics_.measure();
  EXPECT_EQ(metrics_.gauge("attempt").value(), 1);
  EXPECT_GT(metrics_.gauge("round_age_seconds").value(), 0);
  EXPECT_EQ(metrics_.gauge("pass").value(), 1);
  EXPECT_EQ(sites("awaited"), 2);
  EXPECT_EQ(sites("away"), 1) << "site 3 is not connected";
  const ArrivalId arrival = bring(1);
  owner_.gather_.begin_take(owner_.arrivals.back().second.contributors);
  owner_.gather_.refuse({SiteId(2), {Code::kDataLoss, "NaN"}});
  owner_.gather_.mark_missing({SiteId(3)});
  metrics_.measure();
  EXPECT_EQ(sites("in"), 1);
  EXPECT_EQ(sites("refused"), 1);
  EXPECT_EQ(sites("missing"), 1);
  EXPECT_EQ(sites("awaited") + sites("away"), 0);
  EXPECT_EQ(metrics_.gauge("staging_limit_bytes").value(), static_cast<double>(children_.budget().bytes_max()));
  const telemetry::Labels fp32{{"tier", "children"}, {"codec", "fp32"}};
  EXPECT_EQ(metrics_.counter("update_bytes_total", fp32).value(), 4.0 * transfer::kTestValues);
  EXPECT_EQ(metrics_.counter("update_fp32_bytes_total", fp32).value(), 4.0 * transfer::kTestValues);
  side_.take(arrival);
  metrics_.measure();
  EXPECT_GE(metrics_.gauge("lane_tasks").value(), 1);
  owner_.attempt = AttemptId(0);
  metrics_.measure();
  EXPECT_EQ(metrics_.gauge("attempt").value() + metrics_.gauge("pass").value() + sites("in") +
                metrics_.gauge("round_age_seconds").value(),
            0);
}

TEST_F(ParentSideTest, WhatComesForAnotherRoundIsStaleAndNotStaged) {
  transfer::UpdateHead late = test_head(1);
  late.round = RoundId(2);
  EXPECT_EQ(side_.admit(late).error().code, Code::kStale);
  transfer::PartialHead partial = ParentSideTest::partial(8, {1});
  partial.round = RoundId(2);
  EXPECT_EQ(side_.admit(partial).error().code, Code::kStale);
  EXPECT_TRUE(side_.without(partial).empty());
  side_.arrived(arrival(late, test_values(1)));
  EXPECT_TRUE(owner_.arrivals.empty());
  ASSERT_EQ(children_.told.size(), 1U);
  EXPECT_EQ(last_receipt().code(), wire::status_code_to_proto(Error{Code::kStale, ""}));
  EXPECT_EQ(last_receipt().site(), 1U);
  EXPECT_EQ(budget_.bytes_used(), 0U) << "it was let go";
  side_.refused(kRun, RoundId(2), {}, {SiteId(1), {Code::kDataLoss, "NaN"}});
  EXPECT_TRUE(owner_.refusals.empty());
}

TEST_F(ParentSideTest, WhatComesForAPassThatIsOverIsStaleAndNotStaged) {
  EXPECT_TRUE(side_.admit(test_head(1)).ok());
  owner_.open_pass = kSecond;  // while it was on its way
  side_.arrived(arrival(test_head(1), test_values(1)));
  EXPECT_TRUE(owner_.arrivals.empty());
  EXPECT_EQ(last_receipt().code(), wire::status_code_to_proto(Error{Code::kStale, ""}));
  EXPECT_EQ(last_receipt().pass(), 0U);
  EXPECT_EQ(budget_.bytes_used(), 0U) << "it was let go";
}

TEST_F(ParentSideTest, WhatComesForAnotherAttemptsMeanIsStaleAndNotStaged) {
  owner_.open_pass = {kSecond.pass, {std::byte{9}}};
  transfer::StagedArrival earlier = arrival(test_head(1), test_values(1));
  earlier.from = kSecond;
  side_.arrived(std::move(earlier));
  EXPECT_TRUE(owner_.arrivals.empty());
  side_.refused(kRun, kRound, kSecond, {SiteId(1), {Code::kDataLoss, "NaN"}});
  EXPECT_TRUE(owner_.refusals.empty()) << "of an update that would not be in this sum";
  side_.refused(kRun, kRound, owner_.open_pass, {SiteId(1), {Code::kDataLoss, "NaN"}});
  EXPECT_EQ(owner_.refusals.size(), 1U);
}

// The gather is that of the open pass: what it says of sites is not about the pass before.
TEST_F(ParentSideTest, WhatIsOfAnotherPassIsStaleWhateverTheGatherSays) {
  owner_.open_pass = kSecond;
  owner_.gather_ = round::Gather({{SiteId(3), Epoch(1), 100}});  // who missed the first pass takes no part
  EXPECT_EQ(side_.admit(test_head(1)).error().code, Code::kStale);
  EXPECT_EQ(side_.admit(partial(8, {1, 2})).error().code, Code::kStale);
  EXPECT_TRUE(side_.without(partial(8, {1, 2})).empty()) << "its sender would let go of what it has";
  transfer::UpdateHead fits = test_head(1);
  fits.from = kSecond;
  EXPECT_EQ(side_.admit(fits).error().code, Code::kFailedPrecondition) << "no participant";
}

TEST_F(ParentSideTest, AnUpdateIsStagedAddedToTheSumAndAnswered) {
  EXPECT_TRUE(side_.admit(test_head(1)).ok());
  const ArrivalId id = bring(1);
  EXPECT_GT(budget_.bytes_used(), 0U);
  EXPECT_TRUE(children_.told.empty()) << "verified is not taken";
  owner_.on_taken = [this] { side_.lane().stop(); };
  side_.take(id);
  runtime_.run(side_.lane().run());
  ASSERT_TRUE(owner_.sum.contains(SiteId(1)));
  EXPECT_TRUE(owner_.sum.find(SiteId(1))->times.known()) << "when it was begun, verified and added";
  ASSERT_EQ(children_.told.size(), 1U);
  EXPECT_EQ(last_receipt().code(), wire::status_code_to_proto(Status{}));
  side_.release(id);
  EXPECT_EQ(budget_.bytes_used(), 0U);
}

// A pass may be as long as the one before: P and Q of a square matrix are.
TEST_F(ParentSideTest, APassBeginsAtNothing) {
  const transfer::SumShape shape{{transfer::kTestValues, transfer::kTestChunkValues}, 0, transfer::kTestScale};
  std::vector<float> before(transfer::kTestValues), after(transfer::kTestValues);
  const auto mean_of = [this](std::vector<float>& values) {
    ASSERT_TRUE(side_.sum().node().accumulator().mean(0, 1, values).ok());
  };
  owner_.on_taken = [&] {
    mean_of(before);
    side_.begin_sum(kRun, kRound, shape, kSecond.pass);
    side_.lane().push([&]() -> net::Awaitable<void> {
      mean_of(after);
      side_.lane().stop();
      co_return;
    });
  };
  side_.take(bring(1));
  runtime_.run(side_.lane().run());
  EXPECT_NE(before, std::vector<float>(transfer::kTestValues));
  EXPECT_EQ(after, std::vector<float>(transfer::kTestValues));
}

// Who merely took no part in the window before is wanted in this one; whose update can never be used has that to hear.
TEST_F(ParentSideTest, OfTheWindowBeforeOnlyWhatDropsAnUpdateIsPassedOn) {
  owner_.before = RoundId(kRound.value() + 7);
  side_.refused(kRun, owner_.before, {}, {SiteId(1), {Code::kUnavailable, "not now"}});
  EXPECT_TRUE(owner_.refusals.empty());
  side_.refused(kRun, owner_.before, {}, {SiteId(1), {Code::kDataLoss, "not finite"}});
  ASSERT_EQ(owner_.refusals.size(), 1U);
  EXPECT_EQ(owner_.refusals[0].own, owner_.before);
  side_.refused(kRun, kRound, {}, {SiteId(2), {Code::kUnavailable, "not now"}});
  EXPECT_EQ(owner_.refusals.size(), 2U);
}

TEST_F(ParentSideTest, WhoIsAccusedIsSaidWithWhoAccusesAndOfNoOtherRound) {
  const std::vector<round::Refusal> conflicts = {{SiteId(1), {Code::kConflict, "two contents"}}};
  side_.accused(kRun, RoundId(kRound.value() + 7), NodeId(8), conflicts);
  EXPECT_TRUE(owner_.accused.empty());
  side_.accused(kRun, kRound, NodeId(8), conflicts);
  ASSERT_EQ(owner_.accused.size(), 1U);
  EXPECT_EQ(owner_.accused[0], std::pair(NodeId(8), SiteId(1)));
}

TEST_F(ParentSideTest, AFencedPartialHearsWhomItMustDoWithoutAndAnUpdateWhyAlone) {
  owner_.gather_.begin_take(partial(8, {2}).what.contributors);
  transfer::StagedArrival both;
  both.kind = transfer::PartialArrival{5};
  both.child = NodeId(8);
  both.run = kRun;
  both.round = kRound;
  both.what = partial(8, {1, 2}).what;
  side_.arrived(std::move(both));
  const Error error{Code::kAlreadyExists, "counted"};
  side_.drop(owner_.arrivals.back().first, error);
  EXPECT_THAT(last_receipt().without(), ElementsAre(2U));
  EXPECT_EQ(last_receipt().sequence(), 5U);
  side_.drop(bring(2), error);
  EXPECT_TRUE(last_receipt().without().empty());
  EXPECT_EQ(last_receipt().site(), 2U);
  const std::size_t told = children_.told.size();
  side_.drop(owner_.arrivals.back().first, error);
  EXPECT_EQ(children_.told.size(), told) << "once";
}

TEST_F(ParentSideTest, APartialHearsOfWhomTheOwnerHoldsAnotherShare) {
  owner_.wrong = {SiteId(1)};
  EXPECT_THAT(side_.without(partial(8, {1, 2})), ElementsAre(SiteId(1)));
  owner_.gather_.begin_take(partial(8, {1, 2}).what.contributors);
  EXPECT_THAT(side_.without(partial(8, {1, 2})), ElementsAre(SiteId(1), SiteId(2))) << "each once";
}

// Its parent says what an update counts for; what a partial says of others is for the root.
TEST_F(ParentSideTest, AnUpdateHasTheShareThatItsWindowGivesItsSite) {
  owner_.gather_.update({{SiteId(1), Epoch(1), 100, 48}, {SiteId(2), Epoch(1), 100, 48}}, {});
  bring(1);
  EXPECT_EQ(owner_.arrivals.back().second.contributors.find(SiteId(1))->share, 48U);
  bring(3);
  EXPECT_EQ(owner_.arrivals.back().second.contributors.find(SiteId(3))->share, round::kWholeFactor);
  transfer::StagedArrival other;
  other.kind = transfer::PartialArrival{5};
  other.child = NodeId(8);
  other.run = kRun;
  other.round = kRound;
  other.what = partial(8, {2}).what;
  side_.arrived(std::move(other));
  EXPECT_EQ(owner_.arrivals.back().second.contributors.find(SiteId(2))->share, round::kWholeFactor);
}

TEST_F(ParentSideTest, NobodySpeaksForASiteBelowAnother) {
  EXPECT_EQ(side_.admit(partial(8, {1, 3})).error().code, Code::kPermissionDenied);
  EXPECT_THAT(side_.without(partial(8, {1, 3})), ElementsAre(SiteId(3)));
  EXPECT_TRUE(side_.admit(partial(8, {1, 2})).ok());
  const round::Refusal no{SiteId(3), {Code::kInternal, "out of memory"}};
  side_.declined(NodeId(8), {kRun, kRound, AttemptId(1), no});
  EXPECT_TRUE(owner_.declines.empty());
  side_.declined(NodeId(9), {kRun, kRound, AttemptId(1), no});
  EXPECT_EQ(owner_.declines.size(), 1U);
}

TEST_F(ParentSideTest, ToldIsWhomItConcernsOfAnOpeningAndEverybodyOfACommit) {
  wire::Opening opening;
  opening.run = kRun;
  opening.round = kRound;
  side_.send_openings(opening, 10s, 20s, {NodeId(9)});
  ASSERT_EQ(children_.told.size(), 1U);
  const v1::RoundOpen& cut = children_.told[0].second.round_open();
  ASSERT_EQ(cut.participants_size(), 1);
  EXPECT_EQ(cut.participants(0).site(), 3U);
  EXPECT_EQ(cut.soft_deadline_ms(), 10'000U);
  EXPECT_EQ(cut.hard_deadline_ms(), 20'000U);
  EXPECT_THAT(side_.told_of({SiteId(1), SiteId(3)}), ElementsAre(NodeId(9)));
  side_.begin();
  EXPECT_TRUE(side_.told_of({SiteId(3)}).empty()) << "of another round nobody has been told";
  wire::Commit commit;
  commit.contributors = partial(8, {1, 2}).what.contributors;
  side_.send_commits(commit);
  ASSERT_EQ(children_.told.size(), 3U) << "two more";
  EXPECT_EQ(children_.told[1].second.round_commit().contributors_size(), 2);
  EXPECT_EQ(children_.told[2].second.round_commit().contributors_size(), 0);
}

}  // namespace
}  // namespace fluvial::tree
