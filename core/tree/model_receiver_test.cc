#include "core/tree/model_receiver.h"

#include <cstring>
#include <span>
#include <vector>

#include "core/digest/sha256.h"
#include "core/tree/test_runtime.h"
#include "core/wire/mapping.h"
#include "core/wire/record_mapping.h"

namespace fluvial::tree {
namespace {

struct Model {
  round::ModelRef ref;
  Buffer bytes;
};

// Keeps what came. It can be told to have no room.
class KeptModel final : public ModelSink {
 public:
  KeptModel(const round::ModelRef& ref, bool has_room, Mailbox<std::vector<std::byte>>& complete)
      : ref_(ref), has_room_(has_room), complete_(complete) {}

  net::Awaitable<Status> begin(round::Schema schema) override {
    EXPECT_EQ(schema.model_bytes(), ref_.bytes);
    co_return has_room_ ? Status{} : Status{Error{Code::kResourceExhausted, "no room"}};
  }
  Status append(ByteSpan bytes) override {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return {};
  }
  ByteSpan bytes() override { return bytes_; }
  Status seal() override {
    EXPECT_EQ(bytes_.size(), ref_.bytes);
    return {};
  }
  void complete() override { complete_.put(bytes_); }

 private:
  round::ModelRef ref_;
  bool has_room_;
  Mailbox<std::vector<std::byte>>& complete_;
  std::vector<std::byte> bytes_;
};

class ModelReceiverTest : public testing::Test {
 protected:
  ~ModelReceiverTest() override {
    runtime_.on_strand([&] { receiver_.stop(); });
    runtime_.threads().run(tasks_.join());
  }
  template <typename F>
  auto on_strand(F f) {
    return runtime_.on_strand(std::move(f));
  }
  static round::Schema schema(std::uint64_t values = 100) {
    return round::Schema::make({{"w", round::DType::kF32, {values}}}).value();
  }
  static Model model(std::uint64_t version) {
    std::vector<float> values(100, static_cast<float>(version));
    values[7] = 0.5F;
    Buffer bytes = Buffer::copy_of(std::as_bytes(std::span(values)));
    return {{RunId(1), ModelVersion(version), sha256(bytes.span()), bytes.size()}, std::move(bytes)};
  }
  void want(const Model& model) {
    on_strand([&] { receiver_.want(model.ref); });
  }
  void reconnect() {
    on_strand([&] {
      receiver_.parent_down();
      receiver_.parent_up();
    });
  }
  std::uint64_t requested(const Model& model) {
    const v1::Envelope request = posted_.take();
    EXPECT_EQ(wire::from_proto(request.model_request().model()).value(), model.ref);
    return request.model_request().offset();
  }
  static net::Awaitable<Status> begin(ModelReceiver* receiver, v1::ModelBegin message) {
    co_return co_await receiver->begin(std::move(message));
  }
  Status give_begin(const Model& model, std::uint64_t offset,
                    const round::Schema& schema = ModelReceiverTest::schema()) {
    v1::ModelBegin message;
    *message.mutable_model() = wire::to_proto(model.ref);
    *message.mutable_schema() = wire::to_proto(schema);
    message.set_offset(offset);
    return runtime_.run(begin(&receiver_, std::move(message)));
  }
  Status give(const Model& model, std::uint64_t from, std::uint64_t to, std::byte flip = {}) {
    v1::ModelChunk message;
    message.set_run(model.ref.run.value());
    message.set_version(model.ref.version.value());
    message.set_offset(from);
    Buffer bytes = Buffer::copy_of(model.bytes.span().subspan(from, to - from));
    bytes.data()[0] ^= flip;
    return on_strand([&] { return receiver_.chunk(message, bytes.span()); });
  }
  void expect_complete(const Model& model) { EXPECT_TRUE(net::same_bytes(complete_.take(), model.bytes.span())); }

