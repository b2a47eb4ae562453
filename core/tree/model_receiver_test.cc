#include "core/tree/model_receiver.h"

#include <cstring>
#include <span>
#include <vector>

#include "core/aggregate/model_form.h"
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
  Status begin_form(std::optional<round::ModelForm> form) override {
    EXPECT_TRUE(bytes_.empty());
    form_bytes_.clear();
    form_ = std::move(form);
    return {};
  }
  Status append_form(ByteSpan bytes) override {
    EXPECT_TRUE(form_);
    form_bytes_.insert(form_bytes_.end(), bytes.begin(), bytes.end());
    return {};
  }
  SharedBytes form_bytes() override { return {nullptr, form_bytes_}; }
  MutableByteSpan room() override {
    bytes_.resize(ref_.bytes);
    return bytes_;
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
  std::optional<round::ModelForm> form_;
  std::vector<std::byte> form_bytes_;
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
  double counted(const char* what, const telemetry::Labels& labels = {}) {
    return runtime_.get().metrics.counter(what, labels).value();
  }
  void expect_complete(const Model& model) { EXPECT_TRUE(net::same_bytes(complete_.take(), model.bytes.span())); }

  TestRuntime runtime_{Role::kSite};
  net::TaskGroup tasks_{runtime_.get().strand};
  Mailbox<v1::Envelope> posted_;
  Mailbox<std::vector<std::byte>> complete_;
  Mailbox<round::ModelRef> refused_;
  bool has_room_ = true;
  ModelReceiver receiver_{
      runtime_.get(),
      tasks_,
      {[this](v1::Envelope message) { posted_.put(std::move(message)); },
       [this](const round::ModelRef& ref) {
         return std::make_shared<KeptModel>(ref, std::exchange(has_room_, true), complete_);
       },
       [this](const round::ModelRef& ref, const Error&) { refused_.put(ref); }, [this] { return held_; }}};
  std::optional<ModelReceiver::Held> held_;
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

class FormReceiverTest : public ModelReceiverTest {
 protected:
  FormReceiverTest() { hold(before_); }
  void hold(const Model& model) {
    held_ = ModelReceiver::Held{model.ref, {std::make_shared<Buffer>(Buffer::copy_of(model.bytes.span())), {}}};
    held_->bytes.bytes = std::static_pointer_cast<const Buffer>(held_->bytes.owner)->span();
  }
  static aggregate::EncodedModel encoded(const Model& model, const Model& base, const std::string& down) {
    Serial serial;
    Buffer trained(model.bytes.size());
    const aggregate::Down how = aggregate::parse_down(down).value();
    std::optional<aggregate::BaseModel> from;
    if (how.kind == aggregate::Down::Kind::kDelta) from = aggregate::BaseModel{base.ref, base.bytes.span()};
    return aggregate::encode_model(serial, how, 256, {1, 2, 0}, schema(), model.bytes.span(), from, trained.span())
        .value();
  }
  // Of these values every codec here makes the same again.
  static Model plain(std::uint64_t version) {
    std::vector<float> values(100, static_cast<float>(version));
    Buffer bytes = Buffer::copy_of(std::as_bytes(std::span(values)));
    return {{RunId(1), ModelVersion(version), sha256(bytes.span()), bytes.size()}, std::move(bytes)};
  }
  v1::ModelRequest request() { return posted_.take().model_request(); }
  Status give_form(const Model& model, const round::ModelForm& form, std::uint64_t offset = 0) {
    v1::ModelBegin message;
    *message.mutable_model() = wire::to_proto(model.ref);
    *message.mutable_schema() = wire::to_proto(schema());
    message.set_offset(offset);
    *message.mutable_form() = wire::to_proto(form);
    return runtime_.run(begin(&receiver_, std::move(message)));
  }
  Status give_bytes(const Model& model, ByteSpan encoded, std::uint64_t from, std::uint64_t to, std::byte flip = {}) {
    return give({model.ref, Buffer::copy_of(encoded)}, from, to, flip);
  }

  const Model before_ = plain(1);
  const Model next_ = plain(2);
};

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
