// Workers that leave their results on GPUs, at a site with emulated ones: what it submits, and what it does about
// workers and devices that fail.
#include <algorithm>
#include <atomic>
#include <cmath>

#include "core/store/memory_file_system.h"
#include "edge/service/test_gpu.h"
#include "edge/update/encode.h"
#include "edge/update/resolve.h"

namespace fluvial::edge {
namespace {

using local::TaskResult;

// The same rounds with the same results in host memory, without a site around them.
class Reference {
 public:
  Reference(std::string codec, bool updates) : updates_(updates) {
    plan_.codec = std::move(codec);
    plan_.chunk_values = 256;
    Result<std::unique_ptr<store::SiteStore>> opened = open_site_store(files_, "/reference");
    EXPECT_TRUE(opened.ok()) << opened.error().to_string();
    store_ = std::move(*opened);
  }

  // The result of worker k: models[k], of weight weights[k].
  store::PendingInfo submit(std::uint64_t round, const HeldModel& base, const std::vector<Buffer>& models,
                            const std::vector<std::uint32_t>& weights) {
    UpdateJob job{kRun, RoundId(round), kSite, plan_, base.schema};
    job.base_digest = base.ref.digest;
    job.base = base.bytes->bytes();
    job.site_name = "hospital-a";
    job.digest_kind = DigestKind::kTree;
    for (std::size_t k = 0; k < models.size(); ++k) {
      job.parts.push_back({.model = models[k].span(), .weight = weights[k], .update = updates_});
      job.weight += weights[k];
    }
    Serial parallel;
    const Result<store::PendingUpdate> update = encode_update(job, *store_, parallel);
    EXPECT_TRUE(update.ok()) << update.error().to_string();
    return update->info();
  }
  void counted(std::uint64_t round) {
    EXPECT_TRUE(resolve_pending(*store_, kRun, RoundId(round), store::Outcome::kCounted).ok());
  }

