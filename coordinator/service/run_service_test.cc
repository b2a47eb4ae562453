// A run's service with a journal on a disk that fails or is cut off at once: what a person was told holds.
#include "coordinator/service/run_service.h"

#include <gmock/gmock.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <span>
#include <vector>

#include "coordinator/service/run_gauges.h"
#include "coordinator/service/run_report.h"
#include "core/digest/sha256.h"
#include "core/store/safetensors.h"
#include "core/tree/test_runtime.h"
#include "core/tree/test_support.h"

namespace fluvial::coordinator {
namespace {

using testing::HasSubstr;

constexpr std::string_view kJournal = "/journal.sqlite";

round::Schema small_schema() { return *round::Schema::make({{"w", round::DType::kF32, {64}}}); }

// Counts how often the service looks at all members.
class CountingReport final : public RunReport {
 public:
  CountingReport(tree::Runtime& runtime, Feed& feed, NameOf name_of, Watched<int>& looks)
      : RunReport(runtime.metrics, runtime.log, feed, std::move(name_of)), looks_(looks) {}
  void members_changed(std::size_t sites, std::size_t aggregators) override {
    RunReport::members_changed(sites, aggregators);
    looks_.change([](int& looks) { ++looks; });
  }

 private:
  Watched<int>& looks_;
};

class RunServiceTest : public testing::Test {
 protected:
  RunServiceTest() { open(); }
  ~RunServiceTest() override { close(); }

  void open() {
    journal_ = store::CoordinatorJournal::open(files_, std::string(kJournal)).value();
    models_.emplace(store::ModelStore::open(files_, "/models").value());
    registry_ =
        std::make_unique<Registry>(runtime_, *journal_, std::make_shared<identity::DenyList>(), FailoverSettings{});
    hub_ = std::make_unique<tree::Hub>(runtime_, owner_, tree::HubOptions{}, std::make_shared<identity::DenyList>());
    report_ = std::make_unique<CountingReport>(
        runtime_, feed_, [this](NodeId node) { return registry_->book().name_of(node); }, looks_);
    authorship_ = std::make_unique<Authorship>(*journal_);
    runs_ = std::make_unique<RunService>(
        runtime_, tasks_, RunService::Keeps{*journal_, *models_, signer_, *authorship_, journal_->next_epoch().value()},
        *registry_, *report_, *hub_);
    watcher_ = feed_.watch();
    run(runs_->take_up());
  }
  void close() {
    test_.on_strand([&] { runs_->stop(); });
    run(tasks_.join());
    runs_.reset();
    authorship_.reset();
    report_.reset();
    hub_.reset();
    registry_.reset();
    journal_.reset();
  }
  // The machine loses its power the moment after, and comes back.
  void cut_power() {
    files_.fail_at(0, store::Fault::kCrash);
    EXPECT_FALSE(files_.make_folder("/gone").ok());
    close();
    files_.restart(store::Unsynced::kLost);
    open();
  }

  template <typename T>
  T run(net::Awaitable<T> task) {
    return test_.run(std::move(task));
  }

  static store::RunRow row() {
    store::RunRow row;
    row.plan.name = "small";
    row.schema = small_schema();
    row.initial_model = store::model_digest(model().span());
    return row;
  }
  static Buffer model() {
    const std::vector<float> values(small_schema().value_count(), 1.0F);
    return Buffer::copy_of(std::as_bytes(std::span(values)));
  }
  static PrepareRun begins(store::RunRow row, Buffer model, States states = {}) {
    const auto begun = std::make_shared<NewRun>(NewRun{std::move(row), std::move(model), std::move(states)});
    return [begun] { return Result<NewRun>(std::move(*begun)); };
  }
  RunId start() {
    const Result<RunId> started = run(runs_->start(begins(row(), model())));
    EXPECT_TRUE(started.ok()) << started.error().to_string();
    return started.ok() ? *started : RunId(0);
  }
  std::optional<RunStatus> status() {
    return runs_->active() == nullptr ? std::nullopt : std::optional(runs_->active()->machine.status());
  }
  store::RunStatus journalled(RunId run) { return journal_->run(run).value().status; }
  std::size_t told() const { return watcher_->lines.size(); }

