// Memory is used again, and never while anybody holds the model that is in it.
#include "core/local/model_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "core/local/frame.h"
#include "core/local/test_support.h"
#include "core/local/worker_client.h"

namespace fluvial::local {
namespace {

using Model = std::shared_ptr<const SharedModel>;

class ModelMemoryTest : public testing::Test {
 protected:
  // The open round's model is always held: without one nothing is kept.
  ModelMemoryTest() : open_round_(make("the one")) {}
  void SetUp() override {
    if (!open_round_->is_kept())
      GTEST_SKIP() << "this kernel grants no leases on memfds: each model has its own memory";
  }
  Model make(std::string_view text) {
    MemfdWriter writer = memory_->writer(text.size()).value();
    std::memcpy(writer.span().data(), text.data(), text.size());
    return std::move(writer).seal().value();
  }
  // Whether the next model lies where an earlier one did.
  bool is_reused(std::string_view text = "another") {
    const std::uint64_t before = memory_->counts().reused;
    const Model model = make(text);
    EXPECT_EQ(as_text(model->bytes()), text);
    return memory_->counts().reused > before;
  }
  static UniqueFd second_of(int fd) { return UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, 0)); }
  static std::string text_of(int fd) {
    std::string text(7, ' ');
    EXPECT_EQ(::pread(fd, text.data(), text.size(), 0), 7);
    return text;
  }

  std::shared_ptr<ModelMemory> memory_ = ModelMemory::make();
  Model open_round_;
};

TEST_F(ModelMemoryTest, AModelThatNobodyHasMakesRoomForTheNext) {
  const std::byte* place = nullptr;
  for (int round = 0; round < 5; ++round) {
    const Model model = make("model " + std::to_string(round));
    EXPECT_EQ(as_text(model->bytes()), "model " + std::to_string(round));
    if (place == nullptr) place = model->bytes().data();
    EXPECT_EQ(model->bytes().data(), place);
  }
  EXPECT_EQ(memory_->counts().made, 2u);
  EXPECT_EQ(memory_->counts().reused, 4u);
  EXPECT_EQ(as_text(open_round_->bytes()), "the one");
}

TEST_F(ModelMemoryTest, ADescriptorOfAnotherKeepsTheModelAsItIs) {
  Model model = make("model 1");
  UniqueFd workers = second_of(model->fd());
  model.reset();
  EXPECT_FALSE(is_reused());
  EXPECT_EQ(text_of(workers.get()), "model 1");
  workers.reset();
  EXPECT_TRUE(is_reused());
}

TEST_F(ModelMemoryTest, AMappingOfAnotherKeepsTheModelAsItIs) {
  for (const int kind : {MAP_SHARED, MAP_PRIVATE}) {
    Model model = make("model 1");
    void* const array = ::mmap(nullptr, 7, PROT_READ, kind, model->fd(), 0);
    ASSERT_NE(array, MAP_FAILED);
    model.reset();
    const Model next = make("model 2");
    EXPECT_STREQ(std::string(static_cast<const char*>(array), 7).c_str(), "model 1") << "its descriptor is closed";
    ::munmap(array, 7);
  }
}

TEST_F(ModelMemoryTest, AModelInAMessageStaysAsItIs) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  const UniqueFd agent(ends[0]);
  const UniqueFd worker(ends[1]);
  {
    FrameWriter message("a task", make("model 1"));
    ASSERT_TRUE(message.write(agent.get()).value());
  }
  EXPECT_FALSE(is_reused()) << "the worker has not read it yet";
  FrameReader reader(100);
  ASSERT_EQ(reader.read(worker.get()).value(), FrameReader::State::kComplete);
  const Frame frame = reader.take();
  const Model second = make("model 2");
  const Model third = make("model 3");
  EXPECT_EQ(text_of(frame.fd.get()), "model 1");
}

TEST_F(ModelMemoryTest, NobodyElseCanWriteToIt) {
  const Model model = make("model 1");
  UniqueFd writing = open_again(model->fd(), O_RDWR);
  for (const int fd : {model->fd(), writing.get()}) {
    EXPECT_LT(::pwrite(fd, "x", 1, 0), 0);
    EXPECT_LT(::ftruncate(fd, 1), 0);
    EXPECT_LT(::ftruncate(fd, 9), 0);
    EXPECT_EQ(::mmap(nullptr, 7, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
    EXPECT_LT(::fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), 0);
  }
  const auto adopted = SharedModel::adopt(second_of(model->fd()), 7);
  ASSERT_TRUE(adopted.ok()) << adopted.error().to_string();
  EXPECT_EQ(as_text((*adopted)->bytes()), "model 1");
  EXPECT_FALSE((*adopted)->is_kept()) << "that is its agent's affair";
}

TEST_F(ModelMemoryTest, WhatIsKeptIsOfOneSizeAndAtMostTwo) {
  std::vector<Model> models;
  for (int i = 0; i < 4; ++i) models.push_back(make("model " + std::to_string(i)));
  models.clear();
  EXPECT_EQ(memory_->counts().kept, ModelMemory::kKeptMax);
  EXPECT_FALSE(is_reused("a model of another run"));
  EXPECT_EQ(memory_->counts().kept, 1u) << "of the other size";
}

TEST_F(ModelMemoryTest, WithTheLastModelAllGoes) {
  make("model 1").reset();
  EXPECT_EQ(memory_->counts().kept, 1u);
  open_round_.reset();
  EXPECT_EQ(memory_->counts().kept, 0u);
}

TEST_F(ModelMemoryTest, AModelMayOutliveIt) {
  const Model model = make("model 1");
  memory_.reset();
  EXPECT_EQ(as_text(model->bytes()), "model 1");
}

TEST_F(ModelMemoryTest, AWorkerOfAnEarlierVersionGetsMemoryOfItsOwn) {
  const auto seals_of = [](int fd) { return ::fcntl(fd, F_GET_SEALS) & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE); };
  Agent agent;
  RawPeer earlier(agent.socket());
  earlier.attach("earlier");
  Result<WorkerClient> client = WorkerClient::attach(agent.socket(), {.name = "of-today"});
  ASSERT_TRUE(client.ok()) << client.error().to_string();
  Task task = train_task(1);
  MemfdWriter writer = memory_->writer(task.schema.model_bytes()).value();
  std::memset(writer.span().data(), 7, writer.span().size());
  task.model = std::move(writer).seal().value();
  agent.server().assign(agent.worker("earlier"), task);
  UniqueFd model;
  ASSERT_TRUE(earlier.receive(&model).has_task());
  EXPECT_EQ(seals_of(model.get()), F_SEAL_WRITE);
  task.id = TaskId(2);
  agent.server().assign(agent.worker("of-today"), task);
  const Result<std::optional<Task>> given = client->next_task();
  ASSERT_TRUE(given.ok() && *given);
  EXPECT_EQ(seals_of((*given)->model->fd()), F_SEAL_FUTURE_WRITE);
  EXPECT_EQ(std::to_integer<int>((*given)->model->bytes()[0]), 7);
}

}  // namespace
}  // namespace fluvial::local
