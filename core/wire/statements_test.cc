#include "core/wire/statements.h"

#include <gtest/gtest.h>

#include <functional>
#include <utility>
#include <vector>

namespace fluvial::wire {
namespace {

constexpr round::HistoryId kHistory{9};

Opening an_opening() {
  Opening opening;
  opening.run = RunId(4);
  opening.round = RoundId(3);
  opening.attempt = AttemptId(2);
  opening.epoch = Epoch(70);
  opening.base = {RunId(4), ModelVersion(2), {std::byte{1}}, 4000};
  opening.plan.name = "test";
  opening.plan.worker.values = {
      {"batch", 8.0}, {"alpha", 0.5}, {"zeta", 1.0}, {"network", "small"}, {"widths", std::vector<double>{8, 16}}};
  opening.scale_bits = 30;
  opening.value_count = 1000;
  opening.participants = {{SiteId(7), Epoch(5), 100}};
  opening.continues = {RunId(3), RunId(1)};
  return opening;
}
const std::vector<SiteId> kSites = {SiteId(12), SiteId(7), SiteId(5)};

Commit commit() {
  Commit commit;
  commit.run = RunId(4);
  commit.round = RoundId(3);
  commit.attempt = AttemptId(2);
  commit.model = {RunId(4), ModelVersion(3), {std::byte{2}}, 4000};
  return commit;
}

template <typename Message>
using Change = std::function<void(Message&)>;

TEST(OpeningStatement, SaysEverythingThatARoundAsksOfASite) {
  const std::string body = opening_body(an_opening(), kSites, kHistory);
  EXPECT_TRUE(check_opening(body, an_opening(), kHistory).ok());
  const std::vector<Change<Opening>> lies = {
      [](Opening& o) { o.run = RunId(5); },
      [](Opening& o) { o.round = RoundId(std::uint64_t{1} << 63); },
      [](Opening& o) { o.attempt = AttemptId(3); },
      [](Opening& o) { o.epoch = Epoch(71); },
      [](Opening& o) { o.base.digest[5] = std::byte{1}; },
      [](Opening& o) { o.base.bytes += 4; },
      [](Opening& o) { o.base.version = ModelVersion(1); },
      [](Opening& o) { o.plan.local_steps += 1; },
      [](Opening& o) { o.plan.worker.values["batch"] = 9.0; },
      [](Opening& o) { o.plan.worker.values["network"] = "large"; },
      [](Opening& o) { o.plan.worker.values["nesterov"] = true; },
      [](Opening& o) { o.scale_bits = 31; },
      [](Opening& o) { o.value_count = 999; },
      [](Opening& o) { o.integer_count = 1; },
      [](Opening& o) { o.continues = {RunId(3)}; },
      [](Opening& o) { o.participants.push_back({SiteId(8), Epoch(5), 100}); },
  };
  for (std::size_t i = 0; i < lies.size(); ++i) {
    Opening lie = an_opening();
    lies[i](lie);
    const Status checked = check_opening(body, lie, kHistory);
    ASSERT_FALSE(checked.ok()) << "lie " << i;
    EXPECT_EQ(checked.error().code, Code::kUnauthenticated);
  }
}

TEST(OpeningStatement, SaysThePassAndTheMeanThatItBeginsWith) {
  Opening second = an_opening();
  second.pass = round::Pass{1, 2, 16, round::VectorRef{{std::byte{4}}, 64}, round::VectorRef{{std::byte{5}}, 48}};
  const std::string body = opening_body(second, kSites, kHistory);
  EXPECT_TRUE(check_opening(body, second, kHistory).ok());
  EXPECT_TRUE(check_opening(body, an_opening(), kHistory).ok()) << "a parent that knows no passes leaves it out";
  const std::vector<Change<Opening>> lies = {
      [](Opening& o) { o.pass = round::Pass{0, 2, 16, {}, o.pass->state}; },
      [](Opening& o) { o.pass->count = 3; },
      [](Opening& o) { o.pass->value_count = 15; },
      [](Opening& o) { o.pass->mean->digest[0] = std::byte{6}; },
      [](Opening& o) { o.pass->mean->bytes = 60; },
      [](Opening& o) { o.pass->state->digest[0] = std::byte{6}; },
      [](Opening& o) { o.pass->state.reset(); },
  };
  for (std::size_t i = 0; i < lies.size(); ++i) {
    Opening lie = second;
    lies[i](lie);
    EXPECT_EQ(check_opening(body, lie, kHistory).error().code, Code::kUnauthenticated) << "lie " << i;
  }
  EXPECT_FALSE(check_opening(opening_body(an_opening(), kSites, kHistory), second, kHistory).ok());
}

TEST(OpeningStatement, IsAboutTheRoundAndNotAboutOneChild) {
  const std::string body = opening_body(an_opening(), kSites, kHistory);
  Opening other = an_opening();
  other.participants = {{SiteId(5), Epoch(6), 1}, {SiteId(12), Epoch(6), 1}};
  other.soft_left = std::chrono::milliseconds(5);
  other.counted = {SiteId(5)};
  EXPECT_TRUE(check_opening(body, other, kHistory).ok());
}

TEST(OpeningStatement, IsOfOneHistory) {
  const std::string body = opening_body(an_opening(), kSites, kHistory);
  EXPECT_FALSE(check_opening(body, an_opening(), round::HistoryId(8)).ok());
  EXPECT_FALSE(check_opening("no statement", an_opening(), kHistory).ok());
  EXPECT_FALSE(check_opening("", an_opening(), kHistory).ok());
}

TEST(OpeningStatement, TheSameContentMakesTheSameBytes) {
  Opening same = an_opening();
  const round::WorkerConfig values = std::exchange(same.plan.worker.values, {});
  for (auto value = values.rbegin(); value != values.rend(); ++value) same.plan.worker.values.insert(*value);
  EXPECT_EQ(opening_body(same, {SiteId(5), SiteId(7), SiteId(12)}, kHistory),
            opening_body(an_opening(), kSites, kHistory));
}

TEST(CommitStatement, SaysWhatWasCommitted) {
  const std::string body = commit_body(commit(), "head", kHistory);
  EXPECT_TRUE(check_commit(body, commit(), kHistory).ok());
  const std::vector<Change<Commit>> lies = {
      [](Commit& c) { c.run = RunId(5); },
      [](Commit& c) { c.round = RoundId(std::uint64_t{1} << 63); },
      [](Commit& c) { c.attempt = AttemptId(1); },
      [](Commit& c) { c.model.digest[0] = std::byte{9}; },
      [](Commit& c) { c.last = true; },
  };
  for (const auto& change : lies) {
    Commit lie = commit();
    change(lie);
    EXPECT_FALSE(check_commit(body, lie, kHistory).ok());
  }
  EXPECT_FALSE(check_commit(body, commit(), round::HistoryId(8)).ok());
}

TEST(OutcomeStatement, IsReadAsItWasWritten) {
  const Decided counted{RunId(4), RoundId(3), SiteId(7), round::Outcome::kCounted, Digest{std::byte{3}}};
  const std::string body = outcome_body(counted, kHistory);
  EXPECT_EQ(decided_from(body, kHistory).value(), counted);
  EXPECT_EQ(site_of_outcome(body).value(), SiteId(7));
  EXPECT_FALSE(decided_from(body, round::HistoryId(8)).ok());
  EXPECT_FALSE(decided_from("no statement", kHistory).ok());
  const Decided late{RunId(4), RoundId(3), SiteId(8), round::Outcome::kLate, std::nullopt};
  EXPECT_EQ(decided_from(outcome_body(late, kHistory), kHistory).value(), late);
  const Decided old{RunId(4), RoundId(3), SiteId(8), round::Outcome::kRefused, std::nullopt, RoundId(2)};
  EXPECT_EQ(decided_from(outcome_body(old, kHistory), kHistory).value(), old);
}

TEST(RunStateStatement, SaysTheState) {
  v1::RunState state;
  state.set_run(4);
  state.set_state("stopped");
  state.set_reason("enough");
  const std::string body = run_state_body(state, Epoch(1), kHistory);
  EXPECT_TRUE(check_run_state(body, state, kHistory).ok());
  state.set_state("done");
  EXPECT_FALSE(check_run_state(body, state, kHistory).ok());
  state.set_state("stopped");
  state.set_run(5);
  EXPECT_FALSE(check_run_state(body, state, kHistory).ok());
}

TEST(ContributionStatement, SaysWhatCounts) {
  const round::Contribution given{SiteId(7), Epoch(5), 100, Digest{std::byte{1}}, 0, {}, Incarnation(2), 8};
  const auto body = [&](const Change<round::Contribution>& change, std::uint64_t run = 4, std::uint64_t round = 3,
                        Digest base = {}) {
    round::Contribution other = given;
    change(other);
    return contribution_body(RunId(run), RoundId(round), base, other);
  };
  const auto nothing = [](round::Contribution&) {};
  const std::string honest = body(nothing);
  EXPECT_NE(honest, body(nothing, 5));
  EXPECT_NE(honest, body(nothing, 4, 4));
  EXPECT_NE(honest, body(nothing, 4, 3, Digest{std::byte{1}}));
  EXPECT_NE(honest, body([](auto& c) { c.site = SiteId(8); }));
  EXPECT_NE(honest, body([](auto& c) { c.weight = 101; }));
  EXPECT_NE(honest, body([](auto& c) { c.digest[31] = std::byte{1}; }));
  EXPECT_NE(honest, body([](auto& c) { c.incarnation = Incarnation(3); }));
  EXPECT_NE(honest, body([](auto& c) { c.submission = 9; }));
  EXPECT_EQ(honest, body([](auto& c) {
              c.lease = Epoch(6);  // moves with the parent
              c.probe = 4;
              c.metrics = {{"loss", 1}};
            }));
}

// One of a round with one pass has the bytes that it always had.
TEST(ContributionStatement, SaysTheMeanThatItIsFrom) {
  round::Contribution given;
  given.site = SiteId(8);
  given.weight = 3;
  const auto body = [&] { return contribution_body(RunId(4), RoundId(3), {}, given); };
  const std::string first = body();
  v1::ContributionStatement stated;
  ASSERT_TRUE(stated.ParseFromString(first));
  EXPECT_TRUE(stated.mean_sha256().empty());
  given.from = {1, {std::byte{1}}};
  const std::string second = body();
  EXPECT_NE(second, first);
  given.from.mean[0] = std::byte{2};
  EXPECT_NE(body(), second) << "of another attempt's mean";
}

}  // namespace
}  // namespace fluvial::wire
