// A whole site against a parent on loopback: real sessions, a real worker, real files.
#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <limits>

#include "core/base/testing.h"
#include "core/net/gate.h"
#include "core/round/probe.h"
#include "edge/service/test_site.h"
#include "edge/service/test_worker.h"

namespace fluvial::edge {
namespace {

constexpr std::size_t kTrailerBytes = sizeof(std::int64_t) + round::kProbeBytes;  // a step counter, and the probe

// Takes 0.5 * (round % 3 + 1) from each value, counts a step; in round 2 it breaks, in round 4 it waits for the gate.
local::Metrics train(const std::shared_future<void>& gate, const local::Task& task, std::span<float> values,
                     std::int64_t& steps) {
  for (float& value : values) value -= 0.5F * static_cast<float>(task.round.value() % 3 + 1);
  if (task.round == RoundId(4)) gate.wait();
  if (task.round == RoundId(2)) values[42] = std::numeric_limits<float>::quiet_NaN();
  ++steps;
  return {{"loss", 0.25}};
}

class ServiceTest : public SiteTest {
 protected:
  // Of round 4, until gate_ is opened.
  void start_training() {
    start_site();
    parent_.joined.take();
    parent_.open_round(kSite, 4, model(3));
    wait_logged("worker attached");
    wait_logged("model held");
  }
  // With what is being trained, so that it goes into the residual.
  void come_late() {
    parent_.commit(kSite, commit_of(4, nullptr));
    gate_.set_value();
    wait_logged("update late");
  }

  explicit ServiceTest(const Shape& shape = {}) : SiteTest(shape) {}
  ~ServiceTest() override { stop_site(); }
  void started() override {
    worker_ = std::thread([this] { worked_ = work(worker_socket_, std::bind_front(train, opened_)); });
  }
  void stopped() override {
    worker_.join();
    EXPECT_TRUE(worked_.ok()) << worked_.error().to_string();
  }

