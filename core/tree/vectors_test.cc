// Vectors of passes: fetched beside the models, checked by their digest, passed on while they come.
#include "core/tree/vectors.h"

#include <gtest/gtest.h>

#include "core/tree/test_model_receiver.h"

namespace fluvial::tree {
namespace {

class VectorsTest : public testing::Test {
 protected:
  ~VectorsTest() override {
    runtime_.on_strand([&] { vectors_.stop(); });
    runtime_.threads().run(tasks_.join());
  }
  static Buffer bytes_of(float fill) {
    const std::vector<float> values(16, fill);
    return Buffer::copy_of(std::as_bytes(std::span(values)));
  }
  static round::ModelRef ref_of(const Buffer& bytes) {
    const round::ModelRef base{RunId(1), ModelVersion(3), {}, 4000};
    return called({sha256(bytes.span()), bytes.size()}, base);
  }
  void want(const round::ModelRef& ref, const OpenedBy& by = {Epoch(1), AttemptId(1), 0}) {
    runtime_.on_strand([&] { vectors_.want(ref, by); });
  }
  static net::Awaitable<Status> begin(ModelReceiver* receiver, v1::ModelBegin message) {
    co_return co_await receiver->begin(std::move(message));
  }
  Status give_begin(const round::ModelRef& ref, std::uint32_t part = 1, std::uint64_t values = 16,
                    std::uint64_t offset = 0) {
    v1::ModelBegin message;
    *message.mutable_model() = wire::to_proto(ref);
    *message.mutable_schema() = wire::to_proto(round::Schema::make({{"vector", round::DType::kF32, {values}}}).value());
    message.set_part(part);
    message.set_offset(offset);
    return runtime_.run(begin(&vectors_.receiver(), std::move(message)));
  }
  Status give(const round::ModelRef& ref, const Buffer& bytes, std::size_t from, std::size_t size,
              std::uint32_t part = 1) {
    v1::ModelChunk message;
    message.set_run(ref.run.value());
    message.set_version(ref.version.value());
    message.set_offset(from);
    message.set_part(part);
    return runtime_.on_strand([&] { return vectors_.receiver().chunk(message, bytes.span().subspan(from, size)); });
  }
  Status give_here(const round::ModelRef& ref, const Buffer& bytes) {  // on the strand
    v1::ModelChunk message;
    message.set_run(ref.run.value());
    message.set_version(ref.version.value());
    message.set_part(1);
    return vectors_.receiver().chunk(message, bytes.span());
  }

