#include "core/wire/report_mapping.h"

#include <gtest/gtest.h>

#include <limits>

#include "core/wire/frame.h"

namespace fluvial::wire {
namespace {

TimePoint at(std::int64_t milliseconds) { return TimePoint(std::chrono::milliseconds(milliseconds)); }

round::NodeReport full() {
  round::NodeReport report;
  report.node = NodeId(7);
  report.doing = round::Doing::kSending;
  report.doing_for = std::chrono::milliseconds(1'500);
  report.run = RunId(3);
  report.round = RoundId(17);
  report.workers = 4;
  report.done_bytes = 1'000;
  report.total_bytes = 9'000;
  report.bytes_up = 77'000;
  report.bytes_down = 88'000;
  report.note = "1 of 4 workers attached";
  report.certificate_ends = WallTime(std::chrono::milliseconds(1'800'000'000'123));
  report.clock = round::ClockDistance{std::chrono::milliseconds(-250), std::chrono::microseconds(40)};
  round::RoundSpans spans{RunId(3), RoundId(16), {}};
  for (const round::SpanKind kind : round::kSpanKinds) {
    const int number = static_cast<int>(kind);
    spans.spans.push_back(
        {kind, NodeId(static_cast<std::uint32_t>(number % 3)), at(-100 + number), at(number * 1'000)});
  }
  report.rounds = {spans};
  return report;
}

// By a frame, as a peer would have it.
Result<std::vector<round::NodeReport>> across(const v1::Envelope& envelope) {
  FLUVIAL_ASSIGN(const Buffer head, encode_head(envelope, 0, {}));
  FLUVIAL_ASSIGN(const v1::Envelope parsed, parse_header(head.span().subspan(kPrefixBytes)));
  return from_proto(parsed.report());
}

TEST(ReportMapping, AReportCrossesWhole) {
  round::NodeReport little;
  little.node = NodeId(8);
  little.clock.reset();
  const std::vector<round::NodeReport> sent = {full(), little};
  const std::vector<v1::Envelope> envelopes = to_envelopes(sent);
  ASSERT_EQ(envelopes.size(), 1u);
  const auto read = across(envelopes[0]);
  ASSERT_TRUE(read.ok()) << read.error().to_string();
  EXPECT_EQ(*read, sent);
}

TEST(ReportMapping, EachThingToDoHasItsNumber) {
  for (const round::Doing doing : round::kDoings) {
    round::NodeReport report;
    report.node = NodeId(1);
    report.doing = doing;
    EXPECT_EQ(across(to_envelopes({report})[0])->front().doing, doing) << round::doing_name(doing);
  }
}

// What a header may hold of messages goes by its size (frame.cc): the smallest reports there are must pass.
TEST(ReportMapping, ManySmallReportsTakeSeveralMessagesThatAllPass) {
  std::vector<round::NodeReport> reports(3 * kReportedNodesMax + 1);
  for (std::size_t i = 0; i < reports.size(); ++i) {
    reports[i].node = NodeId(static_cast<std::uint32_t>(i + 1));
    for (std::size_t k = 0; k < round::kReportedRoundsMax; ++k) {
      reports[i].rounds.push_back({{}, {}, {{round::SpanKind::kFetch, {}, {}, {}}}});
    }
  }
  const std::vector<v1::Envelope> envelopes = to_envelopes(reports);
  ASSERT_EQ(envelopes.size(), 4u);
  std::size_t count = 0;
  for (const v1::Envelope& envelope : envelopes) {
    const auto read = across(envelope);
    ASSERT_TRUE(read.ok()) << read.error().to_string();
    count += read->size();
  }
  EXPECT_EQ(count, reports.size());
}

TEST(ReportMapping, TheLargestReportsFitAFrame) {
  round::NodeReport report = full();
  report.note = std::string(5'000, 'x');
  report.rounds.clear();
  for (std::size_t i = 0; i < round::kReportedRoundsMax; ++i) {
    const round::Span span{round::SpanKind::kStage, NodeId(~0u), at(-1), at(6 * 86'400'000LL)};
    report.rounds.push_back({RunId(~0ull), RoundId(~0ull), std::vector(round::kSpansInRoundMax, span)});
  }
  const std::vector<round::NodeReport> reports(kReportedNodesMax, report);
  const auto read = across(to_envelopes(reports)[0]);
  ASSERT_TRUE(read.ok()) << read.error().to_string();
  EXPECT_EQ(read->back().rounds.back().spans.size(), round::kSpansInRoundMax);
  EXPECT_EQ(read->back().note.size(), round::kNoteBytesMax);
}

TEST(ReportMapping, WhatAReaderWouldRefuseIsLeftOut) {
  round::NodeReport report = full();
  report.clock = round::ClockDistance{Duration::max(), {}};
  report.rounds[0].spans = {{round::SpanKind::kFetch, {}, at(5), at(4)},
                            {round::SpanKind::kFetch, {}, TimePoint::min(), TimePoint::min()},
                            {round::SpanKind::kTrain, {}, at(5), at(6)}};
  report.rounds.push_back({RunId(3), RoundId(17), {{round::SpanKind::kFetch, {}, at(5), at(4)}}});
  const auto read = across(to_envelopes({report})[0]);
  ASSERT_TRUE(read.ok()) << read.error().to_string();
  EXPECT_FALSE(read->front().clock);
  ASSERT_EQ(read->front().rounds.size(), 1u);
  EXPECT_EQ(read->front().rounds[0].spans.size(), 1u);
}

TEST(ReportMapping, ANoteIsCutBetweenCharactersAndHoldsNoControls) {
  round::NodeReport report;
  report.node = NodeId(1);
  report.note = "a\n" + std::string(197, 'b') + "\xc3\xa9tude";
  const std::string note = across(to_envelopes({report})[0])->front().note;
  EXPECT_EQ(note, "a " + std::string(197, 'b')) << "the character after it has two bytes";
}

// ---- hostile ones -------------------------------------------------------------------------------------------------

Status refused(const std::function<void(v1::Report&)>& change) {
  v1::Envelope envelope = to_envelopes({full()})[0];
  change(*envelope.mutable_report());
  const auto read = from_proto(envelope.report());
  return read.ok() ? Status{} : Status{read.error()};
}

TEST(ReportMapping, WhatCannotBeIsRefused) {
  const auto expect_refused = [](const char* what, const std::function<void(v1::Report&)>& change) {
    const Status status = refused(change);
    ASSERT_FALSE(status.ok()) << what;
    EXPECT_EQ(status.error().code, Code::kInvalidArgument) << what;
  };
  const auto spans = [](v1::Report& report) { return report.mutable_nodes(0)->mutable_rounds(0); };
  EXPECT_TRUE(refused([](v1::Report&) {}).ok());
  expect_refused("about nobody", [](v1::Report& report) { report.mutable_nodes(0)->set_node(0); });
  expect_refused("nodes", [](v1::Report& report) {
    while (static_cast<std::size_t>(report.nodes_size()) <= kReportedNodesMax) *report.add_nodes() = report.nodes(0);
  });
  expect_refused("rounds", [](v1::Report& report) {
    v1::NodeReport& node = *report.mutable_nodes(0);
    while (static_cast<std::size_t>(node.rounds_size()) <= round::kReportedRoundsMax) node.add_rounds();
  });
  expect_refused("spans", [&](v1::Report& report) {
    while (static_cast<std::size_t>(spans(report)->kind_size()) <= round::kSpansInRoundMax) spans(report)->add_kind(1);
  });
  expect_refused("kind", [&](v1::Report& report) { spans(report)->add_kind(1); });
  expect_refused("about", [&](v1::Report& report) { spans(report)->add_about(1); });
  expect_refused("begun", [&](v1::Report& report) { spans(report)->mutable_begun_ns()->RemoveLast(); });
  expect_refused("lasted", [&](v1::Report& report) { spans(report)->mutable_lasted_ns()->RemoveLast(); });
  for (const std::int64_t time : {std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()}) {
    expect_refused("time", [&](v1::Report& report) { spans(report)->set_begun_ns(0, time); });
    expect_refused("clock", [&](v1::Report& report) { report.mutable_nodes(0)->set_clock_offset_ns(time); });
    expect_refused("certificate", [&](v1::Report& report) { report.mutable_nodes(0)->set_certificate_ends_ms(time); });
  }
  const std::int64_t beyond_nanoseconds = std::int64_t{1} << 44;
  expect_refused("certificate",
                 [&](v1::Report& report) { report.mutable_nodes(0)->set_certificate_ends_ms(beyond_nanoseconds); });
  expect_refused("length", [&](v1::Report& report) { spans(report)->set_lasted_ns(0, ~0ull); });
  expect_refused("uncertainty", [](v1::Report& report) { report.mutable_nodes(0)->set_clock_uncertainty_ns(~0ull); });
}

TEST(ReportMapping, WhatALaterVersionSaysIsPassedOver) {
  v1::Envelope envelope = to_envelopes({full()})[0];
  v1::NodeReport& node = *envelope.mutable_report()->mutable_nodes(0);
  node.set_doing(static_cast<v1::Doing>(99));
  node.set_doing_for_us(~0ull);
  node.mutable_rounds(0)->set_kind(0, 99);
  const auto read = across(envelope);
  ASSERT_TRUE(read.ok()) << read.error().to_string();
  EXPECT_EQ(read->front().doing, round::Doing::kUnknown);
  EXPECT_GT(read->front().doing_for, Duration(0));
  EXPECT_EQ(read->front().rounds[0].spans.size(), round::kSpanKinds.size() - 1);
}

}  // namespace
}  // namespace fluvial::wire
