#include "core/transfer/outcome.h"

#include <gtest/gtest.h>

#include "core/digest/sha256.h"
#include "core/store/memory_file_system.h"

namespace fluvial::transfer {
namespace {

TEST(OutcomeAnswers, SayWhatBecameOfAnUpdateAndWhetherTheRunGoesOn) {
  store::MemoryFileSystem files;
  const auto journal = store::CoordinatorJournal::open(files, "/journal.sqlite").value();
  store::RunRow row;
  row.plan.name = "small";
  row.schema = *round::Schema::make({{"w", round::DType::kF32, {4}}});
  row.status = store::RunStatus::kRunning;
  const RunId run = journal->create_run(row).value();
  const v1::OutcomeQuery of_update = outcome_query(run, RoundId(1), SiteId(7), Digest{}).outcome_query();
  const v1::OutcomeQuery of_run = run_query(run, NodeId(3)).outcome_query();

  std::vector<v1::Envelope> open = answers(*journal, of_update).value();
  ASSERT_EQ(open.size(), 1U);
  EXPECT_EQ(open[0].outcome_reply().outcome(), v1::OutcomeReply::OUTCOME_PENDING);
  EXPECT_EQ(open[0].outcome_reply().site(), 7U);
  EXPECT_EQ(open[0].outcome_reply().sha256(), of_update.sha256());
  open = answers(*journal, of_run).value();
  ASSERT_EQ(open.size(), 1U) << "it goes on";
  EXPECT_EQ(open[0].outcome_reply().round(), 0U);
  EXPECT_EQ(open[0].outcome_reply().site(), 3U);

  ASSERT_TRUE(journal->set_run_status(run, store::RunStatus::kStopped, "by hand").ok());
  std::vector<v1::Envelope> over = answers(*journal, of_update).value();
  ASSERT_EQ(over.size(), 2U);
  EXPECT_TRUE(ends_run(over[0].run_state().state())) << "before the outcome, so that it is known what becomes of it";
  EXPECT_EQ(over[0].run_state().reason(), "by hand");
  EXPECT_EQ(over[1].outcome_reply().outcome(), v1::OutcomeReply::OUTCOME_LATE);
  over = answers(*journal, of_run).value();
  ASSERT_EQ(over.size(), 1U);
  EXPECT_EQ(over[0].run_state().run(), run.value());
}

TEST(OutcomeQueries, WhatAChildAsksIsPassedOnInFourFields) {
  v1::OutcomeQuery asked =
      outcome_query(RunId(3), RoundId(4), SiteId(5), sha256(as_byte_span("update"))).outcome_query();
  EXPECT_EQ(passed_on(asked)->outcome_query().SerializeAsString(), asked.SerializeAsString());
  asked.GetReflection()->MutableUnknownFields(&asked)->AddLengthDelimited(99, std::string(1'000'000, 'x'));
  EXPECT_LT(passed_on(asked)->ByteSizeLong(), 100U);
  asked.set_sha256(std::string(1'000'000, 'x'));
  EXPECT_FALSE(passed_on(asked));
  v1::OutcomeQuery about_run = run_query(RunId(3), NodeId(5)).outcome_query();
  about_run.set_sha256(std::string(1'000'000, 'x'));
  EXPECT_EQ(passed_on(about_run)->outcome_query().SerializeAsString(),
            run_query(RunId(3), NodeId(5)).outcome_query().SerializeAsString());
}

TEST(OutcomeAnswers, OfARunThatTheJournalDoesNotHaveAnUpdateIsLateAndNothingElseIsSaid) {
  store::MemoryFileSystem files;
  const auto journal = store::CoordinatorJournal::open(files, "/journal.sqlite").value();
  const auto late = answers(*journal, outcome_query(RunId(9), RoundId(1), SiteId(7), Digest{}).outcome_query()).value();
  ASSERT_EQ(late.size(), 1U);
  EXPECT_EQ(late[0].outcome_reply().outcome(), v1::OutcomeReply::OUTCOME_LATE);
  EXPECT_TRUE(answers(*journal, run_query(RunId(9), SiteId(7)).outcome_query())->empty());
  v1::OutcomeQuery no_digest;
  no_digest.set_run(9);
  no_digest.set_round(1);
  EXPECT_EQ(answers(*journal, no_digest).error().code, Code::kInvalidArgument);
}

}  // namespace
}  // namespace fluvial::transfer
