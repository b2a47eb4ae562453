#include "coordinator/logic/timeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace fluvial::coordinator {
namespace {

using round::Span;
using round::SpanKind;
using enum round::SpanKind;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr RunId kRun{1};
constexpr RoundId kRound{17};
constexpr NodeId kTheRoot{0};
constexpr NodeId kEu{2};
constexpr NodeId kSiteA{7};
constexpr NodeId kSiteB{8};

TimePoint at(double s) { return TimePoint(std::chrono::hours(3) + milliseconds(std::llround(s * 1e3))); }
Span span(SpanKind kind, double begun, double ended, NodeId about = {}) { return {kind, about, at(begun), at(ended)}; }
Duration s(double value) { return milliseconds(std::llround(value * 1e3)); }

std::string name(NodeId node) {
  if (node == kTheRoot) return "coordinator";
  return node == kEu ? "eu" : node == kSiteA ? "hospital-a" : "hospital-b";
}

// Two sites below an aggregator below the root: b trains for longer.
RoundTrace round_of_two() {
  RoundTrace trace{kRun, kRound, AttemptId(1), at(0), {}, at(4.1), {}};
  trace.nodes[kTheRoot] = {
      .told = true,
      .spans = {span(kFsync, 0, 0.05), span(kStage, 3.9, 4.0, kEu), span(kAccumulate, 4.0, 4.02, kEu),
                span(kFinalise, 4.02, 4.06), span(kFsync, 4.06, 4.1)}};
  trace.nodes[kEu] = {
      .parent = kTheRoot,
      .told = true,
      .spans = {span(kStage, 1.2, 1.5, kSiteA), span(kAccumulate, 1.5, 1.6, kSiteA), span(kStage, 3.3, 3.8, kSiteB),
                span(kAccumulate, 3.8, 3.88, kSiteB), span(kSend, 3.88, 3.95)}};
  trace.nodes[kSiteA] = {
      .parent = kEu, .told = true, .spans = {span(kTrain, 0.1, 1.1), span(kEncode, 1.1, 1.2), span(kSend, 1.2, 1.4)}};
  trace.nodes[kSiteB] = {
      .parent = kEu, .told = true, .spans = {span(kTrain, 0.1, 3.2), span(kEncode, 3.2, 3.3), span(kSend, 3.3, 3.7)}};
  return trace;
}

Duration sum_of(const std::vector<CriticalStep>& path) {
  Duration sum{};
  for (const CriticalStep& step : path) sum += step.time;
  return sum;
}

TEST(CriticalPath, LeadsFromTheCommitToWhatItWaitedFor) {
  const std::vector<CriticalStep> path = critical_path(round_of_two());
  const std::vector<CriticalStep> expected = {{"fsync", kTheRoot, s(0.05)},    {kWaiting, kSiteB, s(0.05)},
                                              {"train", kSiteB, s(3.1)},       {"encode", kSiteB, s(0.1)},
                                              {"send", kSiteB, s(0.5)},        {"accumulate", kEu, s(0.08)},
                                              {"send", kEu, s(0.12)},          {"accumulate", kTheRoot, s(0.02)},
                                              {"finalise", kTheRoot, s(0.04)}, {"fsync", kTheRoot, s(0.04)}};
  ASSERT_EQ(path.size(), expected.size());
  for (std::size_t i = 0; i < path.size(); ++i) {
    EXPECT_EQ(path[i].name, expected[i].name) << i;
    EXPECT_EQ(path[i].node, expected[i].node) << i;
    EXPECT_EQ(path[i].time, expected[i].time) << i;
  }
  EXPECT_EQ(sum_of(path), s(4.1));
}

// In the first pass everybody waited for a, in the second for b.
TEST(CriticalPath, LeadsThroughTheMeanIntoThePassBefore) {
  RoundTrace trace{kRun, kRound, AttemptId(1), at(0), {}, at(4), {}};
  trace.nodes[kTheRoot] = {
      .told = true,
      .spans = {span(kFsync, 0, 0.1), span(kStage, 1.2, 1.3, kSiteB), span(kAccumulate, 1.3, 1.4, kSiteB),
                span(kStage, 2.2, 2.4, kSiteA), span(kAccumulate, 2.4, 2.5, kSiteA), span(kFinalise, 2.5, 2.6),
                span(kStage, 2.8, 2.9, kSiteA), span(kAccumulate, 2.9, 3, kSiteA), span(kStage, 3.5, 3.6, kSiteB),
                span(kAccumulate, 3.6, 3.7, kSiteB), span(kFinalise, 3.7, 3.8), span(kFsync, 3.8, 4)}};
  trace.nodes[kSiteA] = {.told = true,
                         .spans = {span(kTrain, 0.1, 2), span(kEncode, 2, 2.2), span(kSend, 2.2, 2.3),
                                   span(kEncode, 2.7, 2.8), span(kSend, 2.8, 2.9)}};
  trace.nodes[kSiteB] = {.told = true,
                         .spans = {span(kTrain, 0.1, 1), span(kEncode, 1, 1.2), span(kSend, 1.2, 1.3),
                                   span(kEncode, 2.7, 3.5), span(kSend, 3.5, 3.6)}};
  const std::vector<CriticalStep> path = critical_path(trace);
  const std::vector<CriticalStep> expected = {
      {"fsync", kTheRoot, s(0.1)},      {"train", kSiteA, s(1.9)},        {"encode", kSiteA, s(0.2)},
      {"send", kSiteA, s(0.2)},         {"accumulate", kTheRoot, s(0.1)}, {"finalise", kTheRoot, s(0.1)},
      {kWaiting, kSiteB, s(0.1)},       {"encode", kSiteB, s(0.8)},       {"send", kSiteB, s(0.1)},
      {"accumulate", kTheRoot, s(0.1)}, {"finalise", kTheRoot, s(0.1)},   {"fsync", kTheRoot, s(0.2)}};
  EXPECT_EQ(path, expected);
  EXPECT_EQ(sum_of(path), s(4));
}

TEST(CriticalPath, WhatIsSentWhileItIsEncodedWaitsForThat) {
  RoundTrace trace = round_of_two();
  trace.nodes[kSiteB].spans = {span(kTrain, 0.1, 2.2), span(kEncode, 2.2, 3.3), span(kSend, 2.3, 3.7)};
  const std::vector<CriticalStep> path = critical_path(trace);
  ASSERT_EQ(path.size(), 10u);
  EXPECT_EQ(path[2].name, "train");
  EXPECT_EQ(path[2].time, s(2.1));
  EXPECT_EQ(path[3].name, "encode");
  EXPECT_EQ(path[3].time, s(1.1));
  EXPECT_EQ(path[4].name, "send");
  EXPECT_EQ(path[4].time, s(0.5));
  EXPECT_EQ(sum_of(path), s(4.1));
}

TEST(CriticalPath, InWords) {
  const RoundTrace trace = round_of_two();
  EXPECT_EQ(
      words_of(trace, critical_path(trace), name),
      "round 17 took 4.1 s: 50 ms syncing the disk at coordinator, 50 ms waiting at hospital-b, 3.1 s its "
      "training, 100 ms its encoding, 500 ms its upload, 80 ms adding at eu, 120 ms its upload, 100 ms in 3 short "
      "steps");
}

TEST(CriticalPath, WhatANodeGoesOnWithIsSaidOnce) {
  RoundTrace trace{kRun, kRound, AttemptId(1), at(0), {}, at(1), {}};
  const std::vector<CriticalStep> path = {{"train", kSiteA, s(0.8)},     {"finalise", kTheRoot, s(0.1)},
                                          {"fsync", kTheRoot, s(0.03)},  {"finalise", kTheRoot, s(0.005)},
                                          {"fsync", kTheRoot, s(0.045)}, {"publish", kTheRoot, s(0.02)}};
  EXPECT_EQ(
      words_of(trace, path, name),
      "round 17 took 1.0 s: 800 ms training at hospital-a, 100 ms finalising at coordinator, 75 ms its syncing of "
      "the disk, 20 ms its publishing, 5 ms in 1 short step");
}

// The additions stand in a queue: what ended last before one is not what it waited for if it is another's arrival.
TEST(CriticalPath, AnAdditionWaitsForItsOwnArrivalAndForAdditionsBefore) {
  RoundTrace trace = round_of_two();
  trace.nodes[kEu].spans = {span(kStage, 1.2, 1.5, kSiteA), span(kStage, 1.3, 1.9, kSiteB),
                            span(kAccumulate, 1.95, 3.0, kSiteA), span(kAccumulate, 3.0, 3.8, kSiteB),
                            span(kSend, 3.88, 3.95)};
  const std::vector<CriticalStep> path = critical_path(trace);
  const auto find = [&](std::string_view what, NodeId node) {
    const auto found =
        std::ranges::find_if(path, [&](const auto& one) { return one.name == what && one.node == node; });
    return found == path.end() ? Duration(0) : found->time;
  };
  EXPECT_EQ(find("accumulate", kEu), s(1.85)) << "both: the second waited for the first";
  EXPECT_EQ(find("send", kSiteA), s(0.3)) << "the first waited for a's transfer";
  EXPECT_EQ(find("train", kSiteB), Duration(0));
  EXPECT_EQ(sum_of(path), s(4.1));
}

TEST(CriticalPath, AModelIsFetchedAsFastAsItComesToTheParent) {
  RoundTrace trace = round_of_two();
  trace.nodes[kSiteB].spans = {span(kFetch, 0.1, 2.2), span(kTrain, 2.2, 3.3), span(kSend, 3.3, 3.7)};
  trace.nodes[kEu].spans.push_back(span(kFetch, 0.1, 2.0));
  const std::vector<CriticalStep> path = critical_path(trace);
  ASSERT_GE(path.size(), 4u);
  EXPECT_EQ(path[2], (CriticalStep{"fetch", kEu, s(1.9)}));
  EXPECT_EQ(path[3], (CriticalStep{"fetch", kSiteB, s(0.2)}));
  EXPECT_EQ(sum_of(path), s(4.1));
}

TEST(CriticalPath, SoIsTheVectorThatAPassBeginsWith) {
  RoundTrace trace = round_of_two();
  trace.nodes[kSiteB].spans = {span(kVector, 0.1, 2.2), span(kTrain, 2.2, 3.3), span(kSend, 3.3, 3.7)};
  trace.nodes[kEu].spans.push_back(span(kVector, 0.1, 2.0));
  const std::vector<CriticalStep> path = critical_path(trace);
  ASSERT_GE(path.size(), 4u);
  EXPECT_EQ(path[2], (CriticalStep{"vector", kEu, s(1.9)}));
  EXPECT_EQ(path[3], (CriticalStep{"vector", kSiteB, s(0.2)}));
  EXPECT_NE(words_of(trace, path, name).find("fetching the codec's vector at"), std::string::npos);
}

TEST(CriticalPath, OfANodeThatToldNothingTheTransferIsKnown) {
  RoundTrace trace = round_of_two();
  trace.nodes[kSiteB] = {.parent = kEu};
  const std::vector<CriticalStep> path = critical_path(trace);
  const std::vector<CriticalStep> begins = {
      {"fsync", kTheRoot, s(0.05)}, {kWaiting, kSiteB, s(3.25)}, {"send", kSiteB, s(0.5)}};
  ASSERT_GE(path.size(), begins.size());
  EXPECT_TRUE(std::equal(begins.begin(), begins.end(), path.begin()));
  EXPECT_EQ(sum_of(path), s(4.1));
}

// Clocks that are apart, spans that lie, parents in a circle: it ends, and the steps make up the round.
TEST(CriticalPath, WhateverTheSpansSayTheStepsMakeUpTheRound) {
  RoundTrace trace = round_of_two();
  trace.nodes[kSiteA].parent = kSiteB;
  trace.nodes[kSiteB].parent = kSiteA;
  trace.nodes[kSiteA].spans = {span(kFetch, -10, 4.0), span(kStage, -3, 3.7, kSiteB),
                               span(kAccumulate, 3.7, 9, kSiteB)};
  trace.nodes[kSiteB].spans = {span(kFetch, -10, 4.0), span(kSend, 3.6, 3.6), span(kFetch, -9, 3.5),
                               span(kSend, 2, 1'000)};
  trace.nodes[kTheRoot].spans.push_back(span(kStage, -1, 4.01, NodeId(99)));
  trace.nodes[kTheRoot].spans.push_back(span(kStage, -1, 4.01, kTheRoot));
  EXPECT_EQ(sum_of(critical_path(trace)), s(4.1));
  trace.committed = trace.opened;
  EXPECT_TRUE(critical_path(trace).empty());
  EXPECT_EQ(words_of(trace, {}, name), "round 17 took 0 ms");
}

TEST(TimeText, HasTheDigitsThatMatter) {
  EXPECT_EQ(time_text(milliseconds(3)), "3 ms");
  EXPECT_EQ(time_text(milliseconds(4'149)), "4.1 s");
  EXPECT_EQ(time_text(milliseconds(9'999)), "10 s");
  EXPECT_EQ(time_text(seconds(200)), "3 min 20 s");
}

// ---- collected from reports ---------------------------------------------------------------------------------------

Committed committed(std::uint64_t round = 17) {
  Committed one{kRun, RoundId(round), AttemptId(1), at(0), {}, at(4), {span(kFsync, 3.9, 4)}, {}};
  one.parents = {{kEu, kTheRoot}, {kSiteA, kEu}};
  return one;
}
round::NodeReport report(NodeId node, std::vector<Span> spans, std::uint64_t round = 17) {
  round::NodeReport report;
  report.node = node;
  report.heard = at(5);
  report.rounds = {{kRun, RoundId(round), std::move(spans)}};
  return report;
}

TEST(Traces, HaveTheSpansByTheCoordinatorsClock) {
  Traces traces(1e-3);
  traces.committed(committed());
  round::NodeReport told = report(kSiteA, {span(kTrain, 601, 603)});
  told.clock = round::ClockDistance{seconds(600), milliseconds(20)};
  traces.told(told);
  const RoundTrace* trace = traces.find(kRun, kRound);
  ASSERT_NE(trace, nullptr);
  const TracedNode& node = trace->nodes.at(kSiteA);
  EXPECT_TRUE(node.told);
  EXPECT_EQ(node.spans, std::vector{span(kTrain, 1, 3)});
  EXPECT_EQ(node.uncertainty, milliseconds(24)) << "and a thousandth of the 4 s since";
  EXPECT_FALSE(trace->nodes.at(kEu).told);
  EXPECT_EQ(trace->nodes.at(kTheRoot).spans.size(), 1u);
}

TEST(Traces, PassOverWhatHasNoPlace) {
  Traces traces;
  traces.committed(committed());
  traces.told(report(kSiteB, {span(kTrain, 1, 2)}));              // took no part
  traces.told(report(kTheRoot, {span(kTrain, 1, 2)}));            // nobody is the coordinator
  traces.told(report(kSiteA, {span(kTrain, 1, 2)}, 18));          // another round
  traces.told(report(kSiteA, {span(kTrain, 90'000, 90'001)}));    // long after it
  traces.told(report(kSiteA, {span(kTrain, -90'001, -90'000)}));  // long before
  round::NodeReport nowhere = report(kSiteA, {span(kTrain, 1, 2)});
  nowhere.clock.reset();
  traces.told(nowhere);
  const RoundTrace* trace = traces.find(kRun, kRound);
  EXPECT_EQ(trace->nodes.size(), 3u);
  EXPECT_TRUE(trace->nodes.at(kSiteA).spans.empty());
  EXPECT_EQ(trace->nodes.at(kTheRoot).spans.size(), 1u);
}

TEST(Traces, KeepTheLastRoundsAndSoManySpansOfANode) {
  Traces traces;
  for (std::uint64_t round = 1; round <= Traces::kRoundsMax + 2; ++round) traces.committed(committed(round));
  EXPECT_EQ(traces.find(kRun, RoundId(2)), nullptr);
  EXPECT_NE(traces.find(kRun, RoundId(3)), nullptr);
  EXPECT_EQ(traces.newest(kRun), RoundId(Traces::kRoundsMax + 2));
  EXPECT_EQ(traces.kept(kRun), Traces::kRoundsMax);
  EXPECT_EQ(traces.kept(RunId(2)), 0u);
  EXPECT_FALSE(traces.newest(RunId(2)));
  for (int i = 0; i < 3; ++i) {
    traces.told(report(kSiteA, std::vector(round::kSpansInRoundMax - 1, span(kTrain, 1, 2)), Traces::kRoundsMax));
  }
  EXPECT_EQ(traces.find(kRun, RoundId(Traces::kRoundsMax))->nodes.at(kSiteA).spans.size(), round::kSpansInRoundMax);
}

TEST(Traces, SpansAreBoundedOverAllRounds) {
  Traces traces;
  constexpr std::size_t kNodes = Traces::kSpansMax / round::kSpansInRoundMax;
  for (std::uint64_t round = 1; round <= 2; ++round) {
    Committed one = committed(round);
    for (std::uint32_t i = 0; i < kNodes; ++i) one.parents[NodeId(100 + i)] = kTheRoot;
    traces.committed(std::move(one));
    for (std::uint32_t i = 0; i < kNodes; ++i) {
      traces.told(report(NodeId(100 + i), std::vector(round::kSpansInRoundMax, span(kTrain, 1, 2)), round));
    }
  }
  EXPECT_EQ(traces.find(kRun, RoundId(1)), nullptr);
  EXPECT_NE(traces.find(kRun, RoundId(2)), nullptr) << "the newest stays whatever it holds";
}

}  // namespace
}  // namespace fluvial::coordinator