 private:
  store::MemoryFileSystem files_;
  std::unique_ptr<store::SiteStore> store_;
  round::Plan plan_;
  bool updates_;
};

// ---- routes ------------------------------------------------------------------------------------------------------

struct Case {
  const char* name;
  std::vector<int> places;  // of the workers' results: a GPU, or kHost
  std::string codec = "topk:ratio=0.1";
  std::uint64_t integers = 0;
  bool updates = false;
  bool summed = true;   // on the GPUs
  bool encoded = true;  // likewise
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class GpuRoute : public GpuSiteTest, public testing::WithParamInterface<Case> {
 protected:
  GpuRoute() : GpuSiteTest({.codec = GetParam().codec, .integers = GetParam().integers}) {}
};

TEST_P(GpuRoute, SubmitsTheBytesOfTheHostsRoute) {
  const Case& c = GetParam();
  start(c.places.size());
  std::vector<std::unique_ptr<Trainer>> trainers;
  for (std::size_t k = 0; k < c.places.size(); ++k) {
    trainers.push_back(attach(c.places[k], {.name = "gpu-" + std::to_string(k)}));
  }
  Reference reference(c.codec, c.updates);
  std::vector<std::uint32_t> weights;
  for (std::uint64_t round = 1; round <= 3; ++round) {
    parent_.open_round(kSite, round, base(round - 1));
    std::vector<Buffer> models;
    weights.clear();
    for (std::size_t k = 0; k < trainers.size(); ++k) {
      trainers[k]->next();
      const std::vector<float> values = draw(100 * round + k, kValues);
      const auto integer = static_cast<std::int64_t>(10 * round + k);
      weights.push_back(static_cast<std::uint32_t>(20 + 10 * k));
      trainers[k]->memory().write(values, integer);
      models.emplace_back(static_cast<std::size_t>(schema_of_model().model_bytes()));
      ASSERT_TRUE(round::join_model(schema_of_model(), values, std::span(&integer, c.integers), models[k].span()).ok());
      ASSERT_TRUE(trainers[k]->submit({.weight = weights[k], .update = c.updates}).ok());
    }
    const transfer::StagedArrival arrival = parent_.arrivals.take();
    const store::PendingInfo expected = reference.submit(round, base(round - 1), models, weights);
    EXPECT_EQ(to_hex(arrival.what.contributors.find(kSite)->digest), to_hex(expected.digest)) << "round " << round;
    EXPECT_EQ(arrival.what.contributors.find(kSite)->weight, expected.start.weight);
    if (c.integers > 0) EXPECT_EQ(arrival.integers.front(), static_cast<std::int64_t>(10 * round + models.size() - 1));
    commit(round, arrival);
    reference.counted(round);
    EXPECT_EQ(count_of("updates_summed_on_gpus"), c.summed ? round : 0);
    EXPECT_EQ(count_of("updates_encoded_on_gpus"), c.encoded ? round : 0);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Sites, GpuRoute,
    testing::Values(Case{.name = "OneWorker", .places = {0}}, Case{.name = "OneOnTheSecondGpu", .places = {1}},
                    Case{.name = "Integers", .places = {0}, .integers = 1},
                    Case{.name = "Updates", .places = {0}, .updates = true},
                    Case{.name = "TwoOnOneGpu", .places = {0, 0}},
                    Case{.name = "TwoOnOneGpuWithIntegers", .places = {1, 1}, .integers = 1},
                    Case{.name = "TwoUpdatesOnOneGpu", .places = {0, 0}, .codec = "int8", .updates = true},
                    Case{.name = "GpuAndHost", .places = {0, kHost}, .summed = false, .encoded = false},
                    Case{.name = "HostAndGpusWithIntegers",
                         .places = {kHost, 1, 0},
                         .integers = 1,
                         .summed = false,
                         .encoded = false},
                    Case{.name = "HostAlone", .places = {kHost}, .summed = false, .encoded = false},
                    Case{.name = "Fp32", .places = {0}, .codec = "fp32"}),
    [](const testing::TestParamInfo<Case>& info) { return info.param.name; });

// ---- more of it --------------------------------------------------------------------------------------------------

class GpuSite : public GpuSiteTest {
 protected:
  GpuSite() : GpuSiteTest({.codec = "fp32", .integers = 0}) {}
  static constexpr std::uint64_t kModelBytes = kValues * sizeof(float);
};

void expect_near(const std::vector<float>& values, const std::vector<float>& expected) {
  ASSERT_EQ(values.size(), expected.size());
  for (std::size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(values[i], expected[i], 1e-6) << i;
}

TEST_F(GpuSite, AddsUpOverSeveralGpus) {
  start(2);
  const auto a = attach(0, {.name = "gpu-0"});
  const auto b = attach(1, {.name = "gpu-1"});
  for (std::uint64_t round = 1; round <= 2; ++round) {
    parent_.open_round(kSite, round, base(round - 1));
    a->next();
    b->next();
    a->memory().write(draw(60 + round, kValues), 0);
    b->memory().write(draw(70 + round, kValues), 0);
    ASSERT_TRUE(a->submit({.weight = 10, .update = true}).ok());
    ASSERT_TRUE(b->submit({.weight = 30, .update = true}).ok());
    const transfer::StagedArrival arrival = parent_.arrivals.take();
    expect_near(values_of(arrival), mean_of(draw(60 + round, kValues), draw(70 + round, kValues), 10, 30));
    commit(round, arrival);
    EXPECT_EQ(count_of("updates_summed_on_gpus"), round);
  }
}

TEST_F(GpuSite, ReducesEarlyWhatAllHaveInPlaceToTheSameBits) {
  start(2);
  const auto a = attach(0, {.name = "gpu-0"});
  const auto b = attach(0, {.name = "gpu-1"});
  parent_.open_round(kSite, 1, base(0));
  a->next();
  b->next();
  a->memory().write(draw(60, kValues), 0);
  b->memory().write(draw(61, kValues), 0);
  ASSERT_TRUE(a->ready(round::ByteRanges::whole(2048), 10, true).ok());
  ASSERT_TRUE(b->ready(round::ByteRanges::whole(kModelBytes), 30, true).ok());
  wait_logged("reduced early");
  ASSERT_TRUE(a->submit({.weight = 10, .update = true}).ok());
  ASSERT_TRUE(b->submit({.weight = 30, .update = true}).ok());
  const transfer::StagedArrival arrival = parent_.arrivals.take();
  Reference reference("fp32", true);
  const std::vector<float> first = draw(60, kValues);
  const std::vector<float> second = draw(61, kValues);
  std::vector<Buffer> models;
  models.push_back(Buffer::copy_of(std::as_bytes(std::span(first))));
  models.push_back(Buffer::copy_of(std::as_bytes(std::span(second))));
  EXPECT_EQ(arrival.what.contributors.find(kSite)->digest, reference.submit(1, base(0), models, {10, 30}).digest);
  EXPECT_EQ(count_of("updates_summed_on_gpus"), 1);
}

TEST_F(GpuSite, TheRanksOfAShardedTrainerMayLieOnGpus) {
  start(1);
  const auto zero = attach(0, {.name = "rank-0", .group = local::Group{"fsdp", 0, 2}});
  const auto one = attach(1, {.name = "rank-1", .group = local::Group{"fsdp", 1, 2}});
  parent_.open_round(kSite, 1, base(0));
  zero->next();
  one->next();
  const std::vector<float> update = draw(80, kValues);
  std::vector<float> low = update;
  std::vector<float> high = update;
  std::fill(low.begin() + 250, low.end(), NAN);
  std::fill(high.begin(), high.begin() + 250, NAN);
  zero->memory().write(low, 0);
  one->memory().write(high, 0);
  const auto submit = [](Trainer& trainer, round::ByteRange range) {
    TaskResult result{.weight = 30, .update = true};
    EXPECT_TRUE(result.ranges.add(range).ok());
    ASSERT_TRUE(trainer.submit(std::move(result)).ok());
  };
  submit(*zero, {0, 1000});
  submit(*one, {1000, kModelBytes - 1000});
  EXPECT_EQ(values_of(parent_.arrivals.take()), update);
}

TEST_F(GpuSite, AHandleThatCannotBeOpenedEndsItsWorkerAlone) {
  start(2);
  const auto wrong = attach(0, {.name = "gpu-0"});
  const auto right = attach(0, {.name = "gpu-1"});
  parent_.open_round(kSite, 1, base(0));
  wrong->next();
  right->next();
  right->memory().write(draw(61, kValues), 0);
  wrong->memory().location()->handle.fill(std::byte{0x5a});
  ASSERT_TRUE(wrong->submit({.weight = 10, .update = true}).ok());
  const auto told = wrong->client().next_task();
  ASSERT_TRUE(told.ok() && !told->has_value());
  const std::string& reason = wrong->client().detach_reason();
  EXPECT_NE(reason.find("a handle of emulated memory"), std::string::npos) << reason;
  EXPECT_NE(reason.find("device=False"), std::string::npos) << reason;
  ASSERT_TRUE(right->submit({.weight = 30, .update = true}).ok());
  const transfer::StagedArrival arrival = parent_.arrivals.take();
  EXPECT_EQ(values_of(arrival), draw(61, kValues));
  EXPECT_EQ(arrival.what.contributors.find(kSite)->weight, 30u);
}

TEST_F(GpuSite, AVectorBeyondItsMemoryEndsItsWorkerAlone) {
  start(1);
  const auto wrong = attach(0, {.name = "gpu-0"});
  const auto right = attach(0, {.name = "gpu-1"});
  parent_.open_round(kSite, 1, base(0));
  wrong->next();
  wrong->memory().location()->first_byte = ~std::uint64_t{15};
  ASSERT_TRUE(wrong->submit({.weight = 10, .update = true}).ok());
  ASSERT_FALSE(wrong->client().next_task()->has_value());
  EXPECT_NE(wrong->client().detach_reason().find("too few"), std::string::npos) << wrong->client().detach_reason();
  right->next();
  right->memory().write(draw(61, kValues), 0);
  ASSERT_TRUE(right->submit({.weight = 30, .update = true}).ok());
  EXPECT_EQ(values_of(parent_.arrivals.take()), draw(61, kValues));
}

TEST_F(GpuSite, AnUpdateThatIsNotFiniteIsNotSent) {
  start(1);
  const auto trainer = in_training(1);
  std::vector<float> update = draw(61, kValues);
  update[123] = INFINITY;
  trainer->memory().write(update, 0);
  ASSERT_TRUE(trainer->submit({.weight = 30, .update = true}).ok());
  const round::Refusal declined = parent_.declines.take().refusal;
  EXPECT_EQ(declined.error.code, Code::kDataLoss);
  EXPECT_NE(declined.error.message.find("tensor 'w', value 123 is inf"), std::string::npos) << declined.error.message;
  EXPECT_TRUE(parent_.arrivals.empty());
}

TEST_F(GpuSite, OffersNoGpusWhereNoneIsWanted) {
  start(1, "none");
  const auto trainer = attach(kHost, {.name = "gpu-0"});
  EXPECT_TRUE(trainer->client().devices().empty());
  EXPECT_TRUE(log_->contains("no GPU is used"));
  EXPECT_EQ(count_of("gpus"), 0);
}

TEST_F(GpuSite, OffersThoseThatItWasTold) {
  start(1, "emulated:1");
  const auto trainer = attach(1, {.name = "gpu-0"});
  EXPECT_EQ(trainer->client().devices(), std::vector<local::DeviceUuid>{kernels::device_uuid(emulated(1)).value()});
  EXPECT_EQ(count_of("gpus"), 1);
  EXPECT_TRUE(log_->contains("workers may leave their results on GPUs"));
}

TEST_F(GpuSite, DoesNotStartWithoutAGpuThatWasNamed) {
  config::EdgeSettings settings = settings_of_site();
  settings.gpus = "emulated:0,emulated:7";
  store::PosixFileSystem files;
  const Status ended = run_edge(settings, files, telemetry::Logger(log_), {});
  ASSERT_FALSE(ended.ok());
  EXPECT_NE(ended.error().message.find("gpus = 'emulated:0,emulated:7': "), std::string::npos) << ended.error().message;
}

// ---- devices that fail or take their time ------------------------------------------------------------------------

TEST_F(GpuSite, AGpuThatFailsEndsTheAgentOnceTheRoundIsDeclined) {
  start(1);
  {
    const auto trainer = in_training(1);
    trainer->memory().write(draw(60, kValues), 0);
    kernels::fail_emulated_devices(true);
    ASSERT_TRUE(trainer->submit({.weight = 10, .update = true}).ok());
    const round::Refusal declined = parent_.declines.take().refusal;
    EXPECT_EQ(declined.error.code, Code::kInternal) << declined.error.message;
    site_.join();
    kernels::fail_emulated_devices(false);
    ASSERT_FALSE(ended_.ok());
    EXPECT_NE(declined.error.message.find(ended_.error().message), std::string::npos) << ended_.error().message;
    EXPECT_TRUE(log_->contains("the agent ends, to be started again"));
  }
  start(1);
  const auto trainer = in_training(2);
  trainer->memory().write(draw(61, kValues), 0);
  ASSERT_TRUE(trainer->submit({.weight = 10, .update = true}).ok());
  EXPECT_EQ(values_of(parent_.arrivals.take()), draw(61, kValues));
}

// A worker frees its memory when it hears that the run has ended.
class GpuSiteThatReads : public GpuSite {
 protected:
  void wait_for_word(Trainer& worker) {
    waiting_ = std::thread([this, &worker] {
      const auto event = worker.client().next_event();
      told_ = true;
      EXPECT_TRUE(event.ok() && event->has_value() && std::holds_alternative<local::EndedRun>(**event));
    });
  }
  void end_run() {
    wire::Commit last = commit_of(1, nullptr);
    last.model = base(1).ref;
    last.last = true;
    parent_.commit(kSite, last);
    wait_logged("round committed");
    EXPECT_EQ(status().at("round").to_number<int>(), 1) << "and the strand is past the commit";
  }
  void expect_word_when_it_has_read() {
    kernels::wait_for_paused_copy();
    EXPECT_FALSE(told_);
    kernels::pause_emulated_copies(false);
    waiting_.join();
  }

 private:
  std::atomic<bool> told_ = false;
  std::thread waiting_;
};

TEST_F(GpuSiteThatReads, TellsOfTheEndWhenTheUpdateIsMade) {
  start(1);
  const auto trainer = in_training(1);
  trainer->memory().write(draw(60, kValues), 0);
  kernels::pause_emulated_copies(true);
  ASSERT_TRUE(trainer->submit({.weight = 10, .update = true}).ok());
  wait_for_word(*trainer);
  kernels::wait_for_paused_copy();
  end_run();
  expect_word_when_it_has_read();
}

TEST_F(GpuSiteThatReads, TellsOfTheEndWhenWhatWasInTrainingIsFolded) {
  start(1);
  const auto trainer = in_training(1);
  end_run();
  trainer->memory().write(draw(60, kValues), 0);
  kernels::pause_emulated_copies(true);
  ASSERT_TRUE(trainer->submit({.weight = 10, .update = true}).ok());
  wait_for_word(*trainer);
  expect_word_when_it_has_read();
}

TEST_F(GpuSiteThatReads, TellsOfTheEndWhenWhatIsInPlaceIsReducedThoughTheTrainingFailed) {
  start(2);
  const auto a = attach(0, {.name = "gpu-0"});
  const auto b = attach(kHost, {.name = "gpu-1"});
  parent_.open_round(kSite, 1, base(0));
  a->next();
  b->next();
  a->memory().write(draw(60, kValues), 0);
  b->memory().write(draw(61, kValues), 0);
  kernels::pause_emulated_copies(true);
  ASSERT_TRUE(a->ready(round::ByteRanges::whole(2048), 10, true).ok());
  ASSERT_TRUE(b->ready(round::ByteRanges::whole(2048), 30, true).ok());
  kernels::wait_for_paused_copy();
  ASSERT_TRUE(a->client().fail("no more data").ok());
  ASSERT_TRUE(b->client().fail("no more data").ok());
  parent_.declines.take();
  wait_for_word(*a);
  end_run();
  expect_word_when_it_has_read();
}

TEST_F(GpuSiteThatReads, TellsOfTheEndAtOnceWhileItWaitsForWorkers) {
  start(2);
  const auto trainer = attach(0, {.name = "gpu-0"});
  parent_.open_round(kSite, 1, base(0));
  wait_logged("waiting for training workers");
  end_run();
  const auto event = trainer->client().next_event();
  EXPECT_TRUE(event.ok() && event->has_value() && std::holds_alternative<local::EndedRun>(**event));
}

TEST_F(GpuSiteThatReads, TellsOfTheEndWhenTheTrainingFails) {
  start(1);
  const auto trainer = in_training(1);
  end_run();
  ASSERT_TRUE(trainer->client().fail("no more data").ok());
  const auto event = trainer->client().next_event();
  EXPECT_TRUE(event.ok() && event->has_value() && std::holds_alternative<local::EndedRun>(**event));
}

// A worker's memory lives for as long as the agent has it open: what a worker has handed over is its result.
TEST_F(GpuSiteThatReads, AWorkerThatDiesWhileItsMemoryIsReadHasBroughtItsResult) {
  start(1);
  std::unique_ptr<Trainer> dies = in_training(1);
  dies->memory().write(draw(60, kValues), 0);
  kernels::pause_emulated_copies(true);
  ASSERT_TRUE(dies->submit({.weight = 10, .update = true}).ok());
  kernels::wait_for_paused_copy();
  dies.reset();
  wait_logged("worker detached");
  EXPECT_EQ(kernels::emulated::views_open(0), 1u) << "it is being read";
  kernels::pause_emulated_copies(false);
  const transfer::StagedArrival arrival = parent_.arrivals.take();
  EXPECT_EQ(values_of(arrival), draw(60, kValues));
  EXPECT_EQ(kernels::emulated::views_open(0), 0u);
  EXPECT_TRUE(parent_.declines.empty());
  commit(1, arrival);
  const auto next = in_training(2);
  next->memory().write(draw(61, kValues), 0);
  ASSERT_TRUE(next->submit({.weight = 10, .update = true}).ok());
  EXPECT_EQ(values_of(parent_.arrivals.take()), draw(61, kValues));
}

TEST_F(GpuSiteThatReads, OfAWorkerThatDiesWhileItIsReadEarlyNothingIsUsed) {
  start(2);
  std::unique_ptr<Trainer> dies = attach(0, {.name = "gpu-0"});
  const auto stays = attach(kHost, {.name = "gpu-1"});
  parent_.open_round(kSite, 1, base(0));
  dies->next();
  stays->next();
  dies->memory().write(draw(60, kValues), 0);
  stays->memory().write(draw(61, kValues), 0);
  kernels::pause_emulated_copies(true);
  ASSERT_TRUE(dies->ready(round::ByteRanges::whole(2048), 10, true).ok());
  ASSERT_TRUE(stays->ready(round::ByteRanges::whole(2048), 30, true).ok());
  kernels::wait_for_paused_copy();
  dies.reset();
  wait_logged("worker went away");
  const auto another = attach(0, {.name = "gpu-2"});
  another->next();
  kernels::pause_emulated_copies(false);
  another->memory().write(draw(62, kValues), 0);
  ASSERT_TRUE(another->submit({.weight = 10, .update = true}).ok());
  ASSERT_TRUE(stays->submit({.weight = 30, .update = true}).ok());
  expect_near(values_of(parent_.arrivals.take()), mean_of(draw(62, kValues), draw(61, kValues), 10, 30));
  EXPECT_EQ(kernels::emulated::views_open(0), 1u) << "of the worker that is there, for its next task";
}

}  // namespace
}  // namespace fluvial::edge