  std::thread worker_;
  std::promise<void> gate_;
  std::shared_future<void> opened_ = gate_.get_future().share();
  Status worked_;
};

TEST_F(ServiceTest, WhatTheCoordinatorDidNotSignChangesNothing) {
  parent_.sign(FakeParent::Signing::kClaimed);
  start_site();
  parent_.joined.take();
  parent_.open_round(kSite, std::uint64_t{1} << 40, model(0));
  EXPECT_EQ(parent_.left.take(), kSite);
  parent_.joined.take();
  parent_.commit(kSite, commit_of(std::uint64_t{1} << 40, nullptr));
  EXPECT_EQ(parent_.left.take(), kSite);
  parent_.joined.take();
  parent_.sign(FakeParent::Signing::kNothing);
  parent_.tell_run_state(kSite, kRun, "done");
  EXPECT_EQ(parent_.left.take(), kSite);
  parent_.joined.take();
  wait_logged("the parent is not to be trusted");
  parent_.open_round(kSite, 1, model(0));  // by a coordinator that signs nothing
  const transfer::StagedArrival arrival = parent_.arrivals.take();
  const round::Contribution& given = *arrival.what.contributors.find(kSite);
  EXPECT_EQ(given.weight, 20u);
  EXPECT_TRUE(given.signature) << "a site signs, whoever asks";
}

// The owner declines whatever is offered, so each opening that is news has an answer that names its attempt.
TEST_F(ServiceTest, ALeaseThatIsRefusedMakesNoOldOpeningNew) {
  parent_.sign(FakeParent::Signing::kOpenings);
  start_site([](config::EdgeSettings& settings) { settings.policy.runs = "other"; });
  parent_.joined.take();
  parent_.open_round(kSite, 1, model(0), AttemptId(2));
  EXPECT_EQ(parent_.declines.take().attempt, AttemptId(2));

  parent_.begin_history({round::HistoryId(9), Epoch(3), kRun, {}});  // older than the site's lease: it refuses
  parent_.cut(kSite);
  wait_logged("the lease is not taken");
  parent_.forget_histories();
  parent_.joined.take();

  parent_.open_round(kSite, 1, model(0), AttemptId(1));  // somebody plays it again
  parent_.open_round(kSite, 1, model(0), AttemptId(3));
  EXPECT_EQ(parent_.declines.take().attempt, AttemptId(3));
}

TEST_F(ServiceTest, TakesPartInARunToItsEnd) {
  start_site();
  EXPECT_EQ(parent_.joined.take(), Incarnation(1));
  parent_.open_round(kSite, 1, model(0));
  const transfer::StagedArrival first = parent_.arrivals.take();
  EXPECT_EQ(first.what.contributors.find(kSite)->weight, 20u);
  EXPECT_EQ(first.what.contributors.find(kSite)->metrics.at("loss"), 0.25);
  EXPECT_EQ(first.integers, std::vector<std::int64_t>{1});
  EXPECT_EQ(first.chunks->chunk_count(), 3u);
  parent_.commit(kSite, commit_of(1, &first));

  parent_.open_round(kSite, 2, model(1));
  const round::Refusal declined = parent_.declines.take().refusal;
  EXPECT_EQ(declined.error.code, Code::kDataLoss);
  EXPECT_NE(declined.error.message.find("tensor 'w', value 42 is nan"), std::string::npos) << declined.error.message;
  parent_.commit(kSite, commit_of(2, nullptr));

  parent_.open_round(kSite, 3, model(2));
  const transfer::StagedArrival third = parent_.arrivals.take();
  parent_.cut(kSite);  // before it hears of the commit
  EXPECT_EQ(parent_.joined.take(), Incarnation(1));
  const v1::OutcomeQuery query = parent_.queries.take();
  EXPECT_EQ(query.sha256(), wire::digest_to_proto(third.what.contributors.find(kSite)->digest));
  parent_.answer(kSite, query, v1::OutcomeReply::OUTCOME_COUNTED);
  wire::Commit last = commit_of(3, &third);
  last.last = true;
  parent_.commit(kSite, last);
  wait_logged("run complete");
  wait_logged(to_hex(model(3).ref.digest));

  const boost::json::value status = this->status();
  EXPECT_EQ(status.at("outcomes").at("counted").to_number<int>(), 2);
  EXPECT_EQ(status.at("outcomes").at("refused").to_number<int>(), 0);
  EXPECT_EQ(status.at("updates_submitted").to_number<int>(), 2);
  EXPECT_EQ(status.at("update_bytes_fp32").to_number<std::uint64_t>(), 2 * kValues * sizeof(float));
  EXPECT_EQ(status.at("update_bytes_sent").to_number<std::uint64_t>(),
            first.chunks->total_bytes() + third.chunks->total_bytes() + 2 * kTrailerBytes);
  EXPECT_EQ(status.at("model_sha256").as_string(), to_hex(model(3).ref.digest));
  EXPECT_GT(status.at("residual_norm").to_number<double>(), 0);
  EXPECT_EQ(status.at("workers").to_number<int>(), 1);
  EXPECT_TRUE(status.at("connected").as_bool());
  EXPECT_EQ(status.at("doing").as_string(), "waiting");
  EXPECT_EQ(status.at("pending_round").to_number<int>(), 0);
}

// It was enrolled anew, with a greater maximum, and the round is older.
TEST_F(ServiceTest, SitsARoundOutThatHasLessWeightOnRecordThanItsWorkersTrainedWith) {
  parent_.set_weight_max(kSite, 12);  // its worker has 20
  start_site();
  parent_.joined.take();
  parent_.open_round(kSite, 1, model(0));
  const round::Decline declined = parent_.declines.take();
  EXPECT_EQ(declined.refusal.error.code, Code::kPermissionDenied) << declined.refusal.error.message;
  parent_.set_weight_max(kSite, 100);
  parent_.open_round(kSite, 3, model(1));
  EXPECT_EQ(parent_.arrivals.take().what.contributors.find(kSite)->weight, 20u);
}

// A parent that lies, or that has lost what it knew of the round.
TEST_F(ServiceTest, ARoundThatIsOpenedAgainFromAnotherModelIsAnother) {
  start_training();
  parent_.open_round(kSite, 4, model(2));
  wait_logged("model_version=2");
  gate_.set_value();  // what is trained from the first is for no round any more
  const round::Decline declined = parent_.declines.take();
  EXPECT_EQ(declined.round, RoundId(4)) << "what was trained for it is in the residual already";
  EXPECT_EQ(declined.refusal.error.code, Code::kFailedPrecondition) << declined.refusal.error.message;
  EXPECT_TRUE(log_->contains("update late"));
  parent_.open_round(kSite, 5, model(4));
  EXPECT_EQ(parent_.arrivals.take().round, RoundId(5));
}

TEST_F(ServiceTest, ASubmissionOutlivesItsProcess) {
  start_site();
  parent_.joined.take();
  parent_.open_round(kSite, 1, model(0));
  const transfer::StagedArrival before = parent_.arrivals.take();
  stop_site();
  start_site();
  EXPECT_EQ(parent_.joined.take(), Incarnation(2));
  EXPECT_EQ(status().at("pending_round").to_number<int>(), 1);
  parent_.answer(kSite, parent_.queries.take(), v1::OutcomeReply::OUTCOME_PENDING);
  parent_.open_round(kSite, 1, model(0));  // nobody holds it: send it again
  const transfer::StagedArrival after = parent_.arrivals.take();
  EXPECT_EQ(after.what.contributors.find(kSite)->digest, before.what.contributors.find(kSite)->digest);
  parent_.commit(kSite, commit_of(1, nullptr));
  wait_logged("update late");
  parent_.open_round(kSite, 3, model(1));
  EXPECT_EQ(parent_.arrivals.take().round, RoundId(3));
  EXPECT_EQ(status().at("outcomes").at("late").to_number<int>(), 1);
}

TEST_F(ServiceTest, AStragglersUpdateTravelsWithItsNextOne) {
  start_training();
  parent_.commit(kSite, commit_of(4, nullptr));
  parent_.open_round(kSite, 5, model(4));
  gate_.set_value();
  const transfer::StagedArrival next = parent_.arrivals.take();
  EXPECT_EQ(next.round, RoundId(5)) << "the late update was not sent";
  EXPECT_EQ(status().at("outcomes").at("late").to_number<int>(), 1);
  // Round 4 took 1 from each value and round 5 took 1.5: what travels holds both.
  std::vector<float> values(256);
  Buffer scratch;
  ASSERT_TRUE(next.update()->codec->decode_chunk(*next.chunks->read(0, scratch), values).ok());
  const float most = *std::ranges::max_element(values);
  EXPECT_NEAR(most, 2.5F, 1e-5F);
}

// The log says what is lost of it; the rest is spent.
TEST_F(ServiceTest, WhatADamagedFileDoesNotGiveBackOfAResidualIsReported) {
  start_training();
  come_late();
  std::size_t damaged = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder_.path() + "/state/tensors")) {
    const std::array<float, 2> values = {std::numeric_limits<float>::quiet_NaN(),
                                         std::numeric_limits<float>::infinity()};
    std::fstream residual(file.path(), std::ios::in | std::ios::out | std::ios::binary);
    residual.write(reinterpret_cast<const char*>(values.data()), sizeof(values));  // NOLINT: bytes
    damaged += residual.good() ? 1 : 0;
  }
  ASSERT_EQ(damaged, 1u);
  EXPECT_FALSE(log_->contains("residual dropped"));
  parent_.open_round(kSite, 5, model(4));
  parent_.arrivals.take();
  wait_logged("residual dropped");
  wait_logged("2 values of it are no numbers");
}

