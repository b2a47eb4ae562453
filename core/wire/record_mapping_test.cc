#include "core/wire/record_mapping.h"

#include <gtest/gtest.h>

#include "core/wire/mapping.h"

namespace fluvial::wire {
namespace {

Opening opening() {
  Opening opening;
  opening.run = RunId(9);
  opening.round = RoundId(2);
  opening.attempt = AttemptId(1);
  opening.epoch = Epoch(3);
  opening.base = {RunId(9), ModelVersion(1), {}, 400};
  opening.plan.name = "test";
  opening.value_count = 100;
  opening.participants = {{SiteId(7), Epoch(5), 30}};
  return opening;
}

TEST(Openings, SayWhichRunsTheirsContinues) {
  Opening sent = opening();
  EXPECT_TRUE(from_proto(to_envelope(sent).round_open())->continues.empty());
  sent.continues = {RunId(8), RunId(5), RunId(1)};  // the newest first
  const v1::Envelope message = to_envelope(sent);
  const auto taken = from_proto(message.round_open());
  ASSERT_TRUE(taken.ok()) << taken.error().to_string();
  EXPECT_EQ(taken->continues, sent.continues);
  for (const std::uint64_t later : {9, 10}) {
    sent.continues = {RunId(8), RunId(later)};
    EXPECT_EQ(from_proto(to_envelope(sent).round_open()).error().code, Code::kInvalidArgument) << later;
  }
}

TEST(Openings, SayNoMoreRunsThanAreTold) {
  Opening sent = opening();
  sent.run = RunId(1'000);
  for (std::size_t i = 0; i < kContinuesMax; ++i) sent.continues.emplace_back(999 - i);
  const auto taken = from_proto(to_envelope(sent).round_open());
  ASSERT_TRUE(taken.ok()) << taken.error().to_string();
  EXPECT_EQ(taken->continues, sent.continues);
  sent.continues.emplace_back(1);
  EXPECT_EQ(from_proto(to_envelope(sent).round_open()).error().code, Code::kInvalidArgument);
}

// A node of an earlier version would lose it, and its children would find no signature of what is left.
TEST(Openings, SayNothingOfAPlanThatAnEarlierVersionDoesNotKnow) {
  Opening sent = opening();
  const std::string plain = to_envelope(sent).round_open().plan().SerializeAsString();
  sent.plan.optimizer.averaged = "ema.*";
  sent.plan.down = "fp16";
  round::set_mode("async", &sent.plan);
  EXPECT_EQ(to_envelope(sent).round_open().plan().SerializeAsString(), plain);
}

TEST(Openings, SayWhichPassIsOpen) {
  Opening sent = opening();
  EXPECT_FALSE(from_proto(to_envelope(sent).round_open())->pass.has_value()) << "the round has one";
  constexpr round::VectorRef kMean{{std::byte{4}}, 64};
  constexpr round::VectorRef kState{{std::byte{5}}, 48};
  for (const round::Pass& pass :
       {round::Pass{0, 2, 16, {}, {}}, round::Pass{0, 2, 16, {}, kState}, round::Pass{1, 2, 100, kMean, kState}}) {
    sent.pass = pass;
    const auto taken = from_proto(to_envelope(sent).round_open());
    ASSERT_TRUE(taken.ok()) << taken.error().to_string();
    EXPECT_EQ(taken->pass, pass);
  }
  for (const round::Pass& wrong :
       {round::Pass{1, 2, 16, {}, {}}, round::Pass{2, 2, 16, kMean, {}}, round::Pass{0, 2, 101, {}, {}},
        round::Pass{1, 2, 16, round::VectorRef{{std::byte{4}}, 468}, {}},  // of 100 values and a header
        round::Pass{0, 2, 16, {}, round::VectorRef{{std::byte{4}}, std::uint64_t{1} << 39}}}) {
    sent.pass = wrong;
    EXPECT_EQ(from_proto(to_envelope(sent).round_open()).error().code, Code::kInvalidArgument);
  }
  sent.pass = round::Pass{1, 2, 16, kMean, {}};
  v1::Envelope message = to_envelope(sent);
  message.mutable_round_open()->mutable_pass()->mutable_mean()->set_sha256("short");
  EXPECT_FALSE(from_proto(message.round_open()).ok());
}

TEST(Contributors, SayWhichMeanTheyAreFrom) {
  round::Contribution sent;
  sent.site = SiteId(7);
  sent.weight = 3;
  EXPECT_TRUE(to_proto(sent).mean_sha256().empty()) << "of a round with one pass nothing is said";
  EXPECT_EQ(from_proto(to_proto(sent))->from, round::MadeFrom{});
  sent.from = {1, {std::byte{9}}};
  EXPECT_EQ(from_proto(to_proto(sent))->from, sent.from);
  EXPECT_EQ(made_from_proto(1, "").error().code, Code::kInvalidArgument);
  EXPECT_EQ(made_from_proto(0, digest_to_proto({})).error().code, Code::kInvalidArgument);
  EXPECT_EQ(made_from_proto(round::kPassesMost, digest_to_proto({})).error().code, Code::kInvalidArgument);
}

TEST(Outcomes, AreThoseThatTheWireKnows) {
  for (const round::Outcome outcome :
       {round::Outcome::kPending, round::Outcome::kCounted, round::Outcome::kLate, round::Outcome::kRefused}) {
    EXPECT_EQ(from_proto(to_proto(outcome)).value(), outcome);
  }
  EXPECT_EQ(to_proto(round::Outcome::kCounted), v1::OutcomeReply::OUTCOME_COUNTED);
  for (const int stranger : {0, 5, -1}) {
    const auto outcome = static_cast<v1::OutcomeReply::Outcome>(stranger);
    EXPECT_EQ(from_proto(outcome).error().code, Code::kInvalidArgument) << stranger;
  }
}

TEST(Declines, NameTheirAttempt) {
  const round::Decline decline{RunId(3), RoundId(7), AttemptId(2), {SiteId(9), {Code::kInternal, "out of memory"}}};
  const v1::Envelope message = to_envelope(decline);
  const round::Decline taken = from_proto(message.decline());
  EXPECT_EQ(taken.run, decline.run);
  EXPECT_EQ(taken.round, decline.round);
  EXPECT_EQ(taken.attempt, decline.attempt);
  EXPECT_EQ(taken.refusal, decline.refusal);
  v1::Decline older = message.decline();
  older.clear_attempt();
  EXPECT_EQ(from_proto(older).attempt, AttemptId(0));
  older.set_code(0);
  EXPECT_EQ(from_proto(older).refusal.error.code, Code::kInternal) << "a decline is never the code of success";
}

}  // namespace
}  // namespace fluvial::wire
