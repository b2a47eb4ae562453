#include "aggregator/service/model_relay.h"

#include <array>
#include <span>

#include "core/aggregate/model_form.h"
#include "core/digest/sha256.h"
#include "core/tree/test_runtime.h"
#include "core/wire/mapping.h"
#include "core/wire/record_mapping.h"

namespace fluvial::aggregator {
namespace {

constexpr std::array<float, 4> kValues{1, 2, 3, 4};

class ModelRelayTest : public testing::Test {
 protected:
  ~ModelRelayTest() override {
    runtime_.on_strand([&] { relay_.stop(); });
    runtime_.threads().run(tasks_.join());
  }
  static ByteSpan bytes() { return std::as_bytes(std::span(kValues)); }
  static round::ModelRef ref(std::uint64_t version) {
    return {RunId(1), ModelVersion(version), sha256(bytes()), bytes().size()};
  }
  std::shared_ptr<tree::ModelSlot> want(std::uint64_t version) {
    return runtime_.on_strand([&] {
      relay_.want(ref(version));
      return relay_.slot(ref(version));
    });
  }
  static net::Awaitable<Status> begin(ModelRelay* relay, v1::ModelBegin message) {
    co_return co_await relay->receiver().begin(std::move(message));
  }
  void give(std::uint64_t version, std::byte flip = {}) {
    v1::ModelBegin message;
    *message.mutable_model() = wire::to_proto(ref(version));
    *message.mutable_schema() = wire::to_proto(*round::Schema::make({{"w", round::DType::kF32, {4}}}));
    EXPECT_TRUE(runtime_.run(begin(&relay_, std::move(message))).ok());
    v1::ModelChunk chunk;
    chunk.set_run(1);
    chunk.set_version(version);
    Buffer copy = Buffer::copy_of(bytes());
    copy.data()[0] ^= flip;
    EXPECT_TRUE(runtime_.on_strand([&] { return relay_.receiver().chunk(chunk, copy.span()); }).ok());
  }

  tree::TestRuntime runtime_{Role::kAggregator};
  net::TaskGroup tasks_{runtime_.get().strand};
  tree::Mailbox<v1::Envelope> posted_;
  tree::Mailbox<bool> complete_;
  ModelRelay relay_{runtime_.get(), tasks_, [this](v1::Envelope message) { posted_.put(std::move(message)); },
                    [this] { complete_.put(true); }};
};

TEST_F(ModelRelayTest, WhatIsHereIsPassedOnAndNotAskedForAgain) {
  const auto slot = want(1);
  ASSERT_TRUE(slot);
  EXPECT_EQ(posted_.take().model_request().offset(), 0U);
  give(1);
  EXPECT_TRUE(complete_.take());
  runtime_.on_strand([&] {
    EXPECT_TRUE(relay_.is_complete());
    EXPECT_TRUE(net::same_bytes(slot->bytes(), bytes()));
    relay_.receiver().parent_down();
    relay_.receiver().parent_up();
  });
  EXPECT_EQ(want(1), slot);
  EXPECT_TRUE(posted_.empty());
}

TEST_F(ModelRelayTest, ANewerOneTakesThePlaceOfTheOneBefore) {
  const auto before = want(1);
  const auto newer = want(2);
  runtime_.on_strand([&] {
    EXPECT_TRUE(before->abandoned());
    EXPECT_FALSE(newer->abandoned());
    EXPECT_EQ(relay_.slot(ref(1)), nullptr);
    relay_.forget();
    EXPECT_TRUE(newer->abandoned());
    EXPECT_EQ(relay_.slot(), nullptr);
  });
}

TEST_F(ModelRelayTest, OfADamagedOneNothingMoreIsPassedOnAndItIsAskedForAgain) {
  const auto damaged = want(1);
  posted_.take();
  give(1, std::byte{1});
  EXPECT_EQ(posted_.take().model_request().offset(), 0U);
  runtime_.on_strand([&] {
    EXPECT_TRUE(damaged->abandoned());
    ASSERT_TRUE(relay_.slot(ref(1)));
    EXPECT_EQ(relay_.slot(ref(1))->available(), 0U);
  });
  EXPECT_TRUE(complete_.empty());
  give(1);
  EXPECT_TRUE(complete_.take());
}

// What came as a difference is passed on as one, and whole to those who cannot use it.
TEST_F(ModelRelayTest, ADifferenceIsPassedOnAsItIsAndWhole) {
  want(1);
  EXPECT_FALSE(posted_.take().model_request().has_have());
  give(1);
  EXPECT_TRUE(complete_.take());
  const auto slot = want(2);
  EXPECT_EQ(wire::from_proto(posted_.take().model_request().have()).value(), ref(1));
  const round::Schema schema = *round::Schema::make({{"w", round::DType::kF32, {4}}});
  Serial serial;
  Buffer trained(bytes().size());
  const aggregate::EncodedModel sent =
      aggregate::encode_model(serial, aggregate::parse_down("delta:fp16").value(), 256, {1, 2, 0}, schema, bytes(),
                              aggregate::BaseModel{ref(1), bytes()}, trained.span())
          .value();
  v1::ModelBegin message;
  *message.mutable_model() = wire::to_proto(ref(2));
  *message.mutable_schema() = wire::to_proto(schema);
  *message.mutable_form() = wire::to_proto(sent.form);
  ASSERT_TRUE(runtime_.run(begin(&relay_, std::move(message))).ok());
  v1::ModelChunk chunk;
  chunk.set_run(1);
  chunk.set_version(2);
  ASSERT_TRUE(runtime_.on_strand([&] { return relay_.receiver().chunk(chunk, sent.bytes.span().first(3)); }).ok());
  runtime_.on_strand([&] {
    EXPECT_EQ(slot->form_available(), 3U) << "cut-through";
    EXPECT_TRUE(slot->gives_form(true, ref(1)));
    EXPECT_FALSE(slot->gives_form(true, ref(2))) << "who holds another one";
    EXPECT_FALSE(slot->gives_form(true, {}));
    EXPECT_FALSE(slot->gives_form(false, ref(1)));
    EXPECT_FALSE(slot->complete());
  });
  chunk.set_offset(3);
  ASSERT_TRUE(runtime_.on_strand([&] { return relay_.receiver().chunk(chunk, sent.bytes.span().subspan(3)); }).ok());
  EXPECT_TRUE(complete_.take());
  runtime_.on_strand([&] {
    EXPECT_TRUE(slot->complete());
    EXPECT_TRUE(net::same_bytes(slot->bytes(), bytes()));
    EXPECT_TRUE(net::same_bytes(slot->form_shared().bytes, sent.bytes.span()));
  });
}

}  // namespace
}  // namespace fluvial::aggregator
