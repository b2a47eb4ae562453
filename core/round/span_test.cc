#include "core/round/span.h"

#include <gtest/gtest.h>

#include "core/round/report.h"

namespace fluvial::round {
namespace {

constexpr RunId kTracedRun{1};
TimePoint at(int seconds) { return TimePoint(std::chrono::seconds(seconds)); }
Span span(SpanKind kind, int begun, int ended, std::uint32_t about = 0) {
  return {kind, NodeId(about), at(begun), at(ended)};
}

TEST(SpanNames, EachKindHasOneAndItsNumber) {
  for (const SpanKind kind : kSpanKinds) {
    EXPECT_NE(span_name(kind), "unknown");
    EXPECT_EQ(span_kind_from_number(static_cast<std::uint64_t>(kind)), kind);
  }
  EXPECT_FALSE(span_kind_from_number(0));
  EXPECT_FALSE(span_kind_from_number(kSpanKinds.size() + 1));
}

TEST(SpanLog, HasWhatBeganAndEnded) {
  SpanLog log;
  log.begun(kTracedRun, RoundId(3), SpanKind::kStage, at(1), NodeId(7));
  log.begun(kTracedRun, RoundId(3), SpanKind::kStage, at(2), NodeId(8));
  log.begun(kTracedRun, RoundId(3), SpanKind::kStage, at(3), NodeId(7));
  log.ended(kTracedRun, RoundId(3), SpanKind::kStage, at(5), NodeId(7));
  log.ended(kTracedRun, RoundId(4), SpanKind::kStage, at(5), NodeId(8));
  const RoundSpans spans = log.of(kTracedRun, RoundId(3));
  EXPECT_EQ(spans.spans, std::vector{span(SpanKind::kStage, 1, 5, 7)}) << "the first beginning holds";
  EXPECT_TRUE(log.of(kTracedRun, RoundId(4)).spans.empty());
}

TEST(SpanLog, KeepsTheLastRoundsAlone) {
  SpanLog log;
  for (std::uint64_t round = 1; round <= kTracedRounds + 5; ++round) {
    log.add(kTracedRun, RoundId(round), span(SpanKind::kTrain, 1, 2));
  }
  EXPECT_TRUE(log.of(kTracedRun, RoundId(5)).spans.empty());
  EXPECT_EQ(log.of(kTracedRun, RoundId(6)).spans.size(), 1u);
  EXPECT_EQ(log.of(kTracedRun, RoundId(kTracedRounds + 5)).spans.size(), 1u);
}

TEST(SpanLog, OfARoundTheLastSpansStayInTheirOrder) {
  SpanLog log;
  const int count = static_cast<int>(kSpansInRoundMax);
  for (int i = 0; i < count + 3; ++i) log.add(kTracedRun, RoundId(1), span(SpanKind::kStage, i, i + 1));
  const RoundSpans spans = log.of(kTracedRun, RoundId(1));
  ASSERT_EQ(spans.spans.size(), kSpansInRoundMax);
  EXPECT_EQ(spans.spans.front().begun, at(3));
  EXPECT_EQ(spans.spans.back().begun, at(count + 2));
}

TEST(SpanLog, WhatHasBegunIsBoundedToo) {
  SpanLog log;
  for (std::uint32_t i = 0; i <= kSpansInRoundMax; ++i)
    log.begun(kTracedRun, RoundId(1), SpanKind::kStage, at(1), NodeId(i));
  log.ended(kTracedRun, RoundId(1), SpanKind::kStage, at(2), NodeId(0));
  log.ended(kTracedRun, RoundId(1), SpanKind::kStage, at(2), NodeId(1));
  EXPECT_EQ(log.of(kTracedRun, RoundId(1)).spans.size(), 1u);
}

TEST(SpanLog, ARoundIsTakenOnceWithWhatGoesOn) {
  SpanLog log;
  log.add(kTracedRun, RoundId(1), span(SpanKind::kTrain, 1, 2));
  log.add(kTracedRun, RoundId(2), span(SpanKind::kFetch, 3, 4));
  log.begun(kTracedRun, RoundId(2), SpanKind::kTrain, at(5));
  log.add(kTracedRun, RoundId(3), span(SpanKind::kFetch, 6, 7));
  log.add(RunId(2), RoundId(1), span(SpanKind::kFetch, 6, 7));
  const std::vector<RoundSpans> taken = log.take_until(kTracedRun, RoundId(2), at(9));
  ASSERT_EQ(taken.size(), 2u);
  EXPECT_EQ(taken[0].round, RoundId(1));
  EXPECT_EQ(taken[1].spans, (std::vector{span(SpanKind::kFetch, 3, 4), span(SpanKind::kTrain, 5, 9)}));
  EXPECT_TRUE(log.take_until(kTracedRun, RoundId(2), at(10)).empty());
  log.ended(kTracedRun, RoundId(2), SpanKind::kTrain, at(11));
  EXPECT_EQ(log.of(kTracedRun, RoundId(2)).spans.size(), 2u) << "it has ended already";
  log.add(kTracedRun, RoundId(2), span(SpanKind::kEncode, 11, 12));
  const std::vector<RoundSpans> later = log.take_until(kTracedRun, RoundId(2), at(13));
  ASSERT_EQ(later.size(), 1u);
  EXPECT_EQ(later[0].spans, std::vector{span(SpanKind::kEncode, 11, 12)}) << "the others were told";
}

// ---- reports ------------------------------------------------------------------------------------------------------

TEST(NodeReport, EachThingToDoHasAName) {
  for (const Doing doing : kDoings) EXPECT_EQ(doing_from_name(doing_name(doing)), doing);
  EXPECT_EQ(doing_from_name("dancing"), Doing::kUnknown);
}

NodeReport report(Doing doing, std::initializer_list<std::uint64_t> rounds) {
  NodeReport report;
  report.node = NodeId(7);
  report.doing = doing;
  for (const std::uint64_t round : rounds) report.rounds.push_back({kTracedRun, RoundId(round), {}});
  return report;
}

TEST(NodeReport, ANewerOneReplacesAllButTheRoundsThatWait) {
  NodeReport waiting = report(Doing::kTraining, {1, 2, 3});
  waiting.note = "no worker attached";
  replace(waiting, report(Doing::kSending, {4, 5}));
  EXPECT_EQ(waiting.doing, Doing::kSending);
  EXPECT_EQ(waiting.note, "");
  ASSERT_EQ(waiting.rounds.size(), kReportedRoundsMax);
  EXPECT_EQ(waiting.rounds.front().round, RoundId(2)) << "the oldest goes";
  EXPECT_EQ(waiting.rounds.back().round, RoundId(5));
}

TEST(NodeReport, EachEdgeAddsItsOffsetAndItsUncertainty) {
  using std::chrono::milliseconds;
  NodeReport crossing = report(Doing::kIdle, {});
  cross(crossing, ClockOffset{milliseconds(300), milliseconds(4), {}});
  cross(crossing, ClockOffset{milliseconds(-1000), milliseconds(3), {}});
  EXPECT_EQ(crossing.clock, (ClockDistance{milliseconds(-700), milliseconds(7)}));
  cross(crossing, std::nullopt);
  EXPECT_FALSE(crossing.clock);
  cross(crossing, ClockOffset{milliseconds(300), milliseconds(4), {}});
  EXPECT_FALSE(crossing.clock) << "what was not measured once stays unknown";
}

}  // namespace
}  // namespace fluvial::round
