#include "coordinator/service/model_keeper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <span>

#include "core/store/memory_file_system.h"

namespace fluvial::coordinator {
namespace {

using testing::ElementsAre;

constexpr RunId kRun{1};
const WallTime kNow{std::chrono::milliseconds(7'000)};

class Keeper : public testing::Test {
 protected:
  Keeper() { open(); }

  void open() {
    journal_.reset();
    EXPECT_TRUE(files_.make_folder("/c").ok());
    journal_ = store::CoordinatorJournal::open(files_, "/c/journal.sqlite").value();
    models_.emplace(store::ModelStore::open(files_, "/c/models").value());
    keeper_.emplace(*journal_, *models_);
  }
  void start(std::uint64_t kept, const std::string& best) {
    plan_.name = "digits";
    plan_.models_kept = kept;
    plan_.models_kept_best = best;
    store::RunRow run;
    run.plan = plan_;
    run.schema = schema_;
    run.initial_model = put(0);
    EXPECT_EQ(journal_->create_run(run).value(), kRun);
  }
  Digest put(std::uint64_t round) {
    const float values[] = {static_cast<float>(round), 2.0F};
    const ByteSpan bytes = std::as_bytes(std::span(values));
    const Digest digest = store::model_digest(bytes);
    EXPECT_TRUE(models_->put({kRun, ModelVersion(round)}, schema_, bytes, digest, values).ok());
    return digest;
  }
  void commit(std::uint64_t round, const round::Metrics& metrics = {}) {
    round::AttemptRecord attempt{kRun, RoundId(round), AttemptId(1), Epoch(round), {}, 30, {}};
    attempt.participants = {{SiteId(1), Epoch(1), 1000}};
    ASSERT_TRUE(journal_->open_attempt(attempt).ok());
    store::CommitRow row;
    row.record.run = kRun;
    row.record.round = RoundId(round);
    row.record.attempt = AttemptId(1);
    row.participants_count = 1;
    row.record.model = {kRun, ModelVersion(round), put(round), 8};
    row.master = row.record.model.digest;
    row.metrics = metrics;
    ASSERT_TRUE(journal_->commit(row).ok());
    ASSERT_TRUE(keeper_->committed(plan_, row.record.model, metrics).ok());
  }
  std::vector<std::uint64_t> there() {
    std::vector<std::uint64_t> rounds;
    const std::vector<round::ModelKey> kept = models_->list().value();
    for (const round::ModelKey& key : kept) rounds.push_back(key.version.value());
    return rounds;
  }
  Code label(std::uint64_t round, const std::string& name) {
    const Status done = keeper_->label(kRun, RoundId(round), name, kNow);
    return done.ok() ? Code{} : done.error().code;
  }

  store::MemoryFileSystem files_;
  const round::Schema schema_ = round::Schema::make({{"w", round::DType::kF32, {2}}}).value();
  round::Plan plan_;
  std::unique_ptr<store::CoordinatorJournal> journal_;
  std::optional<store::ModelStore> models_;
  std::optional<ModelKeeper> keeper_;
};

TEST_F(Keeper, TheNewestStay) {
  start(2, "");
  for (std::uint64_t round = 1; round <= 4; ++round) commit(round, {{"loss", 1.0}});
  EXPECT_THAT(there(), ElementsAre(3, 4));
  EXPECT_EQ(keeper_->find(kRun, "best").error().code, Code::kNotFound);
  EXPECT_EQ(keeper_->find(kRun, "latest")->round, RoundId(4));
  EXPECT_EQ(keeper_->find(kRun, "2").error().code, Code::kNotFound);
}

TEST_F(Keeper, TheBestStaysUntilABetterOneIsThere) {
  start(1, "loss");
  const double losses[] = {3, 1, 2, 1, 0.5, 0.75};
  const std::vector<std::uint64_t> best[] = {{1}, {2}, {2, 3}, {2, 4}, {5}, {5, 6}};
  for (std::uint64_t round = 1; round <= 6; ++round) {
    commit(round, {{"loss", losses[round - 1]}});
    EXPECT_EQ(there(), best[round - 1]) << "round " << round;
  }
  open();  // after a restart, too
  commit(7, {{"loss", 0.6}});
  EXPECT_THAT(there(), ElementsAre(5, 7));
  EXPECT_EQ(keeper_->find(kRun, "best")->round, RoundId(5));
}

TEST_F(Keeper, AnEvaluationComesLater) {
  start(2, "accuracy:max");
  commit(1);
  ASSERT_TRUE(keeper_->evaluated(kRun, RoundId(1), {{"accuracy", 0.9}}).ok());
  commit(2);
  commit(3);
  EXPECT_THAT(there(), ElementsAre(1, 2, 3));
  ASSERT_TRUE(keeper_->evaluated(kRun, RoundId(3), {{"accuracy", 0.8}, {"loss", 0.1}}).ok());
  commit(4);
  commit(5);
  EXPECT_THAT(there(), ElementsAre(1, 4, 5));
  ASSERT_TRUE(keeper_->evaluated(kRun, RoundId(2), {{"accuracy", 1}}).ok());
  EXPECT_EQ(keeper_->find(kRun, "best")->round, RoundId(1)) << "the model of round 2 is gone";
  ASSERT_TRUE(keeper_->evaluated(kRun, RoundId(5), {{"accuracy", 0.95}}).ok());
  commit(6);
  EXPECT_THAT(there(), ElementsAre(5, 6));
}

// One site can report under the evaluator's name whatever it likes.
TEST_F(Keeper, WhatTheEvaluatorMeasuresSitesDoNotDecide) {
  start(1, "accuracy:max");
  commit(1, {{"accuracy", 1e300}});
  ASSERT_TRUE(keeper_->evaluated(kRun, RoundId(1), {{"accuracy", 0.5}}).ok());
  commit(2, {{"accuracy", 1e300}});
  EXPECT_EQ(keeper_->find(kRun, "best")->round, RoundId(1));
  ASSERT_TRUE(keeper_->evaluated(kRun, RoundId(2), {{"accuracy", 0.6}}).ok());
  open();
  commit(3, {{"accuracy", 1e300}});
  ASSERT_TRUE(keeper_->evaluated(kRun, RoundId(3), {{"accuracy", 0.55}}).ok());
  EXPECT_EQ(keeper_->find(kRun, "best")->round, RoundId(2));
}

TEST_F(Keeper, WhatHasALabelStays) {
  start(1, "");
  EXPECT_EQ(label(0, "before"), Code{});
  commit(1);
  EXPECT_EQ(label(1, "first"), Code{});
  EXPECT_EQ(label(1, "again"), Code{});
  commit(2);
  commit(3);
  EXPECT_THAT(there(), ElementsAre(0, 1, 3));
  EXPECT_EQ(keeper_->find(kRun, "first")->round, RoundId(1));
  EXPECT_EQ(keeper_->find(kRun, "first")->digest, journal_->commit_of(kRun, RoundId(1))->record.model.digest);
  ASSERT_TRUE(keeper_->remove_label(kRun, "first").ok());
  EXPECT_THAT(there(), ElementsAre(0, 1, 3)) << "its other label holds it";
  ASSERT_TRUE(keeper_->remove_label(kRun, "again").ok());
  EXPECT_THAT(there(), ElementsAre(0, 3));
  EXPECT_EQ(keeper_->remove_label(kRun, "again").error().code, Code::kNotFound);
  open();
  EXPECT_EQ(keeper_->find(kRun, "before")->round, RoundId(0));
}

TEST_F(Keeper, ALabelIsOneModels) {
  start(1, "");
  commit(1);
  EXPECT_EQ(label(1, "one"), Code{});
  EXPECT_EQ(label(1, "one"), Code{}) << "it has it already";
  commit(2);
  EXPECT_EQ(label(2, "one"), Code::kAlreadyExists);
  EXPECT_EQ(label(3, "two"), Code::kNotFound) << "not committed";
  EXPECT_EQ(label(0, "two"), Code::kNotFound) << "gone";
  for (const std::string name : {"", "7", "latest", "best", "a b", "../x", "\n"}) {
    EXPECT_EQ(label(2, name), Code::kInvalidArgument) << name;
  }
  EXPECT_EQ(label(2, std::string(65, 'a')), Code::kInvalidArgument);
  for (std::size_t i = 1; i < store::kLabelsMax; ++i) ASSERT_EQ(label(2, "l" + std::to_string(i)), Code{});
  EXPECT_EQ(label(2, "more"), Code::kResourceExhausted);
}

TEST_F(Keeper, AListSaysWhyEachIsKept) {
  start(1, "loss");
  commit(1, {{"loss", 0.25}});
  EXPECT_EQ(label(1, "b"), Code{});
  EXPECT_EQ(label(1, "a"), Code{});
  commit(2, {{"loss", 1}});
  put(3);  // written, and not committed
  EXPECT_THAT(keeper_->list(kRun).value(), ElementsAre(ModelKeeper::Listed{RoundId(1), {"a", "b"}, 0.25},
                                                       ModelKeeper::Listed{RoundId(2), {}, std::nullopt}));
}

TEST_F(Keeper, ALabelOutlivesTheJournalsRowOfItsRound) {
  start(1, "");
  for (std::uint64_t round = 1; round <= 4; ++round) {
    commit(round);
    if (round == 1) EXPECT_EQ(label(1, "first"), Code{});
  }
  const Digest digest = keeper_->find(kRun, "first")->digest;
  while (journal_->prune_rounds({.newest = 1}).value() > 0) continue;
  EXPECT_EQ(journal_->commit_of(kRun, RoundId(1)).error().code, Code::kNotFound);
  EXPECT_EQ(keeper_->find(kRun, "first")->digest, digest);
  EXPECT_EQ(keeper_->find(kRun, "1")->digest, digest);
}

}  // namespace
}  // namespace fluvial::coordinator
