#include "core/tree/test_model_receiver.h"

namespace fluvial::tree {
namespace {

TEST_F(ModelReceiverTest, GoesOnWhereTheSessionBroke) {
  const Model one = model(1);
  wanted_and_half_here(one);
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

// Of two requests the parent may have taken the older one last, and sends nothing of the newer.
TEST_F(ModelReceiverTest, NamedAgainAfterNothingCameForLongItIsAskedForAgain) {
  const Model one = model(1);
  wanted_and_half_here(one);
  runtime_.clock().leap(std::chrono::seconds(9));
  want(one);
  EXPECT_TRUE(posted_.empty()) << "a slow line";
  EXPECT_FALSE(runtime_.log().contains("it is asked for again"));
  runtime_.clock().leap(std::chrono::seconds(2));
  want(one);
  EXPECT_EQ(requested(one), 250u);
  want(one);
  EXPECT_TRUE(posted_.empty()) << "asked for just now";
  EXPECT_TRUE(runtime_.log().contains("nothing of the model has come for long; it is asked for again"));
  ASSERT_TRUE(give_begin(one, 250).ok());
  ASSERT_TRUE(give(one, 250, 400).ok());
  expect_complete(one);
}

TEST_F(ModelReceiverTest, ASchemaMayComeInParts) {
  const Model one = model(1);
  const round::Schema all =
      round::Schema::make({{"a", round::DType::kF32, {40}}, {"b", round::DType::kF32, {60}}}).value();
  want(one);
  ASSERT_TRUE(give_part(one, all, 1).ok()) << "the rest of an answer to an earlier request";
  EXPECT_TRUE(give(one, 0, 250).ok()) << "passed over: it has not begun";
  ASSERT_TRUE(give_part(one, all, 0).ok());
  ASSERT_TRUE(give_part(one, all, 0).ok()) << "asked for again before the rest came";
  EXPECT_EQ(receiver_.bytes_received(), 0u);
  ASSERT_TRUE(give_part(one, all, 1).ok());
  ASSERT_TRUE(give(one, 0, 400).ok());
  expect_complete(one);
}

TEST_F(ModelReceiverTest, ASchemaInPartsHasNoMoreTensorsThanAnyOther) {
  const Model one = model(1);
  want(one);
  v1::ModelBegin message;
  *message.mutable_model() = wire::to_proto(one.ref);
  message.set_more_tensors(true);
  for (int i = 0; i < 1'000; ++i) message.mutable_schema()->add_tensors()->set_dtype("F32");
  Status given;
  for (std::uint32_t first = 0; given.ok() && first < 100'000; first += 1'000) {
    message.set_first_tensor(first);
    given = runtime_.run(begin(&receiver_, message));
  }
  EXPECT_EQ(given.error().message, "more than 65536 tensors");
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
  EXPECT_EQ(counted("models_refused_total"), 1);
  EXPECT_EQ(counted("models_received_total", {{"form", "whole"}}), 1);
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

// ---- in another form ----------------------------------------------------------------------------------------------

TEST_F(FormReceiverTest, ADifferenceIsDecodedAndItsDigestChecked) {
  for (const std::string down : {"delta:fp16", "fp16", "delta:topk:ratio=1"}) {
    const aggregate::EncodedModel sent = encoded(next_, before_, down);
    want(next_);
    const v1::ModelRequest asked = request();
    EXPECT_TRUE(asked.takes_form());
    EXPECT_EQ(wire::from_proto(asked.have()).value(), before_.ref);
    ASSERT_TRUE(give_form(next_, sent.form).ok());
    ASSERT_TRUE(give_bytes(next_, sent.bytes.span(), 0, sent.bytes.size()).ok());
    expect_complete(next_);
  }
  EXPECT_TRUE(posted_.empty());
  EXPECT_TRUE(refused_.empty());
  EXPECT_EQ(counted("models_received_total", {{"form", "difference"}}), 2);
  EXPECT_EQ(counted("models_received_total", {{"form", "rounded"}}), 1);
  EXPECT_EQ(counted("models_refused_total"), 0);
}

TEST_F(FormReceiverTest, GoesOnInTheFormThatHadBegun) {
  const aggregate::EncodedModel sent = encoded(next_, before_, "delta:fp16");
  want(next_);
  request();
  ASSERT_TRUE(give_form(next_, sent.form).ok());
  ASSERT_TRUE(give_bytes(next_, sent.bytes.span(), 0, 150).ok());
  hold(next_);  // whatever is held by now: the difference is from what it was when it began
  reconnect();
  const v1::ModelRequest asked = request();
  EXPECT_EQ(asked.offset(), 0u) << "a parent that knows no form begins at the model's first byte";
  EXPECT_EQ(asked.form_offset(), 150u);
  EXPECT_EQ(wire::from_proto(asked.begun()).value(), sent.form);
  EXPECT_EQ(wire::from_proto(asked.have()).value(), before_.ref);
  ASSERT_TRUE(give_form(next_, sent.form, 150).ok());
  ASSERT_TRUE(give_bytes(next_, sent.bytes.span(), 150, sent.bytes.size()).ok());
  expect_complete(next_);
}

TEST_F(FormReceiverTest, AnotherParentMayHaveItWholeOnly) {
  const aggregate::EncodedModel sent = encoded(next_, before_, "delta:fp16");
  want(next_);
  request();
  ASSERT_TRUE(give_form(next_, sent.form).ok());
  ASSERT_TRUE(give_bytes(next_, sent.bytes.span(), 0, 150).ok());
  reconnect();
  request();
  ASSERT_TRUE(give_begin(next_, 0).ok());
  ASSERT_TRUE(give(next_, 0, 400).ok());
  expect_complete(next_);
}

// What came of the first form is dropped, so that no byte of it is taken for one of the second.
TEST_F(FormReceiverTest, AParentThatSwapsFormsInTheMiddleBeginsAnew) {
  const aggregate::EncodedModel first = encoded(next_, before_, "delta:fp16");
  const aggregate::EncodedModel second = encoded(next_, before_, "delta:topk:ratio=1");
  want(next_);
  request();
  ASSERT_TRUE(give_form(next_, first.form).ok());
  ASSERT_TRUE(give_bytes(next_, first.bytes.span(), 0, 150).ok());
  EXPECT_EQ(give_form(next_, second.form, 150).error().code, Code::kDataLoss)
      << "it goes on where the other one stopped";
  ASSERT_TRUE(give_form(next_, second.form).ok());
  EXPECT_FALSE(give_bytes(next_, first.bytes.span(), 150, first.bytes.size()).ok());
  ASSERT_TRUE(give_form(next_, second.form).ok()) << "the session would have ended";
  ASSERT_TRUE(give_bytes(next_, second.bytes.span(), 0, second.bytes.size()).ok());
  expect_complete(next_);
}

TEST_F(FormReceiverTest, WhatIsDamagedIsAskedForWhole) {
  const aggregate::EncodedModel sent = encoded(next_, before_, "delta:fp16");
  want(next_);
  request();
  ASSERT_TRUE(give_form(next_, sent.form).ok());
  ASSERT_TRUE(give_bytes(next_, sent.bytes.span(), 0, 50).ok());
  ASSERT_TRUE(give_bytes(next_, sent.bytes.span(), 50, sent.bytes.size(), std::byte{4}).ok());
  EXPECT_EQ(refused_.take(), next_.ref) << "its digest is another";
  const v1::ModelRequest asked = request();
  EXPECT_FALSE(asked.takes_form());
  EXPECT_FALSE(asked.has_begun());
  ASSERT_TRUE(give_form(next_, sent.form).ok()) << "not what was asked for: passed over";
  ASSERT_TRUE(give_bytes(next_, sent.bytes.span(), 0, 50).ok());
  ASSERT_TRUE(give_begin(next_, 0).ok());
  ASSERT_TRUE(give(next_, 0, 400).ok());
  expect_complete(next_);
}

TEST_F(FormReceiverTest, AFormThatItCannotDecodeItAsksForWhole) {
  const aggregate::EncodedModel sent = encoded(next_, before_, "delta:fp16");
  const auto changed = [&](auto change) {
    round::ModelForm form = sent.form;
    change(form);
    return form;
  };
  const round::ModelForm forms[] = {changed([](auto& form) { form.codec = "of the next version"; }),
                                    changed([](auto& form) { form.bytes = std::uint64_t{1} << 39; }),
                                    changed([](auto& form) { form.base->version = ModelVersion(0); }),
                                    changed([](auto& form) { form.chunk_values = 0; })};
  for (const round::ModelForm& form : forms) {
    want(next_);
    EXPECT_TRUE(request().takes_form());
    ASSERT_TRUE(give_form(next_, form).ok());
    EXPECT_FALSE(request().takes_form());
    ASSERT_TRUE(give_begin(next_, 0).ok());
    ASSERT_TRUE(give(next_, 0, 400).ok());
    expect_complete(next_);
  }
}

TEST_F(FormReceiverTest, OnceTheModelItselfHasBegunNoFormComesBetween) {
  const aggregate::EncodedModel sent = encoded(next_, before_, "delta:fp16");
  want(next_);
  request();
  ASSERT_TRUE(give_begin(next_, 0).ok());
  ASSERT_TRUE(give(next_, 0, 100).ok());
  EXPECT_FALSE(give_form(next_, sent.form).ok());
  EXPECT_FALSE(give_form(next_, sent.form, 50).ok());
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
