#include "edge/service/model_fetch.h"

#include <boost/asio/strand.hpp>

#include "core/tree/ask.h"
#include "core/wire/mapping.h"
#include "core/wire/record_mapping.h"
#include "edge/service/test_support.h"

namespace fluvial::edge {
namespace {

net::Awaitable<Status> begin(ModelFetch* fetch, v1::ModelBegin message) {
  co_return co_await fetch->begin(std::move(message));
}

class ModelFetchTest : public testing::Test {
 protected:
  ~ModelFetchTest() override {
    runtime_.on_strand([&] { fetch_.stop(); });
    runtime_.threads().run(tasks_.join());
  }
  template <typename F>
  auto on_strand(F f) {
    return runtime_.on_strand(std::move(f));
  }
  static round::Schema schema() { return round::Schema::make({{"w", round::DType::kF32, {100}}}).value(); }
  static HeldModel model(std::uint64_t version) {
    const std::vector<float> values = draw(version, 100);
    return held_model(RunId(1), version, schema(), std::as_bytes(std::span(values)));
  }
  void want(const HeldModel& model) {
    on_strand([&] { fetch_.want(model.ref); });
  }
  std::uint64_t requested(const HeldModel& model) {
    const v1::Envelope request = posted_.take();
    EXPECT_EQ(wire::from_proto(request.model_request().model()).value(), model.ref);
    return request.model_request().offset();
  }
  Status give_begin(const HeldModel& model, std::uint64_t offset) {
    v1::ModelBegin message;
    *message.mutable_model() = wire::to_proto(model.ref);
    *message.mutable_schema() = wire::to_proto(schema());
    message.set_offset(offset);
    return runtime_.run(begin(&fetch_, std::move(message)));
  }
  Status give(const HeldModel& model, std::uint64_t from, std::uint64_t to, std::byte flip = {}) {
    v1::ModelChunk message;
    message.set_run(model.ref.run.value());
    message.set_version(model.ref.version.value());
    message.set_offset(from);
    Buffer bytes = Buffer::copy_of(model.bytes->bytes().subspan(from, to - from));
    bytes.data()[0] ^= flip;
    return on_strand([&] { return fetch_.chunk(message, bytes.span()); });
  }

  TestRuntime runtime_;
  net::TaskGroup tasks_{runtime_.get().strand};
  Mailbox<v1::Envelope> posted_;
  Mailbox<HeldModel> held_;
  Mailbox<round::ModelRef> refused_;
  ModelFetch fetch_{runtime_.get(), tasks_, [this](v1::Envelope message) { posted_.put(std::move(message)); },
                    [this](HeldModel model) { held_.put(std::move(model)); },
                    [this](const round::ModelRef& model, const Error&) { refused_.put(model); }};
};

TEST_F(ModelFetchTest, GoesOnWhereTheSessionBroke) {
  const HeldModel one = model(1);
  want(one);
  EXPECT_EQ(requested(one), 0u);
  ASSERT_TRUE(give_begin(one, 0).ok());
  ASSERT_TRUE(give(one, 0, 250).ok());
  on_strand([&] {
    fetch_.parent_down();
    fetch_.parent_up();
  });
  EXPECT_EQ(requested(one), 250u);
  ASSERT_TRUE(give_begin(one, 250).ok());
  ASSERT_TRUE(give(one, 250, 400).ok());
  const HeldModel held = held_.take();
  EXPECT_EQ(held.ref, one.ref);
  EXPECT_TRUE(net::same_bytes(held.bytes->bytes(), one.bytes->bytes()));
  EXPECT_TRUE(posted_.empty());
}

TEST_F(ModelFetchTest, AParentThatNamesItIsAskedOnceOnASession) {
  const HeldModel one = model(1);
  want(one);
  want(one);
  EXPECT_EQ(requested(one), 0u);
  EXPECT_TRUE(posted_.empty()) << "the commit named it, and the opening again before anything of it came";
  on_strand([&] {
    fetch_.parent_down();
    fetch_.parent_up();
  });
  EXPECT_EQ(requested(one), 0u);
  want(one);
  EXPECT_EQ(requested(one), 0u) << "another parent may not have had it before it named it";
  want(one);
  ASSERT_TRUE(give_begin(one, 0).ok());
  ASSERT_TRUE(give(one, 0, 400).ok());
  EXPECT_EQ(held_.take().ref, one.ref);
  EXPECT_TRUE(posted_.empty());
}

TEST_F(ModelFetchTest, ANewerModelReplacesTheOneOnItsWay) {
  const HeldModel one = model(1);
  const HeldModel two = model(2);
  want(one);
  ASSERT_TRUE(give_begin(one, 0).ok());
  want(two);
  EXPECT_EQ(requested(one), 0u);
  EXPECT_EQ(requested(two), 0u);
  EXPECT_TRUE(give(one, 0, 400).ok()) << "of the request before: passed over";
  EXPECT_TRUE(give_begin(one, 0).ok());
  ASSERT_TRUE(give_begin(two, 0).ok());
  ASSERT_TRUE(give(two, 0, 400).ok());
  EXPECT_EQ(held_.take().ref, two.ref);
}

TEST_F(ModelFetchTest, WhatDoesNotMatchItsDigestIsFetchedAgain) {
  const HeldModel one = model(1);
  want(one);
  for (const std::byte flip : {std::byte{1}, std::byte{0}}) {
    EXPECT_EQ(requested(one), 0u);
    ASSERT_TRUE(give_begin(one, 0).ok());
    ASSERT_TRUE(give(one, 0, 400, flip).ok());
  }
  EXPECT_EQ(held_.take().ref, one.ref);
  EXPECT_EQ(refused_.take(), one.ref);
  EXPECT_TRUE(runtime_.log().contains("its digest is"));
}

TEST_F(ModelFetchTest, RefusesWhatDoesNotFit) {
  const HeldModel one = model(1);
  want(one);
  v1::ModelBegin small;
  *small.mutable_model() = wire::to_proto(one.ref);
  *small.mutable_schema() = wire::to_proto(round::Schema::make({{"w", round::DType::kF32, {99}}}).value());
  EXPECT_FALSE(runtime_.run(begin(&fetch_, small)).ok());
  EXPECT_FALSE(give_begin(one, 8).ok()) << "with a hole";
  ASSERT_TRUE(give_begin(one, 0).ok());
  EXPECT_FALSE(give(one, 8, 16).ok());
  v1::ModelChunk long_one;
  long_one.set_run(1);
  long_one.set_version(1);
  const Buffer bytes(401);
  EXPECT_FALSE(on_strand([&] { return fetch_.chunk(long_one, bytes.span()); }).ok());
}

}  // namespace
}  // namespace fluvial::edge
