// Results in memory that a worker keeps: reused, announced in parts, updates instead of models, shards of a group. And
// an agent's messages about committed models and earlier results.
#include <gtest/gtest.h>

#include "core/local/test_support.h"
#include "core/local/worker_client.h"

namespace fluvial::local {
namespace {

class ResultTest : public testing::Test {
 protected:
  WorkerClient attach(const WorkerOptions& options) {
    Result<WorkerClient> client = WorkerClient::attach(agent_.socket(), options);
    EXPECT_TRUE(client.ok()) << client.error().to_string();
    return std::move(client).value();
  }
  Task give(WorkerClient& client, std::string_view name, Task task) {
    agent_.server().assign(agent_.worker(name), std::move(task));
    return client.next_task().value().value();
  }
  TaskResult wait_done(std::uint64_t id) {
    agent_.recorder().wait([&](const Seen& seen) { return seen.done.contains(TaskId(id)); });
    return agent_.recorder().seen().done.at(TaskId(id));
  }
  Agent agent_;
};

round::ByteRanges ranges_of(std::initializer_list<round::ByteRange> list) {
  round::ByteRanges set;
  for (const round::ByteRange& range : list) EXPECT_TRUE(set.add(range).ok());
  return set;
}

TEST_F(ResultTest, OneBufferServesForManyTasks) {
  WorkerClient client = attach({.name = "gpu-0"});
  ResultBuffer buffer = ResultBuffer::create(16).value();
  for (std::uint64_t id = 1; id <= 3; ++id) {
    give(client, "gpu-0", train_task(id));
    std::ranges::fill(buffer.span(), static_cast<std::byte>(id));
    ASSERT_TRUE(client.submit(buffer, {.weight = 5, .metrics = {{"loss", 1}}, .update = id == 2}).ok());
    const TaskResult result = wait_done(id);
    EXPECT_EQ(result.model->bytes()[15], static_cast<std::byte>(id));
    EXPECT_EQ(result.update, id == 2);
    EXPECT_EQ(result.weight, 5u);
    EXPECT_EQ(result.ranges, round::ByteRanges::whole(16));
  }
}

TEST_F(ResultTest, PartsAreAnnouncedWhileTheRestIsComputed) {
  WorkerClient client = attach({.name = "gpu-0"});
  ResultBuffer buffer = ResultBuffer::create(16).value();
  for (std::uint64_t id = 1; id <= 2; ++id) {
    give(client, "gpu-0", train_task(id));
    ASSERT_TRUE(client.ready(buffer, ranges_of({{8, 4}}), 3, true).ok());
    ASSERT_TRUE(client.ready(buffer, ranges_of({{0, 4}, {12, 4}}), 3, true).ok());
    ASSERT_TRUE(client.submit(buffer, {.weight = 3, .update = true}).ok());
    const TaskResult result = wait_done(id);
    const std::vector<TaskReady> ready = agent_.recorder().seen().ready.at(TaskId(id));
    ASSERT_EQ(ready.size(), 2u);
    EXPECT_EQ(ready[0].ranges, ranges_of({{8, 4}}));
    EXPECT_EQ(ready[1].ranges, ranges_of({{0, 4}, {12, 4}}));
    EXPECT_EQ(ready[1].model, ready[0].model);
    EXPECT_EQ(result.model, ready[0].model);
    EXPECT_TRUE(ready[0].update);
    EXPECT_EQ(ready[0].weight, 3u);
  }
}

TEST_F(ResultTest, RanksOfAGroupAnswerForTheirRanges) {
  WorkerClient client = attach({.name = "rank-1", .group = Group{"fsdp", 1, 2}, .wants_models = true});
  agent_.worker("rank-1");
  const WorkerInfo info = agent_.recorder().seen().attached.begin()->second;
  EXPECT_EQ(info.group, (Group{"fsdp", 1, 2}));
  EXPECT_TRUE(info.wants_models);
  const ResultBuffer buffer = ResultBuffer::create(16).value();
  give(client, "rank-1", train_task(1));
  ASSERT_TRUE(client.ready(buffer, ranges_of({{4, 4}}), 1).ok());
  ASSERT_TRUE(client.submit(buffer, {.weight = 1, .ranges = ranges_of({{4, 8}})}).ok());
  EXPECT_EQ(wait_done(1).ranges, ranges_of({{4, 8}}));
}

TEST_F(ResultTest, ARankAnswersForAsManyRangesAsTheProtocolAllows) {
  WorkerClient client = attach({.name = "experts", .group = Group{"fsdp", 0, 2}});
  const Task task = train_task(1, 2 * kRangesMax);
  const ResultBuffer buffer = ResultBuffer::create(task.schema.model_bytes()).value();
  round::ByteRanges every_second;
  for (std::uint64_t i = 0; i < kRangesMax; ++i) ASSERT_TRUE(every_second.add({8 * i + 4, 4}).ok());
  give(client, "experts", task);
  ASSERT_TRUE(client.submit(buffer, {.weight = 1, .ranges = every_second}).ok());
  EXPECT_EQ(wait_done(1).ranges, every_second);
}

TEST_F(ResultTest, TheAgentTellsWhatBecameOfTheLastOne) {
  WorkerClient client = attach({.name = "gpu-0"});
  Task task = train_task(1);
  task.previous = Previous{RoundId(6), ResultOutcome::kLate};
  EXPECT_EQ(give(client, "gpu-0", std::move(task)).previous, (Previous{RoundId(6), ResultOutcome::kLate}));
  ASSERT_TRUE(client.fail("enough").ok());
  agent_.recorder().wait([](const Seen& seen) { return seen.failed.contains(TaskId(1)); });
  EXPECT_FALSE(give(client, "gpu-0", train_task(2)).previous);
}

TEST_F(ResultTest, CommittedModelsComeInTheirPlace) {
  WorkerClient client = attach({.name = "gpu-0", .wants_models = true});
  const WorkerId worker = agent_.worker("gpu-0");
  const auto model = SharedModel::copy_of(as_byte_span("0123456789abcdef")).value();
  agent_.server().committed(worker, {RunId(3), "digits", RoundId(6), ModelVersion(7), model});
  agent_.server().committed(WorkerId(99), {RunId(3), "digits", RoundId(6), ModelVersion(7), model});
  agent_.server().assign(worker, train_task(1));
  agent_.server().run_ended({RunId(3), "digits", "done"});
  const WorkerClient::Event first = client.next_event().value().value();
  ASSERT_TRUE(std::holds_alternative<CommittedModel>(first));
  const CommittedModel& committed = std::get<CommittedModel>(first);
  EXPECT_EQ(committed.run, RunId(3));
  EXPECT_EQ(committed.run_name, "digits");
  EXPECT_EQ(committed.round, RoundId(6));
  EXPECT_EQ(committed.version, ModelVersion(7));
  EXPECT_EQ(as_text(committed.model->bytes()), "0123456789abcdef");
  EXPECT_TRUE(std::holds_alternative<Task>(client.next_event().value().value()));
  EXPECT_TRUE(std::holds_alternative<EndedRun>(client.next_event().value().value()));
}

}  // namespace
}  // namespace fluvial::local