// Round 4 is late and its run is stopped; the next run continues that one, the one after continues nothing.
TEST_F(ServiceTest, WhatAStoppedRunLeavesGoesIntoTheRunThatContinuesIt) {
  start_training();
  come_late();
  parent_.tell_run_state(kSite, kRun, "stopped");
  wait_logged("run complete");
  const RunId next{6};
  const auto model_of = [&](RunId run, std::uint64_t version) {
    HeldModel made = model(version);
    made.ref.run = run;
    parent_.hold(made);
    return made;
  };
  parent_.set_run(next, {RunId(5), kRun});
  parent_.open_round(kSite, 5, model_of(next, 4));
  const transfer::StagedArrival arrival = parent_.arrivals.take();
  EXPECT_EQ(arrival.run, next);
  std::vector<float> values(256);
  Buffer scratch;
  ASSERT_TRUE(arrival.update()->codec->decode_chunk(*arrival.chunks->read(0, scratch), values).ok());
  EXPECT_NEAR(*std::ranges::max_element(values), 2.5F, 1e-5F) << "1 of round 4, and 1.5 of this one";
  wait_logged("the residual of a run before goes into this one");

  parent_.set_run(RunId(7), {});
  parent_.open_round(kSite, 1, model_of(RunId(7), 0));
  const v1::OutcomeQuery query = parent_.queries.take();
  EXPECT_EQ(query.run(), next.value());
  parent_.answer(kSite, query, v1::OutcomeReply::OUTCOME_LATE);
  EXPECT_EQ(parent_.arrivals.take().run, RunId(7));
  wait_logged("the residual of a run before is dropped");
}