  tree::TestRuntime test_{Role::kCoordinator};
  tree::Runtime& runtime_ = test_.get();
  store::MemoryFileSystem& files_ = test_.files();
  net::TaskGroup tasks_{runtime_.strand};
  tree::FakeOwner owner_;
  Feed feed_{runtime_.strand};
  std::unique_ptr<store::CoordinatorJournal> journal_;
  std::optional<store::ModelStore> models_;
  std::unique_ptr<Registry> registry_;
  std::unique_ptr<tree::Hub> hub_;
  Watched<int> looks_;
  std::unique_ptr<RunReport> report_;
  const OrderSigner signer_{std::nullopt, Epoch(1)};
  std::unique_ptr<Authorship> authorship_;
  std::unique_ptr<RunService> runs_;
  std::shared_ptr<Watcher> watcher_;
};

TEST_F(RunServiceTest, WhatAPersonWasToldHoldsWhenThePowerGoesTheMomentAfter) {
  const RunId id = start();
  cut_power();
  EXPECT_EQ(journalled(id), store::RunStatus::kRunning);
  EXPECT_EQ(status(), RunStatus::kRunning);
  ASSERT_TRUE(run(runs_->pause(id, "by hand")).ok());
  cut_power();
  EXPECT_EQ(journalled(id), store::RunStatus::kPaused);
  EXPECT_EQ(status(), RunStatus::kPaused);
  ASSERT_TRUE(run(runs_->resume(id)).ok());
  cut_power();
  EXPECT_EQ(journalled(id), store::RunStatus::kRunning);
  ASSERT_TRUE(run(runs_->stop_run(id, "by hand")).ok());
  cut_power();
  EXPECT_EQ(journalled(id), store::RunStatus::kStopped);
  EXPECT_EQ(runs_->active(), nullptr) << "it is not taken up again";
}

TEST_F(RunServiceTest, AScrapeSaysWhatTheRunIsAndWhyItIsPaused) {
  const auto measure = [&] {
    const RunGauges gauges(runtime_.metrics, *runs_);
    test_.on_strand([&] { runtime_.metrics.measure(); });
  };
  const auto value = [&](const char* name, const telemetry::Labels& labels = {}) {
    return runtime_.metrics.gauge(name, labels).value();
  };
  const auto paused_by = [&](const char* reason) { return value("run_pause_reason", {{"reason", reason}}); };
  measure();
  EXPECT_EQ(value("run") + value("quorum") + value("run_state", {{"state", "done"}}), 0) << "there is none";
  const RunId id = start();
  measure();
  EXPECT_EQ(value("run"), id.value());
  EXPECT_EQ(value("run_state", {{"state", "running"}}), 1);
  EXPECT_EQ(value("run_waits_for_sites"), 1) << "nobody is here";
  EXPECT_EQ(value("quorum"), static_cast<double>(row().plan.quorum));
  EXPECT_EQ(value("run_rounds_planned"), static_cast<double>(row().plan.rounds));
  EXPECT_GT(value("hard_deadline_seconds"), 0);
  ASSERT_TRUE(run(runs_->pause(id, "by hand")).ok());
  measure();
  EXPECT_EQ(value("run_state", {{"state", "running"}}), 0);
  EXPECT_EQ(value("run_state", {{"state", "paused"}}), 1);
  EXPECT_EQ(paused_by("person"), 1);
  EXPECT_EQ(value("run_waits_for_sites"), 0);
  // What it paused for by itself is known after a restart, too.
  ASSERT_TRUE(
      journal_->set_run_status(id, store::RunStatus::kPaused, "round 3: no quorum after 3 attempts: 1 of 2").ok());
  cut_power();
  measure();
  EXPECT_EQ(value("run_state", {{"state", "paused"}}), 1);
  EXPECT_EQ(paused_by("no_quorum"), 1);
  EXPECT_EQ(paused_by("person"), 0);
  ASSERT_TRUE(run(runs_->stop_run(id, "by hand")).ok());
  measure();
  EXPECT_EQ(value("run_state", {{"state", "stopped"}}), 1);
  EXPECT_EQ(paused_by("no_quorum") + value("quorum"), 0);
}

TEST_F(RunServiceTest, OnAFullDiskNothingIsToldAndTheRunIsWhatTheJournalSays) {
  const RunId id = start();
  const std::size_t before = told();
  const auto refused = [&](net::Awaitable<Status> command) {
    const Status done = run(std::move(command));
    EXPECT_FALSE(done.ok());
    if (!done.ok()) EXPECT_EQ(done.error().code, Code::kResourceExhausted) << done.error().to_string();
  };
  files_.fail_at(0, store::Fault::kNoSpace);
  refused(runs_->stop_run(id, "by hand"));
  files_.fail_at(0, store::Fault::kNoSpace);
  refused(runs_->pause(id, "by hand"));
  files_.clear_fault();
  EXPECT_EQ(status(), RunStatus::kRunning);
  EXPECT_EQ(journalled(id), store::RunStatus::kRunning);
  EXPECT_EQ(told(), before);
  ASSERT_TRUE(run(runs_->pause(id, "by hand")).ok());
  files_.fail_at(0, store::Fault::kNoSpace);
  refused(runs_->resume(id));
  files_.clear_fault();
  EXPECT_EQ(status(), RunStatus::kPaused);
  EXPECT_EQ(journalled(id), store::RunStatus::kPaused);
  ASSERT_TRUE(run(runs_->stop_run(id, "by hand")).ok()) << "the disk has room again";
  EXPECT_EQ(told(), before + 2) << "paused and stopped";
}

TEST_F(RunServiceTest, OfTwoStartsAtOnceOneStartsARun) {
  std::promise<Result<RunId>> first;
  std::promise<Result<RunId>> second;
  const auto start = [](RunService* runs, std::promise<Result<RunId>>* out) -> net::Awaitable<void> {
    out->set_value(co_await runs->start(begins(row(), model())));
  };
  boost::asio::post(runtime_.strand, [&] {  // both begin before either goes on
    for (std::promise<Result<RunId>>* out : {&first, &second}) {
      boost::asio::co_spawn(runtime_.strand, start(runs_.get(), out), boost::asio::detached);
    }
  });
  const Result<RunId> one = first.get_future().get();
  const Result<RunId> two = second.get_future().get();
  ASSERT_NE(one.ok(), two.ok()) << "one of them, and not both";
  EXPECT_THAT((one.ok() ? two : one).error().message, HasSubstr("another run is being started"));
  EXPECT_EQ(journal_->runs().value().size(), 1U);
}

// Whatever it reads of a run that it continues is then that run's last.
TEST_F(RunServiceTest, ARunIsMadeReadyWhenNoOtherOneIsActive) {
  const RunId before = start();
  std::atomic<int> asked{0};
  const PrepareRun next = [&]() -> Result<NewRun> {
    ++asked;
    NewRun made{row(), model()};
    made.row.continues = before;
    return made;
  };
  const Result<RunId> refused = run(runs_->start(next));
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("is active; stop it first"));
  EXPECT_EQ(asked, 0) << "it may commit yet";
  ASSERT_TRUE(run(runs_->stop_run(before, "by hand")).ok());
  const Result<RunId> started = run(runs_->start(next));
  ASSERT_TRUE(started.ok()) << started.error().to_string();
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(journal_->run(*started)->continues, before);
}

// Nothing is left of it, and the next start may have its turn.
TEST_F(RunServiceTest, WhatCannotBeMadeReadyStartsNothing) {
  const auto fails = []() -> Result<NewRun> { return Error{Code::kNotFound, "no such model"}; };
  const auto throws = []() -> Result<NewRun> { throw std::bad_alloc(); };
  EXPECT_EQ(run(runs_->start(fails)).error().message, "no such model");
  EXPECT_FALSE(run(runs_->start(throws)).ok());
  EXPECT_TRUE(journal_->runs()->empty());
  start();
}

TEST_F(RunServiceTest, ACrowdThatJoinsAtOnceIsLookedAtTogether) {
  test_.on_strand([&] {
    for (std::uint32_t site = 10; site < 1010; ++site) runs_->members().changed({SiteId(site)});
    EXPECT_EQ(looks_.copy(), 1) << "the first has the room to itself";
  });
  looks_.wait([](int looks) { return looks == 2; });
  test_.on_strand([&] { runs_->members().revoked(NodeId(10)); });
  EXPECT_EQ(looks_.copy(), 3) << "at once: a round may open next";
}

TEST_F(RunServiceTest, AStartThatFailsLeavesNothingThatARestartTakesUp) {
  for (std::uint64_t at = 0;; ++at) {
    files_.fail_at(at, store::Fault::kNoSpace);
    const Result<RunId> started = run(runs_->start(begins(row(), model())));
    files_.clear_fault();
    if (started.ok()) {
      ASSERT_GT(at, 10U) << "each operation of the disk failed once";
      break;
    }
    ASSERT_FALSE(runs_->active_run()) << at;
    if (const auto fault = journal_->fault(); fault && fault->code == Code::kUnavailable) {  // wants a restart
      close();
      open();
    }
    const std::vector<store::RunRow> rows = journal_->runs().value();
    for (const store::RunRow& one : rows) EXPECT_EQ(one.status, store::RunStatus::kStopped) << at;
  }
}

TEST_F(RunServiceTest, TheStateThatAnOptimizerBeginsWithOutlivesTheProcess) {
  store::RunRow kept = row();
  kept.plan.optimizer = round::ServerOptimizer::of(round::Optimizer::kFedAvgM);
  kept.keeps_optimizer = true;
  const std::vector<float> state(small_schema().value_count(), 0.25F);
  const Result<RunId> started = run(runs_->start(begins(kept, model(), States{state})));
  ASSERT_TRUE(started.ok()) << started.error().to_string();
  cut_power();
  ASSERT_NE(runs_->active(), nullptr);
  EXPECT_EQ(runs_->active()->machine.run(), *started);
  EXPECT_EQ(*runs_->active()->optimizer_state, state);
  EXPECT_TRUE(journal_->run(*started)->keeps_optimizer);
}

// Named in the first opening, and given to those who fetch it.
TEST_F(RunServiceTest, TheStateThatACodecBeginsWithOutlivesTheProcess) {
  store::RunRow kept = row();
  kept.schema = *round::Schema::make({{"w", round::DType::kF32, {30, 40}}});
  const std::vector<float> values(kept.schema.value_count(), 1.0F);
  const ByteSpan bytes = std::as_bytes(std::span(values));
  kept.initial_model = store::model_digest(bytes);
  kept.plan.codec = "powersgd:rank=2";
  kept.plan.optimizer = round::ServerOptimizer::of(round::Optimizer::kFedAvgM);  // whose own state begins anew
  const std::vector<float> state(88, 0.25F);
  const ByteSpan state_bytes = std::as_bytes(std::span(state));
  kept.codec_state = round::VectorRef{sha256(state_bytes), state_bytes.size()};
  const States states{{}, SharedBytes::from(Buffer::copy_of(state_bytes))};
  const Result<RunId> started = run(runs_->start(begins(kept, Buffer::copy_of(bytes), states)));
  ASSERT_TRUE(started.ok()) << started.error().to_string();
  for (const bool restarted : {false, true}) {
    SCOPED_TRACE(restarted);
    if (restarted) cut_power();
    ASSERT_NE(runs_->active(), nullptr);
    EXPECT_EQ(runs_->active()->machine.run(), *started);
    const std::optional<round::Pass> pass = runs_->active()->machine.pass();
    ASSERT_TRUE(pass.has_value());
    EXPECT_EQ(pass->state, kept.codec_state);
    EXPECT_TRUE(std::ranges::equal(runs_->active()->codec_state.bytes, state_bytes));
    EXPECT_TRUE(runs_->active()->optimizer_state->empty());
  }
}

// Three rounds that were committed with this `down`; what sites train from after the last.
class DownRestartTest : public RunServiceTest {
 protected:
  TrainedModel commit_three(const std::string& down) {
    store::RunRow kept = row();
    kept.plan.down = down;
    const RunId id = run(runs_->start(begins(kept, model()))).value();
    const DownPlan plan{aggregate::parse_down(down).value(), kept.plan.chunk_values, kept.plan.seed};
    Serial serial;
    TrainedModel last{{id, ModelVersion(0), kept.initial_model, model().size()}, SharedBytes::from(model()), {}, {}};
    for (std::uint64_t round = 1; round <= 3; ++round) {
      std::vector<float> values(small_schema().value_count(), 1.0F);
      values[round] += 0.1F * static_cast<float>(round);
      Master master{
          {id, ModelVersion(round)}, {}, SharedBytes::from(Buffer::copy_of(std::as_bytes(std::span(values))))};
      master.digest = store::model_digest(master.bytes.bytes);
      const aggregate::BaseModel before{last.ref, last.bytes.bytes};
      TrainedModel made = make_trained(serial, plan, kept.schema, master, before).value();
      commit(master, made, plan.down.kind == aggregate::Down::Kind::kDelta);
      last = std::move(made);
    }
    return last;
  }
  void commit(const Master& master, const TrainedModel& made, bool has_file) {
    std::optional<store::TrainedFile> file;
    if (has_file) file = store::TrainedFile{made.bytes.bytes, made.ref.digest};
    store::ModelWriter writer = std::move(*models_->begin(master.key, small_schema()));
    ASSERT_TRUE(writer.write(0, master.bytes.bytes).ok());
    ASSERT_TRUE(models_->keep(std::move(writer), master.digest, {}, file).ok());
    const RoundId round(master.key.version.value());
    round::AttemptRecord attempt{master.key.run, round, AttemptId(1), journal_->next_epoch().value(), {}, 30, {}};
    attempt.participants = {{SiteId(1), Epoch(1), 1000}};
    ASSERT_TRUE(journal_->open_attempt(attempt).ok());
    store::CommitRow commit;
    commit.record = {.run = master.key.run, .round = round, .attempt = AttemptId(1), .model = made.ref};
    commit.participants_count = 1;
    commit.master = master.digest;
    ASSERT_TRUE(journal_->commit(commit).ok());
  }
};

TEST_F(DownRestartTest, WhatSitesTrainFromIsThereAgainAndTravelsAsBefore) {
  for (const std::string down : {"bf16", "delta:int8", "fp32"}) {
    const TrainedModel last = commit_three(down);
    cut_power();
    const ActiveRun* active = runs_->active();
    ASSERT_NE(active, nullptr) << down;
    EXPECT_EQ(active->machine.model(), last.ref) << down;
    EXPECT_EQ(active->slot->ref(), last.ref) << down;
    EXPECT_TRUE(net::same_bytes(active->slot->bytes(), last.bytes.bytes)) << down;
    ASSERT_EQ(active->slot->form().has_value(), down != "fp32") << down;
    if (down != "fp32") {
      EXPECT_EQ(active->slot->form(), last.form->form) << down;
      EXPECT_TRUE(net::same_bytes(active->slot->form_shared().bytes, last.form->bytes.bytes)) << down;
      EXPECT_FALSE(net::same_bytes(active->master.bytes, last.bytes.bytes)) << "the master is another";
    }
    ASSERT_TRUE(run(runs_->stop_run(last.ref.run, "by hand")).ok());
  }
}

// Then there is nothing to make the difference of: it travels whole.
TEST_F(DownRestartTest, WithoutTheModelBeforeItTravelsWhole) {
  const TrainedModel last = commit_three("delta:int8");
  ASSERT_TRUE(files_.remove("/models/run-1/round-2.trained.safetensors").ok());
  ASSERT_TRUE(files_.sync_folder("/models/run-1").ok());
  cut_power();
  ASSERT_NE(runs_->active(), nullptr);
  EXPECT_EQ(runs_->active()->slot->ref(), last.ref);
  EXPECT_TRUE(net::same_bytes(runs_->active()->slot->bytes(), last.bytes.bytes));
  EXPECT_FALSE(runs_->active()->slot->form());
}

TEST_F(DownRestartTest, AnotherModelThanTheJournalNamesIsNotServed) {
  const TrainedModel last = commit_three("delta:int8");
  Buffer other = model();
  other.data()[0] ^= std::byte{1};
  ASSERT_TRUE(
      store::write_model(files_, "/models/run-1/round-3.trained.safetensors", small_schema(), other.span(), {}).ok());
  cut_power();
  EXPECT_EQ(runs_->active(), nullptr);
  EXPECT_THAT(runs_->fault(), HasSubstr("run 1 could not be taken up: ")) << "else nobody hears that the run rests";
  EXPECT_EQ(runtime_.metrics.gauge("storage_fault", {{"part", "models"}}).value(), 1);
  ASSERT_TRUE(run(runs_->start(begins(row(), model()))).ok()) << "from a model that is right";
  EXPECT_EQ(runs_->fault(), "");
  EXPECT_EQ(journalled(RunId(1)), store::RunStatus::kStopped) << "it does not come back beside the newer one";
}

TEST_F(RunServiceTest, AStartThatTheProcessDoesNotSurviveIsStartedOrGivenUp) {
  for (std::uint64_t at = 0;; ++at) {
    files_.fail_at(at, store::Fault::kCrash);
    const Result<RunId> started = run(runs_->start(begins(row(), model())));
    if (started.ok()) {
      ASSERT_GT(at, 10U) << "each operation of the disk was its last once";
      break;
    }
    close();
    files_.restart(store::Unsynced::kKept);
    open();
    const std::vector<store::RunRow> rows = journal_->runs().value();
    for (const store::RunRow& one : rows) {
      EXPECT_TRUE(one.status == store::RunStatus::kStopped || one.status == store::RunStatus::kRunning) << at;
    }
    if (runs_->active_run()) ASSERT_TRUE(run(runs_->stop_run(runs_->active()->machine.run(), "by hand")).ok());
  }
  files_.clear_fault();
}

}  // namespace
}  // namespace fluvial::coordinator