  TestRuntime runtime_{Role::kSite};
  net::TaskGroup tasks_{runtime_.get().strand};
  Mailbox<v1::Envelope> posted_;
  Mailbox<std::vector<std::byte>> complete_;
  Mailbox<round::ModelRef> refused_;
  bool has_room_ = true;
  ModelReceiver receiver_{runtime_.get(),
                          tasks_,
                          {[this](v1::Envelope message) { posted_.put(std::move(message)); },
                           [this](const round::ModelRef& ref) {
                             return std::make_shared<KeptModel>(ref, std::exchange(has_room_, true), complete_);
                           },
                           [this](const round::ModelRef& ref, const Error&) { refused_.put(ref); }}};
};

TEST_F(ModelReceiverTest, GoesOnWhereTheSessionBroke) {
  const Model one = model(1);
  want(one);
  EXPECT_EQ(requested(one), 0u);
  ASSERT_TRUE(give_begin(one, 0).ok());
  ASSERT_TRUE(give(one, 0, 250).ok());
  reconnect();
  EXPECT_EQ(requested(one), 250u);
  EXPECT_TRUE(give(one, 250, 400).ok()) << "of the session before: passed over";
  ASSERT_TRUE(give_begin(one, 250).ok());
  ASSERT_TRUE(give(one, 250, 400).ok());
  expect_complete(one);
  EXPECT_TRUE(posted_.empty());
  EXPECT_EQ(receiver_.bytes_received(), 400u);
}

TEST_F(ModelReceiverTest, AParentThatNamesItIsAskedOnceOnASession) {
  const Model one = model(1);
  want(one);
  want(one);
  EXPECT_EQ(requested(one), 0u);
  EXPECT_TRUE(posted_.empty()) << "the commit named it, and the opening again before anything of it came";
  reconnect();
  EXPECT_EQ(requested(one), 0u);
  want(one);
  EXPECT_EQ(requested(one), 0u) << "another parent may not have had it before it named it";
  want(one);
  ASSERT_TRUE(give_begin(one, 0).ok());
  ASSERT_TRUE(give(one, 0, 400).ok());
  expect_complete(one);
  EXPECT_TRUE(posted_.empty());
}

TEST_F(ModelReceiverTest, WhatIsSentTwiceIsTakenOnce) {
  const Model one = model(1);
  want(one);
  ASSERT_TRUE(give_begin(one, 0).ok());
  ASSERT_TRUE(give(one, 0, 250).ok());
  ASSERT_TRUE(give_begin(one, 100).ok()) << "the answer to another request";
  ASSERT_TRUE(give(one, 100, 200).ok());
  EXPECT_FALSE(give(one, 250, 400).ok()) << "with a hole in what is sent";
  ASSERT_TRUE(give(one, 200, 300).ok());
  ASSERT_TRUE(give(one, 300, 400).ok());
  expect_complete(one);
}

TEST_F(ModelReceiverTest, ANewerModelReplacesTheOneOnItsWay) {
  const Model one = model(1);
  const Model two = model(2);
  want(one);
  ASSERT_TRUE(give_begin(one, 0).ok());
  want(two);
  EXPECT_EQ(requested(one), 0u);
  EXPECT_EQ(requested(two), 0u);
  EXPECT_TRUE(give(one, 0, 400).ok()) << "of the request before: passed over";
  EXPECT_TRUE(give_begin(one, 0).ok());
  ASSERT_TRUE(give_begin(two, 0).ok());
  ASSERT_TRUE(give(two, 0, 400).ok());
  expect_complete(two);
}

TEST_F(ModelReceiverTest, WhatIsForgottenIsNotAskedForAgain) {
  const Model one = model(1);
  want(one);
  EXPECT_EQ(requested(one), 0u);
  on_strand([&] { receiver_.forget(); });
  reconnect();
  EXPECT_TRUE(give_begin(one, 0).ok());
  EXPECT_TRUE(give(one, 0, 400).ok());
  EXPECT_TRUE(posted_.empty());
}

TEST_F(ModelReceiverTest, WhatDoesNotMatchItsDigestIsFetchedAgain) {
  const Model one = model(1);
  want(one);
  for (const std::byte flip : {std::byte{1}, std::byte{0}}) {
    EXPECT_EQ(requested(one), 0u);
    ASSERT_TRUE(give_begin(one, 0).ok());
    ASSERT_TRUE(give(one, 0, 400, flip).ok());
  }
  expect_complete(one);
  EXPECT_EQ(refused_.take(), one.ref);
  EXPECT_TRUE(runtime_.log().contains("its digest is"));
}

TEST_F(ModelReceiverTest, AfterFiveAttemptsOnlyTheNextSessionAsksAgain) {
  const Model one = model(1);
  want(one);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(requested(one), 0u);
    ASSERT_TRUE(give_begin(one, 0).ok());
    ASSERT_TRUE(give(one, 0, 400, std::byte{1}).ok());
    EXPECT_EQ(refused_.take(), one.ref);
  }
  want(one);
  reconnect();
  EXPECT_EQ(requested(one), 0u);
  EXPECT_TRUE(posted_.empty());
  EXPECT_TRUE(runtime_.log().contains("it is asked for again in the next session"));
}

TEST_F(ModelReceiverTest, WithoutRoomForItItIsAskedForAgain) {
  const Model one = model(1);
  has_room_ = false;
  want(one);
  EXPECT_EQ(requested(one), 0u);
  ASSERT_TRUE(give_begin(one, 0).ok()) << "not the parent's fault";
  EXPECT_EQ(requested(one), 0u);
  ASSERT_TRUE(give_begin(one, 0).ok());
  ASSERT_TRUE(give(one, 0, 400).ok());
  expect_complete(one);
  EXPECT_TRUE(refused_.empty());
}

TEST_F(ModelReceiverTest, RefusesWhatDoesNotFit) {
  const Model one = model(1);
  want(one);
  EXPECT_FALSE(give_begin(one, 0, schema(99)).ok());
  EXPECT_FALSE(give_begin(one, 8).ok()) << "with a hole";
  ASSERT_TRUE(give_begin(one, 0).ok());
  EXPECT_FALSE(give(one, 8, 16).ok());
  v1::ModelChunk long_one;
  long_one.set_run(1);
  long_one.set_version(1);
  const Buffer bytes(401);
  EXPECT_FALSE(on_strand([&] { return receiver_.chunk(long_one, bytes.span()); }).ok());
  EXPECT_FALSE(on_strand([&] { return receiver_.chunk(long_one, {}); }).ok());
}

}  // namespace
}  // namespace fluvial::tree