  TestRuntime runtime_{Role::kAggregator, 1};
  net::TaskGroup tasks_{runtime_.get().strand};
  Mailbox<v1::Envelope> posted_;
  Mailbox<std::pair<round::ModelRef, std::vector<std::byte>>> here_;
  Vectors vectors_{runtime_.get(), tasks_, [this](v1::Envelope message) { posted_.put(std::move(message)); },
                   [this](const round::ModelRef& ref, const SharedBytes& bytes) {
                     here_.put({ref, {bytes.bytes.begin(), bytes.bytes.end()}});
                   }};
};

TEST_F(VectorsTest, OneIsAskedForByItsDigestAndPassedOnWhileItComes) {
  const Buffer bytes = bytes_of(1.5F);
  const round::ModelRef ref = ref_of(bytes);
  want(ref);
  const v1::Envelope request = posted_.take();
  EXPECT_EQ(wire::from_proto(request.model_request().model()).value(), ref);
  EXPECT_EQ(request.model_request().part(), 1u);
  ASSERT_TRUE(give_begin(ref).ok());
  ASSERT_TRUE(give(ref, bytes, 0, 40).ok());
  const auto slot = runtime_.on_strand([&] { return vectors_.slot(ref); });
  ASSERT_NE(slot, nullptr);
  EXPECT_EQ(slot->available(), 40u);
  ASSERT_TRUE(give(ref, bytes, 40, 24).ok());
  const auto [told, got] = here_.take();
  EXPECT_EQ(told, ref);
  EXPECT_TRUE(std::ranges::equal(got, bytes.span()));
  want(ref);
  EXPECT_EQ(here_.take().first, ref) << "the next opening of the pass: it is here";
  EXPECT_EQ(runtime_.on_strand([&] { return vectors_.slot(ref_of(bytes_of(2))); }), nullptr);
}

TEST_F(VectorsTest, WhatIsNotCheckedYetIsHandedToNobody) {
  const Buffer bytes = bytes_of(1), damaged = bytes_of(3);
  const round::ModelRef ref = ref_of(bytes);
  want(ref);
  posted_.take();
  ASSERT_TRUE(give_begin(ref).ok());
  runtime_.on_strand([&] {
    ASSERT_TRUE(give_here(ref, damaged).ok());
    ASSERT_TRUE(vectors_.slot(ref)->complete()) << "its digest is looked at on the pool, and told on this strand";
    vectors_.want(ref, {Epoch(1), AttemptId(1), 0});  // the opening is sent once more
    vectors_.want(ref, {Epoch(1), AttemptId(2), 0});
  });
  EXPECT_EQ(wire::from_proto(posted_.take().model_request().model()).value(), ref) << "damaged: asked for again";
  EXPECT_TRUE(runtime_.log().contains("vector refused; fetching it again"));
  ASSERT_TRUE(give_begin(ref).ok());
  ASSERT_TRUE(give(ref, bytes, 0, 64).ok());
  EXPECT_TRUE(std::ranges::equal(here_.take().second, bytes.span())) << "and nothing was told before";
}

// The parent gives it up when the next pass opens, and cuts off who is still fetching it without a word.
TEST_F(VectorsTest, ALaterAttemptAsksAgainForWhatWasOnItsWay) {
  const Buffer bytes = bytes_of(1);
  const round::ModelRef ref = ref_of(bytes);
  want(ref);
  posted_.take();
  ASSERT_TRUE(give_begin(ref).ok());
  ASSERT_TRUE(give(ref, bytes, 0, 40).ok());
  want(ref, {Epoch(1), AttemptId(2), 0});
  const v1::Envelope request = posted_.take();
  EXPECT_EQ(wire::from_proto(request.model_request().model()).value(), ref);
  EXPECT_EQ(request.model_request().offset(), 40u) << "what is here is not sent again";
  want(ref, {Epoch(1), AttemptId(2), 0});
  ASSERT_TRUE(give_begin(ref, 1, 16, 40).ok());
  ASSERT_TRUE(give(ref, bytes, 40, 24).ok());
  EXPECT_EQ(here_.take().first, ref);
  EXPECT_TRUE(posted_.empty()) << "the same opening is no reason to ask";
}

TEST_F(VectorsTest, WhatIsOfAModelIsNotOfIt) {
  const Buffer bytes = bytes_of(1.5F);
  const round::ModelRef ref = ref_of(bytes);
  want(ref);
  posted_.take();
  ASSERT_TRUE(give_begin(ref, 0).ok());
  ASSERT_TRUE(give(ref, bytes, 0, 64, 0).ok());
  ASSERT_TRUE(give_begin(ref).ok());
  ASSERT_TRUE(give(ref, bytes, 0, 32).ok());
  ASSERT_TRUE(give(ref, bytes, 0, 64, 0).ok()) << "a model's, that is on its way as well";
  ASSERT_TRUE(give(ref, bytes, 32, 32).ok());
  EXPECT_EQ(here_.take().first, ref);
}

TEST_F(VectorsTest, WhatIsForgottenIsAskedForAgain) {
  const Buffer bytes = bytes_of(1);
  const round::ModelRef ref = ref_of(bytes);
  want(ref);
  posted_.take();
  ASSERT_TRUE(give_begin(ref).ok());
  ASSERT_TRUE(give(ref, bytes, 0, 64).ok());
  here_.take();
  runtime_.on_strand([&] { vectors_.forget(); });
  EXPECT_EQ(runtime_.on_strand([&] { return vectors_.slot(ref); }), nullptr);
  want(ref);
  EXPECT_EQ(posted_.take().model_request().offset(), 0u);
  EXPECT_TRUE(here_.empty());
}

TEST_F(VectorsTest, AnotherAttemptsTakesItsPlace) {
  const Buffer first = bytes_of(1), second = bytes_of(2);
  want(ref_of(first));
  posted_.take();
  ASSERT_TRUE(give_begin(ref_of(first)).ok());
  want(ref_of(second));
  posted_.take();
  EXPECT_EQ(runtime_.on_strand([&] { return vectors_.slot(ref_of(first)); }), nullptr);
  ASSERT_TRUE(give_begin(ref_of(second)).ok());
  ASSERT_TRUE(give(ref_of(second), second, 0, 64).ok());
  EXPECT_EQ(here_.take().first, ref_of(second));
}

TEST_F(VectorsTest, OneOfAnotherLengthOrContentIsNone) {
  const Buffer bytes = bytes_of(1);
  const round::ModelRef ref = ref_of(bytes);
  want(ref);
  posted_.take();
  EXPECT_FALSE(give_begin(ref, 1, 15).ok());
  ASSERT_TRUE(give_begin(ref).ok());
  ASSERT_TRUE(give(ref, bytes_of(3), 0, 64).ok());
  EXPECT_EQ(wire::from_proto(posted_.take().model_request().model()).value(), ref) << "asked for again";
  ASSERT_TRUE(give_begin(ref).ok());
  ASSERT_TRUE(give(ref, bytes, 0, 64).ok());
  EXPECT_TRUE(std::ranges::equal(here_.take().second, bytes.span()));
}

}  // namespace
}  // namespace fluvial::tree
