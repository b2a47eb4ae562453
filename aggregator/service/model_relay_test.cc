#include "aggregator/service/model_relay.h"

#include <array>
#include <span>

#include "core/aggregate/model_form.h"
#include "core/digest/model_digest.h"
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
  void give(std::uint64_t version, std::byte flip = {}) { give(ref(version), flip); }
  void give(const round::ModelRef& model, std::byte flip = {}) {
    v1::ModelBegin message;
    *message.mutable_model() = wire::to_proto(model);
    *message.mutable_schema() = wire::to_proto(*round::Schema::make({{"w", round::DType::kF32, {4}}}));
    EXPECT_TRUE(runtime_.run(begin(&relay_, std::move(message))).ok());
    v1::ModelChunk chunk;
    chunk.set_run(1);
    chunk.set_version(model.version.value());
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

// With windows the next one is named while one is on its way. A child asks its parent once, so it must not ask in vain.
TEST_F(ModelRelayTest, WhoAsksForTheNextOneWaitsForIt) {
  want(1);
  posted_.take();
  const auto next = runtime_.on_strand([&] {
    relay_.expect(ref(2));
    return relay_.slot(ref(2));
  });
  ASSERT_TRUE(next);
  EXPECT_TRUE(posted_.empty()) << "the present one comes to its end first";
  give(1);
  EXPECT_TRUE(complete_.take());
  EXPECT_EQ(want(2), next);
  give(2);
  EXPECT_TRUE(complete_.take());
  runtime_.on_strand([&] { EXPECT_TRUE(next->complete()); });
}

TEST_F(ModelRelayTest, ANextOneThatIsOvertakenKeepsNobodyWaiting) {
  want(1);
  const auto overtaken = runtime_.on_strand([&] {
    relay_.expect(ref(2));
    const auto slot = relay_.slot(ref(2));
    relay_.expect(ref(3));
    return slot;
  });
  runtime_.on_strand([&] {
    EXPECT_TRUE(overtaken->abandoned());
    EXPECT_EQ(relay_.slot(ref(2)), nullptr);
    const auto next = relay_.slot(ref(3));
    ASSERT_TRUE(next);
    relay_.want(ref(4));
    EXPECT_TRUE(next->abandoned());
    EXPECT_EQ(relay_.slot(ref(3)), nullptr);
  });
}

// What is checked against them comes from older models, too, while the newest is on its way.
TEST_F(ModelRelayTest, TheLastWholeOnesIntegersStay) {
  want(1);
  runtime_.on_strand([&] { EXPECT_EQ(relay_.integers_of(RunId(1)).values, nullptr); });
  give(1);
  EXPECT_TRUE(complete_.take());
  want(2);
  runtime_.on_strand([&] {
    EXPECT_NE(relay_.integers_of(RunId(1)).values, nullptr);
    EXPECT_EQ(relay_.integers_of(RunId(2)).values, nullptr) << "another run's";
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

// ---- ahead of its name -------------------------------------------------------------------------------------------

class AheadRelayTest : public ModelRelayTest {
 protected:
  AheadRelayTest() {
    base_ = want(1);
    posted_.take();
    give(1);
    complete_.take();
  }
  static round::ModelRef unnamed(std::uint64_t version) {
    Serial serial;
    round::ModelRef model = ref(version);
    model.digest = *model_tree_digest(serial, bytes());
    return model;
  }
  bool ahead(const round::ModelRef& model) {
    return runtime_.on_strand([&] { return relay_.ahead(model); });
  }
  void name(std::uint64_t version) {
    runtime_.on_strand([&] {
      relay_.receiver().known(ref(version), unnamed(version).digest);
      relay_.want(ref(version));
    });
  }
  std::shared_ptr<tree::ModelSlot> base_;
};

TEST_F(AheadRelayTest, TheBaseOfTheOpenRoundStaysUntilTheNextIsNamed) {
  ASSERT_TRUE(ahead(unnamed(2)));
  posted_.take();
  give(unnamed(2));
  runtime_.on_strand([&] {
    const auto early = relay_.slot(unnamed(2));
    ASSERT_TRUE(early) << "children may ask for it";
    EXPECT_EQ(early->available(), bytes().size());
    EXPECT_EQ(relay_.slot(ref(1)), base_) << "who comes late to the open round trains from this";
    EXPECT_EQ(relay_.slot(), base_);
    EXPECT_FALSE(base_->abandoned());
    EXPECT_EQ(relay_.slot(ref(2)), nullptr) << "nobody has named it so";
  });
  name(2);
  EXPECT_TRUE(complete_.take());
  runtime_.on_strand([&] {
    EXPECT_EQ(relay_.slot()->ref(), ref(2));
    EXPECT_EQ(relay_.slot(ref(2)), relay_.slot(unnamed(2))) << "children have asked for it by either name";
    EXPECT_TRUE(base_->abandoned());
  });
}

TEST_F(AheadRelayTest, WhoWasSentADamagedOneGetsTheOneThatIsNamed) {
  ASSERT_TRUE(ahead(unnamed(2)));
  posted_.take();
  const auto damaged = runtime_.on_strand([&] { return relay_.slot(unnamed(2)); });
  give(unnamed(2), std::byte{1});
  const auto dropped = [&] {
    return runtime_.get().metrics.counter("models_ahead_total", {{"outcome", "dropped"}}).value() == 1;
  };
  while (!dropped()) runtime_.on_strand([] {});
  name(2);
  posted_.take();
  runtime_.on_strand([&] {
    EXPECT_TRUE(damaged->abandoned());
    const auto anew = relay_.slot(unnamed(2));
    ASSERT_TRUE(anew);
    EXPECT_EQ(anew, relay_.slot(ref(2)));
    EXPECT_EQ(anew->available(), 0U);
  });
}

// Also when the damage shows after the naming: a child that went on under its first name would wait for ever.
TEST_F(AheadRelayTest, DamagedAfterItWasNamedItComesAnewUnderBothNames) {
  ASSERT_TRUE(ahead(unnamed(2)));
  posted_.take();
  v1::ModelBegin message;
  *message.mutable_model() = wire::to_proto(unnamed(2));
  *message.mutable_schema() = wire::to_proto(*round::Schema::make({{"w", round::DType::kF32, {4}}}));
  ASSERT_TRUE(runtime_.run(begin(&relay_, std::move(message))).ok());
  name(2);
  const auto first = runtime_.on_strand([&] { return relay_.slot(); });
  v1::ModelChunk chunk;
  chunk.set_run(1);
  chunk.set_version(2);
  Buffer copy = Buffer::copy_of(bytes());
  copy.data()[0] ^= std::byte{1};
  for (int times = 0; times < 2; ++times) {
    ASSERT_TRUE(runtime_.on_strand([&] { return relay_.receiver().chunk(chunk, copy.span()); }).ok());
    EXPECT_EQ(wire::from_proto(posted_.take().model_request().model()).value(), ref(2));
    runtime_.on_strand([&] {
      EXPECT_TRUE(first->abandoned());
      ASSERT_TRUE(relay_.slot(unnamed(2)));
      EXPECT_EQ(relay_.slot(unnamed(2)), relay_.slot(ref(2)));
      EXPECT_FALSE(relay_.slot(ref(2))->abandoned());
    });
    v1::ModelBegin again;
    *again.mutable_model() = wire::to_proto(ref(2));
    *again.mutable_schema() = wire::to_proto(*round::Schema::make({{"w", round::DType::kF32, {4}}}));
    ASSERT_TRUE(runtime_.run(begin(&relay_, std::move(again))).ok());
  }
}

TEST_F(AheadRelayTest, OneThatDoesNotFollowOnWhatIsHereIsLeftAlone) {
  EXPECT_FALSE(ahead(unnamed(3)));
  EXPECT_FALSE(ahead(unnamed(1)));
  round::ModelRef larger = unnamed(2);
  larger.bytes = 1 << 30;
  EXPECT_FALSE(ahead(larger)) << "a parent may not have this node take memory as it likes";
  round::ModelRef another = unnamed(2);
  another.run = RunId(9);
  EXPECT_FALSE(ahead(another));
  EXPECT_TRUE(posted_.empty());
}

TEST_F(AheadRelayTest, OfARunThatEndedNothingStays) {
  ASSERT_TRUE(ahead(unnamed(2)));
  const auto early = runtime_.on_strand([&] { return relay_.slot(unnamed(2)); });
  runtime_.on_strand([&] {
    relay_.forget_ahead(RunId(1));
    EXPECT_TRUE(early->abandoned());
    EXPECT_EQ(relay_.slot(unnamed(2)), nullptr);
    EXPECT_EQ(relay_.slot(), base_);
  });
}

}  // namespace
}  // namespace fluvial::aggregator