TEST_F(ServiceTest, ASubmissionOfALostRoundTravelsWithTheNextOne) {
  start_site();
  parent_.joined.take();
  EXPECT_EQ(parent_.lease_requests.take().standing().rounds_size(), 0);
  parent_.open_round(kSite, 1, model(0));
  const transfer::StagedArrival lost = parent_.arrivals.take();
  const round::HistoryId restored(77);
  parent_.begin_history({restored, Epoch(100), kRun, {{kRun, RoundId(0)}}});
  parent_.cut(kSite);
  parent_.joined.take();
  const v1::Standing before = parent_.lease_requests.take().standing();
  ASSERT_EQ(before.rounds_size(), 1);
  EXPECT_EQ(before.history(), 0u);
  EXPECT_EQ(before.rounds(0).round(), 1u);
  EXPECT_FALSE(before.rounds(0).decided());
  EXPECT_EQ(before.rounds(0).sha256(), wire::digest_to_proto(lost.what.contributors.find(kSite)->digest));
  EXPECT_EQ(status().at("pending_round").to_number<int>(), 0);
  EXPECT_EQ(status().at("outcomes").at("late").to_number<int>(), 1);

  parent_.open_round(kSite, 1, model(0));  // the same number in the new history
  const transfer::StagedArrival again = parent_.arrivals.take();
  EXPECT_EQ(again.round, RoundId(1));
  EXPECT_NE(again.what.contributors.find(kSite)->digest, lost.what.contributors.find(kSite)->digest);
  const auto most = [](const transfer::StagedArrival& arrival) {
    const std::vector<float> values = values_of(arrival);
    return *std::ranges::max_element(values);
  };
  EXPECT_NEAR(most(again), 2 * most(lost), 1e-5F) << "what was trained twice, once for each history";
  parent_.commit(kSite, commit_of(1, &again));
  wait_logged("update counted");
  parent_.cut(kSite);
  parent_.joined.take();
  const v1::Standing after = parent_.lease_requests.take().standing();
  EXPECT_EQ(after.history(), restored.value());
  ASSERT_EQ(after.rounds_size(), 1);
  EXPECT_TRUE(after.rounds(0).counted());
}

// 64 chunks of 64 KiB; the line breaks once, half-way through them.
class CutTest : public ServiceTest {
 protected:
  static constexpr std::uint64_t kMany = std::uint64_t{1} << 20;
  CutTest() : ServiceTest({kMany, kMany / 64, "fp32"}) {}
  ~CutTest() override { stop_site(); }
  std::uint16_t parent_port() const override { return gate_.port(); }

  net::Threads threads_;
  net::Gate gate_{threads_, parent_.port(), {.cut_after_bytes = kMany * 6, .cut_once = true}};
};

TEST_F(CutTest, AnUploadGoesOnWhereTheLineBroke) {
  start_site();
  parent_.joined.take();
  parent_.open_round(kSite, 1, model(0, kMany));
  EXPECT_EQ(parent_.received.take(), 0u);
  EXPECT_EQ(parent_.joined.take(), Incarnation(1)) << "again, after the cut";
  parent_.open_round(kSite, 1, model(0, kMany));
  const std::uint64_t received = parent_.received.take();
  EXPECT_GT(received, 0u);
  EXPECT_LT(received, 64u);
  const transfer::StagedArrival arrival = parent_.arrivals.take();
  EXPECT_EQ(arrival.chunks->total_bytes(), kMany * sizeof(float));
  EXPECT_EQ(parent_.payload_bytes_in(), kMany * sizeof(float) + kTrailerBytes) << "each byte came once";
  wire::Commit commit = commit_of(1, &arrival);
  commit.model = model(1, kMany).ref;
  parent_.commit(kSite, commit);
  wait_logged("update counted");
  EXPECT_EQ(status().at("outcomes").at("counted").to_number<int>(), 1);
  EXPECT_TRUE(parent_.arrivals.empty());
}

class TurnedAwayTest : public ServiceTest {
 protected:
  static constexpr std::uint64_t kMany = std::uint64_t{1} << 22;  // far more than waits to be sent
  TurnedAwayTest() : ServiceTest({kMany, kMany / 64, "fp32"}) {}
  ~TurnedAwayTest() override { stop_site(); }
};

TEST_F(TurnedAwayTest, AnUpdateThatIsRefusedAtItsFirstFrameStillSaysItsDigest) {
  start_site();
  parent_.joined.take();
  parent_.hold_other(kSite, 1, Incarnation(1), 1);
  parent_.open_round(kSite, 1, model(0, kMany));
  EXPECT_EQ(parent_.refusals.take().error.code, Code::kConflict) << "the site contradicts itself";
}

TEST(RunEdge, SaysHowToEnrol) {
  const TemporaryFolder folder;
  config::EdgeSettings settings;
  settings.data_dir = folder.path();
  settings.coordinator = "127.0.0.1:1";
  store::PosixFileSystem files;
  const Status ended = run_edge(settings, files, telemetry::null_logger(), {});
  ASSERT_FALSE(ended.ok());
  EXPECT_NE(ended.error().message.find("fluvial enroll"), std::string::npos);
}

}  // namespace
}  // namespace fluvial::edge
