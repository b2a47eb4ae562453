// For the tests of ModelReceiver: one that the test feeds, and models for it.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <span>
#include <vector>

#include "core/aggregate/model_form.h"
#include "core/digest/sha256.h"
#include "core/tree/model_receiver.h"
#include "core/tree/test_runtime.h"
#include "core/wire/mapping.h"
#include "core/wire/record_mapping.h"

namespace fluvial::tree {

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
    bytes_.reserve(ref_.bytes);  // what came is read while more comes
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
  ByteSpan bytes() override { return {bytes_.data(), ref_.bytes}; }
  void named(const round::ModelRef& ref) override { EXPECT_EQ(ref.bytes, ref_.bytes); }
  Status seal() override {
    EXPECT_EQ(bytes_.size(), ref_.bytes);
    return {};
  }
  void complete() override { complete_.put(bytes_); }

 private:
  const round::ModelRef ref_;
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
  // One tensor of the schema in a message of its own.
  Status give_part(const Model& model, const round::Schema& schema, std::uint32_t tensor) {
    v1::ModelBegin message;
    *message.mutable_model() = wire::to_proto(model.ref);
    *message.mutable_schema()->add_tensors() = wire::to_proto(schema).tensors(static_cast<int>(tensor));
    message.set_first_tensor(tensor);
    message.set_more_tensors(tensor + 1 < schema.tensors().size());
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
  // 250 of its 400 bytes.
  void wanted_and_half_here(const Model& model) {
    want(model);
    EXPECT_EQ(requested(model), 0u);
    ASSERT_TRUE(give_begin(model, 0).ok());
    ASSERT_TRUE(give(model, 0, 250).ok());
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
       [this](const round::ModelRef& ref, ModelReceiver::Owner::As) {
         return std::make_shared<KeptModel>(ref, std::exchange(has_room_, true), complete_);
       },
       [this](const round::ModelRef& ref, const Error&) { refused_.put(ref); }, [this] { return held_; }}};
  std::optional<ModelReceiver::Held> held_;
};

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

}  // namespace fluvial::tree
