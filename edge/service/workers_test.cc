// What a site's workers see and what becomes of what they bring: real workers, a real site, a parent on loopback.
#include <gmock/gmock.h>

#include <limits>

#include "core/local/worker_client.h"
#include "edge/service/test_site.h"
#include "kernels/vector.h"

namespace fluvial::edge {
namespace {

using local::CommittedModel;
using local::EndedRun;
using local::Previous;
using local::ResultBuffer;
using local::ResultOutcome;
using local::Task;
using local::WorkerClient;

class WorkersTest : public SiteTest {
 protected:
  WorkersTest() : SiteTest({.codec = "fp32", .integers = 0}) {
    for (std::uint64_t version = 0; version < 6; ++version) parent_.hold(plain_model(version));
  }
  ~WorkersTest() override { stop_site(); }
  void start(std::uint64_t workers, std::uint64_t model_deadline_ms = 30'000) {  // and waits until it is connected
    start_site([&](config::EdgeSettings& settings) {
      settings.workers = workers;
      settings.model_deadline_ms = model_deadline_ms;
    });
    parent_.joined.take();
  }
  WorkerClient attach(const local::WorkerOptions& options) {
    Result<WorkerClient> client = WorkerClient::attach_with_retry(worker_socket_, options, std::chrono::minutes(1));
    FLUVIAL_CHECK(client.ok(), "a worker that cannot attach");
    return std::move(*client);
  }
  template <typename T>
  static T next(WorkerClient& client) {
    Result<std::optional<WorkerClient::Event>> event = client.next_event();
    FLUVIAL_CHECK(event.ok(), event.error().message.c_str());
    FLUVIAL_CHECK(event->has_value(), client.detach_reason().c_str());
    FLUVIAL_CHECK(std::holds_alternative<T>(**event), "another event");
    return std::get<T>(std::move(**event));
  }
  static void fill(ResultBuffer& buffer, const std::vector<float>& values) {
    std::memcpy(buffer.span().data(), values.data(), buffer.span().size());
  }
  void commit(std::uint64_t round, const transfer::StagedArrival& arrival, bool last = false) {
    wire::Commit commit = commit_of(round, &arrival);
    commit.model = plain_model(round).ref;
    commit.last = last;
    parent_.commit(kSite, commit);
  }
};

constexpr std::uint64_t kModelBytes = kValues * sizeof(float);

TEST_F(WorkersTest, SeeEachCommittedModelBeforeTheNextTaskAndTheEnd) {
  start(1);
  WorkerClient client = attach({.name = "gpu-0", .wants_models = true});
  ResultBuffer buffer = ResultBuffer::create(kModelBytes).value();
  for (std::uint64_t round = 1; round <= 3; ++round) {
    if (round < 3) parent_.open_round(kSite, round, plain_model(round - 1));
    EXPECT_EQ(next<Task>(client).round, RoundId(round));
    fill(buffer, draw(50 + round, kValues));
    ASSERT_TRUE(client.submit(buffer, {.weight = 5, .update = true}).ok());
    const transfer::StagedArrival arrival = parent_.arrivals.take();
    EXPECT_EQ(values_of(arrival), draw(50 + round, kValues)) << "the update as it was handed over";
    if (round == 2) {  // the commit is lost: the next opening says as much, and the site asks what became of its update
      parent_.open_round(kSite, 3, plain_model(2));
      parent_.answer(kSite, parent_.queries.take(), v1::OutcomeReply::OUTCOME_COUNTED);
    } else {
      commit(round, arrival, round == 3);
    }
    const CommittedModel committed = next<CommittedModel>(client);
    EXPECT_EQ(committed.round, RoundId(round));
    EXPECT_EQ(committed.run_name, "test");
    EXPECT_EQ(as_text(committed.model->bytes()), as_text(plain_model(round).bytes->bytes()));
  }
  const EndedRun ended = next<EndedRun>(client);
  EXPECT_EQ(ended.run, kRun);
  EXPECT_EQ(ended.state, "done");
}

TEST_F(WorkersTest, ALastModelThatCannotBeHadDoesNotHoldTheEndBack) {
  start(1, 20);
  WorkerClient client = attach({.name = "gpu-0", .wants_models = true});
  const ResultBuffer buffer = ResultBuffer::create(kModelBytes).value();
  parent_.open_round(kSite, 1, plain_model(0));
  next<Task>(client);
  ASSERT_TRUE(client.submit(buffer, {.weight = 5, .update = true}).ok());
  wire::Commit last = commit_of(1, nullptr);
  parent_.arrivals.take();
  last.model = plain_model(9).ref;  // which the parent does not hold
  last.last = true;
  parent_.commit(kSite, last);
  EXPECT_EQ(next<EndedRun>(client).state, "done");
}

TEST_F(WorkersTest, LearnWhatBecameOfTheirLastResultAcrossRestartsOfTheAgent) {
  start(1);
  const ResultBuffer buffer = ResultBuffer::create(kModelBytes).value();
  {
    WorkerClient client = attach({.name = "gpu-0"});
    parent_.open_round(kSite, 1, plain_model(0));
    EXPECT_FALSE(next<Task>(client).previous);
    ASSERT_TRUE(client.submit(buffer, {.weight = 5, .update = true}).ok());
    parent_.arrivals.take();
  }
  stop_site();  // while the submission waits for its outcome
  start(1);
  parent_.answer(kSite, parent_.queries.take(), v1::OutcomeReply::OUTCOME_LATE);
  wait_logged("update late");
  parent_.open_round(kSite, 2, plain_model(1));
  {
    WorkerClient client = attach({.name = "gpu-0"});
    EXPECT_EQ(next<Task>(client).previous, (Previous{RoundId(1), ResultOutcome::kLate}));
  }
  stop_site();
  start(1);
  parent_.open_round(kSite, 2, plain_model(1));
  WorkerClient other = attach({.name = "gpu-1"});
  EXPECT_FALSE(next<Task>(other).previous) << "another name";
  ASSERT_TRUE(other.detach("enough").ok());
  WorkerClient again = attach({.name = "gpu-0"});
  EXPECT_EQ(next<Task>(again).previous, (Previous{RoundId(1), ResultOutcome::kLate}));
}

TEST_F(WorkersTest, HearAtOnceWhyWhatTheyGaveCountsNowhere) {
  start(1);
  WorkerClient client = attach({.name = "gpu-0"});
  ResultBuffer buffer = ResultBuffer::create(kModelBytes).value();
  const auto give = [&](std::uint64_t round, std::vector<float> values) {
    parent_.open_round(kSite, round, plain_model(round - 1));
    EXPECT_EQ(next<Task>(client).optimizer, "fedavg");
    fill(buffer, values);
    ASSERT_TRUE(client.submit(buffer, {.weight = 5, .update = true}).ok());
  };
  const auto told = [&](std::uint64_t round) {
    const local::RefusedUpdate refused = next<local::RefusedUpdate>(client);
    EXPECT_EQ(refused.run, kRun);
    EXPECT_EQ(refused.round, RoundId(round));
    EXPECT_EQ(refused.weight_max, 0u) << "it is not for their weight";
    return refused.reason;
  };
  std::vector<float> values = draw(51, kValues);
  values[42] = std::numeric_limits<float>::quiet_NaN();
  give(1, values);  // the site itself sees it
  EXPECT_THAT(told(1), testing::HasSubstr("tensor 'w', value 42 is nan"));
  parent_.declines.take();

  give(2, draw(52, kValues));
  parent_.arrivals.take();
  parent_.refuse_update(kSite, 2, Code::kInvalidArgument);
  EXPECT_EQ(told(2), "no room for it");
  wire::Commit refuses = commit_of(2, nullptr);
  refuses.model = plain_model(2).ref;
  refuses.late.clear();
  refuses.refusals = {{kSite, {Code::kInvalidArgument, "no room for it"}}};
  parent_.commit(kSite, refuses);
  wait_logged("update refused; it is dropped");

  give(3, draw(53, kValues));  // and round 2's is not told again
  parent_.arrivals.take();
  refuses.round = RoundId(3);
  refuses.model = plain_model(3).ref;
  refuses.refusals = {{kSite, {Code::kDataLoss, "an aggregator above found it spoilt"}}};
  parent_.commit(kSite, refuses);
  EXPECT_EQ(told(3), "an aggregator above found it spoilt");
  EXPECT_TRUE(log_->contains("an aggregator above found it spoilt"));
}

TEST_F(WorkersTest, HearThatTheirSamplesAreMoreThanTheirSiteMayHave) {
  start(1);
  parent_.set_weight_max(kSite, 12);
  WorkerClient client = attach({.name = "gpu-0"});
  ResultBuffer buffer = ResultBuffer::create(kModelBytes).value();
  parent_.open_round(kSite, 1, plain_model(0));
  EXPECT_EQ(next<Task>(client).weight_max, 12u);
  fill(buffer, draw(51, kValues));
  ASSERT_TRUE(client.submit(buffer, {.weight = 13, .update = true}).ok());
  const local::RefusedUpdate refused = next<local::RefusedUpdate>(client);
  EXPECT_EQ(refused.weight_max, 12u);
  EXPECT_THAT(refused.reason, testing::HasSubstr("a worker has 13"));
  EXPECT_EQ(parent_.declines.take().round, RoundId(1)) << "before anything is encoded";
}

TEST_F(WorkersTest, WhoAttachesAfterTheEndIsToldOfIt) {
  start(1);
  WorkerClient early = attach({.name = "gpu-1"});
  parent_.open_round(kSite, 1, plain_model(0));
  next<Task>(early);
  parent_.tell_run_state(kSite, kRun, "stopped");
  EXPECT_EQ(next<EndedRun>(early).run, kRun);
  WorkerClient client = attach({.name = "gpu-0"});
  ASSERT_EQ(client.ended().size(), 1U);
  EXPECT_EQ(client.ended()[0].run, kRun);
  EXPECT_EQ(client.ended()[0].name, "test");
  EXPECT_EQ(client.ended()[0].state, "stopped");
}

TEST_F(WorkersTest, WhereARunAsksNobodyItsEndIsToldAllTheSame) {
  start(1);
  WorkerClient client = attach({.name = "gpu-0"});
  parent_.tell_run_state(kSite, RunId(9), "running", "few");
  parent_.tell_run_state(kSite, RunId(9), "done", "few");
  const EndedRun ended = next<EndedRun>(client);
  EXPECT_EQ(ended.run, RunId(9));
  EXPECT_EQ(ended.name, "few");
  EXPECT_EQ(ended.state, "done");
  parent_.tell_run_state(kSite, RunId(8), "done", "others");  // of which nothing was heard: nobody waits for it
  parent_.tell_run_state(kSite, RunId(10), "paused", "next");
  parent_.tell_run_state(kSite, RunId(10), "stopped", "next");
  EXPECT_EQ(next<EndedRun>(client).run, RunId(10));
}

TEST_F(WorkersTest, TheParentIsAskedForTheEndThatAWorkerWaitsForSinceBefore) {
  start(1);
  WorkerClient client = attach({.name = "gpu-0", .follows = {RunId(9)}});
  const v1::OutcomeQuery query = parent_.queries.take();
  EXPECT_EQ(query.run(), 9U);
  EXPECT_EQ(query.round(), 0U);
  parent_.tell_run_state(kSite, RunId(9), "stopped", "few");
  EXPECT_EQ(next<EndedRun>(client).run, RunId(9));
}

TEST_F(WorkersTest, AfterAnOutageTheParentIsAskedForTheEndOfARunThatAskedNobody) {
  start(1);
  WorkerClient client = attach({.name = "gpu-0"});
  parent_.tell_run_state(kSite, RunId(9), "running", "few");
  wait_logged("run status");
  parent_.cut(kSite);
  parent_.joined.take();
  EXPECT_EQ(parent_.queries.take().run(), 9U);
  parent_.tell_run_state(kSite, RunId(9), "done", "few");
  EXPECT_EQ(next<EndedRun>(client).run, RunId(9));
}

TEST_F(WorkersTest, NobodyTrainsForARunThatEndedBeforeAWorkerCame) {
  start(1);
  parent_.open_round(kSite, 1, plain_model(0));
  wait_logged("waiting for training workers");
  parent_.tell_run_state(kSite, kRun, "stopped");
  wait_logged("run complete");
  parent_.set_run(RunId(5), {});
  HeldModel base = plain_model(0);
  base.ref.run = RunId(5);
  parent_.hold(base);
  parent_.open_round(kSite, 1, base);
  WorkerClient client = attach({.name = "gpu-0"});
  EXPECT_EQ(next<Task>(client).run, RunId(5));
}

TEST_F(WorkersTest, TheEndOfARunFromBeforeTheAgentsRestartIsToldByItsNumber) {
  start(1);
  const ResultBuffer buffer = ResultBuffer::create(kModelBytes).value();
  {
    WorkerClient client = attach({.name = "gpu-0"});
    parent_.open_round(kSite, 1, plain_model(0));
    next<Task>(client);
    ASSERT_TRUE(client.submit(buffer, {.weight = 5, .update = true}).ok());
    parent_.arrivals.take();
  }
  stop_site();
  start(1);
  WorkerClient client = attach({.name = "gpu-0"});
  parent_.tell_run_state(kSite, kRun, "done");
  const EndedRun ended = next<EndedRun>(client);
  EXPECT_EQ(ended.run, kRun);
  EXPECT_EQ(ended.name, "") << "no round of it opened in this process";
}

TEST_F(WorkersTest, WhatAllHaveInPlaceIsReducedEarlyToTheSameBits) {
  start(2);
  const std::vector<float> first = draw(60, kValues);
  const std::vector<float> second = draw(61, kValues);
  WorkerClient a = attach({.name = "gpu-0"});
  WorkerClient b = attach({.name = "gpu-1"});
  ResultBuffer of_a = ResultBuffer::create(kModelBytes).value();
  ResultBuffer of_b = ResultBuffer::create(kModelBytes).value();
  parent_.open_round(kSite, 1, plain_model(0));
  next<Task>(a);
  next<Task>(b);
  fill(of_a, first);
  fill(of_b, second);
  const round::ByteRanges half = round::ByteRanges::whole(2048);
  ASSERT_TRUE(a.ready(of_a, half, 10, true).ok());
  ASSERT_TRUE(b.ready(of_b, round::ByteRanges::whole(kModelBytes), 30, true).ok());
  wait_logged("reduced early");
  ASSERT_TRUE(a.submit(of_a, {.weight = 10, .update = true}).ok());
  ASSERT_TRUE(b.submit(of_b, {.weight = 30, .update = true}).ok());
  const transfer::StagedArrival arrival = parent_.arrivals.take();
  EXPECT_EQ(values_of(arrival), mean_of(first, second, 10, 30));
  EXPECT_EQ(arrival.what.contributors.find(kSite)->weight, 40u);
}

TEST_F(WorkersTest, AWorkerThatDiesAfterItsRangesWereReducedIsNotInTheUpdate) {
  start(2);
  const std::vector<float> kept = draw(61, kValues);
  ResultBuffer buffer = ResultBuffer::create(kModelBytes).value();
  fill(buffer, kept);
  WorkerClient stays = attach({.name = "gpu-1"});
  {
    WorkerClient dies = attach({.name = "gpu-0"});
    ResultBuffer other = ResultBuffer::create(kModelBytes).value();
    fill(other, draw(60, kValues));
    parent_.open_round(kSite, 1, plain_model(0));
    next<Task>(dies);
    next<Task>(stays);
    ASSERT_TRUE(dies.ready(other, round::ByteRanges::whole(kModelBytes), 10, true).ok());
    ASSERT_TRUE(stays.ready(buffer, round::ByteRanges::whole(kModelBytes), 30, true).ok());
    wait_logged("reduced early");
  }
  ASSERT_TRUE(stays.submit(buffer, {.weight = 30, .update = true}).ok());
  const transfer::StagedArrival arrival = parent_.arrivals.take();
  EXPECT_EQ(values_of(arrival), kept);
  EXPECT_EQ(arrival.what.contributors.find(kSite)->weight, 30u);
}

TEST_F(WorkersTest, ASiteGoesOnWithoutAWorkerThatHangs) {
  // Long enough for the other to answer, however loaded the machine is.
  parent_.set_plan([](round::Plan& plan) { plan.workers_deadline = std::chrono::milliseconds(3'000); });
  start(2);
  WorkerClient hangs = attach({.name = "gpu-0"});
  WorkerClient works = attach({.name = "gpu-1"});
  const ResultBuffer buffer = ResultBuffer::create(kModelBytes).value();
  for (std::uint64_t round = 1; round <= 2; ++round) {
    parent_.open_round(kSite, round, plain_model(round - 1));
    next<Task>(works);
    ASSERT_TRUE(works.submit(buffer, {.weight = 30, .update = true}).ok());
    const transfer::StagedArrival arrival = parent_.arrivals.take();
    EXPECT_EQ(arrival.what.contributors.find(kSite)->weight, 30u);
    commit(round, arrival);
  }
}

TEST_F(WorkersTest, ASiteSitsTheRoundOutWhereThePlanSaysSo) {
  parent_.set_plan([](round::Plan& plan) {
    plan.workers_deadline = std::chrono::milliseconds(50);
    plan.workers_missing = round::MissingWorkers::kDecline;
  });
  start(2);
  WorkerClient hangs = attach({.name = "gpu-0"});
  WorkerClient works = attach({.name = "gpu-1"});
  const ResultBuffer buffer = ResultBuffer::create(kModelBytes).value();
  parent_.open_round(kSite, 1, plain_model(0));
  next<Task>(works);
  ASSERT_TRUE(works.submit(buffer, {.weight = 30, .update = true}).ok());
  EXPECT_NE(parent_.declines.take().refusal.error.message.find("workers.deadline_ms"), std::string::npos);
  EXPECT_TRUE(parent_.arrivals.empty());
}

TEST_F(WorkersTest, TheRanksOfAShardedTrainerAreOneWorker) {
  start(1);
  WorkerClient zero = attach({.name = "rank-0", .group = local::Group{"fsdp", 0, 2}});
  WorkerClient one = attach({.name = "rank-1", .group = local::Group{"fsdp", 1, 2}});
  const std::vector<float> local = draw(70, kValues);
  ResultBuffer low = ResultBuffer::create(kModelBytes).value();
  ResultBuffer high = ResultBuffer::create(kModelBytes).value();
  const auto submit = [](WorkerClient& client, const ResultBuffer& buffer, round::ByteRange range) {
    local::TaskResult result{.weight = 30};
    EXPECT_TRUE(result.ranges.add(range).ok());
    ASSERT_TRUE(client.submit(buffer, std::move(result)).ok());
  };
  parent_.open_round(kSite, 1, plain_model(0));
  next<Task>(zero);
  next<Task>(one);
  std::memcpy(low.span().data(), local.data(), 1000);
  std::memcpy(high.span().data() + 1000, local.data() + 250, kModelBytes - 1000);
  submit(zero, low, {0, 1000});
  submit(one, high, {1000, kModelBytes - 1000});
  const transfer::StagedArrival arrival = parent_.arrivals.take();
  std::vector<float> expected(kValues);
  kernels::pseudo_gradient(draw(0, kValues), local, {}, expected);
  EXPECT_EQ(values_of(arrival), expected);
  EXPECT_EQ(arrival.what.contributors.find(kSite)->weight, 30u);
  commit(1, arrival);

  parent_.open_round(kSite, 2, plain_model(1));
  next<Task>(zero);
  next<Task>(one);
  submit(zero, low, {0, 1000});
  submit(one, high, {1004, kModelBytes - 1004});
  const round::Refusal declined = parent_.declines.take().refusal;
  EXPECT_EQ(declined.error.code, Code::kInvalidArgument);
  EXPECT_EQ(declined.error.message, "byte 1000 of the model is given by none");
}

}  // namespace
}  // namespace fluvial::edge
