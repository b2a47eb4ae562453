// A trainer desk for tests: what it gives to workers is written down, and workers answer as the test says.
#pragma once

#include <future>
#include <string>
#include <utility>
#include <vector>

#include "edge/service/test_support.h"
#include "edge/service/trainer_desk.h"

namespace fluvial::edge {

class DeskTest : public testing::Test {
 protected:
  static constexpr std::uint64_t kBytes = 16;  // of the model: four values

  explicit DeskTest(DeskOptions options = {.workers = 2}) : desk_(runtime_.get().strand, options, runtime_.get().log) {
    TrainerDesk::Calls calls;
    calls.assign = [this](local::WorkerId worker, local::Task task) { given_.emplace_back(worker, std::move(task)); };
    calls.working_changed = [this](bool working) { working_.push_back(working); };
    calls.committed = [this](local::WorkerId worker, local::CommittedModel model) {
      told_.emplace_back(worker, model.round);
    };
    calls.ready = [this](const TrainJob&, std::vector<TrainedPart> parts, const round::ByteRanges& ready) {
      early_.emplace_back(std::move(parts), ready);
    };
    desk_.set_calls(std::move(calls));
    plan_.local_steps = 5;
    plan_.worker.values = {{"learning_rate", 0.25}, {"network", "small"}};
  }
  ~DeskTest() override {
    runtime_.on_strand([&] { desk_.stop(); });
    runtime_.threads().stop();
  }
  void attach(std::uint64_t id, const std::string& name, local::TaskKind kind = local::TaskKind::kTrain) {
    attach(id, local::WorkerInfo{.name = name, .kind = kind, .pid = 1});
  }
  void attach(std::uint64_t id, const local::WorkerInfo& info) {
    runtime_.on_strand([&] { desk_.worker_attached(local::WorkerId(id), info); });
  }
  void attach_rank(std::uint64_t id, std::uint32_t rank, std::uint32_t ranks) {
    attach(id, local::WorkerInfo{
                   .name = "rank-" + std::to_string(rank), .pid = 1, .group = local::Group{"fsdp", rank, ranks}});
  }
  void train(std::uint64_t round = 2) {
    TrainJob job;
    job.run = RunId(1);
    job.round = RoundId(round);
    job.plan = plan_;
    job.weight_max = weight_max_;
    const std::vector<float> base(4, 1.0F);
    job.base = held_model(RunId(1), 1, round::Schema::make({{"w", round::DType::kF32, {4}}}).value(),
                          std::as_bytes(std::span(base)));
    done_ = {};
    runtime_.on_strand(
        [&] { desk_.train(std::move(job), [this](Result<Trained> trained) { done_.set_value(std::move(trained)); }); });
  }
  void answer(std::size_t given, std::uint64_t weight, double loss, round::ByteRange range = {0, kBytes},
              std::shared_ptr<const local::DeviceMemory> device = nullptr) {
    local::TaskResult result;
    result.id = given_[given].second.id;
    result.weight = weight;
    result.metrics = {{"loss", loss}};
    result.model = memory_of(given, weight);
    result.device = std::move(device);
    EXPECT_TRUE(result.ranges.add(range).ok());
    runtime_.on_strand([&] { desk_.task_done(given_[given].first, std::move(result)); });
  }
  void ready(std::size_t given, std::uint64_t weight, round::ByteRange range) {
    local::TaskReady ready{.id = given_[given].second.id, .weight = weight, .model = memory_of(given, weight)};
    EXPECT_TRUE(ready.ranges.add(range).ok());
    runtime_.on_strand([&] { desk_.task_ready(given_[given].first, std::move(ready)); });
  }
  void fail(std::size_t given, Code code) {
    const auto& [worker, task] = given_[given];
    runtime_.on_strand([&] { desk_.task_failed(worker, task.id, {code, "no memory"}); });
  }
  void die(std::size_t given) {  // as the worker server tells it
    fail(given, Code::kUnavailable);
    runtime_.on_strand([&] { desk_.worker_detached(given_[given].first, "killed"); });
  }
  Result<Trained> done() { return done_.get_future().get(); }

  TestRuntime runtime_;
  TrainerDesk desk_;
  round::Plan plan_;
  std::uint64_t weight_max_ = 0;
  std::vector<std::pair<local::WorkerId, local::Task>> given_;
  std::vector<bool> working_;  // each time that it changed
  std::vector<std::pair<local::WorkerId, RoundId>> told_;
  std::vector<std::pair<std::vector<TrainedPart>, round::ByteRanges>> early_;
  std::promise<Result<Trained>> done_;

 private:
  std::shared_ptr<const local::SharedModel> memory_of(std::size_t given, std::uint64_t weight) {
    auto& memory = memory_[given];
    if (!memory) memory = shared(std::vector<float>(4, static_cast<float>(weight)));
    return memory;
  }
  std::map<std::size_t, std::shared_ptr<const local::SharedModel>> memory_;
};

class ImpatientDeskTest : public DeskTest {
 protected:
  explicit ImpatientDeskTest(std::size_t workers = 1)
      : DeskTest({.workers = workers,
                  .attach_deadline = std::chrono::milliseconds(20),
                  .task_deadline = std::chrono::milliseconds(20)}) {}
};

}  // namespace fluvial::edge
