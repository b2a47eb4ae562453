// In which form a child is sent the model, from where on, and what becomes of it when that form does not come any more.
#include <gtest/gtest.h>

#include "core/aggregate/model_form.h"
#include "core/net/test_support.h"
#include "core/tree/test_support.h"
#include "core/wire/record_mapping.h"

namespace fluvial::tree {
namespace {

class HubModels : public HubTest {
 protected:
  HubModels() {
    for (std::size_t i = 0; i < kValues; ++i) values_[i] = static_cast<float>(i);
    ref_ = {RunId(1), ModelVersion(2), sha256(whole()), whole().size()};
    base_ = {RunId(1), ModelVersion(1), sha256(std::as_bytes(std::span(before_))), whole().size()};
    Serial serial;
    Buffer trained(whole().size());
    encoded_ =
        aggregate::encode_model(serial, aggregate::parse_down("delta:topk:ratio=1").value(), 256, {1, 2, 0}, schema(),
                                whole(), aggregate::BaseModel{base_, std::as_bytes(std::span(before_))}, trained.span())
            .value();
  }
  ByteSpan whole() const { return std::as_bytes(std::span(values_)); }
  void have_slot() {
    owner_.slot = std::make_shared<ModelSlot>(process_.runtime().strand, ref_);
    EXPECT_TRUE(owner_.slot->begin(schema()).ok());
  }
  v1::Envelope request(bool takes_form, const std::optional<round::ModelRef>& have) const {
    v1::Envelope message;
    v1::ModelRequest& request = *message.mutable_model_request();
    *request.mutable_model() = wire::to_proto(ref_);
    request.set_takes_form(takes_form);
    if (have) *request.mutable_have() = wire::to_proto(*have);
    return message;
  }
  double sent(const char* form) {
    return process_.runtime().metrics.counter("models_sent_total", {{"form", form}}).value();
  }
  // What comes until so many bytes are there; `begun`: what was announced.
  net::Awaitable<std::vector<std::byte>> take(std::shared_ptr<net::Session> session, std::size_t bytes,
                                              v1::ModelBegin* begun) {
    const Result<net::Frame> first = co_await receive(session);
    EXPECT_TRUE(first.ok() && first->header.has_model_begin());
    if (first.ok()) *begun = first->header.model_begin();
    std::vector<std::byte> got;
    while (got.size() < bytes) {
      const Result<net::Frame> part = co_await receive(session);
      EXPECT_TRUE(part.ok() && part->header.has_model_chunk());
      if (!part.ok() || !part->header.has_model_chunk()) co_return got;
      EXPECT_EQ(part->header.model_chunk().offset(), begun->offset() + got.size());
      got.insert(got.end(), part->payload.span().begin(), part->payload.span().end());
    }
    co_return got;
  }

  net::Awaitable<void> by_what_it_holds() {
    have_slot();
    owner_.slot->begin_form(encoded_.form);
    EXPECT_TRUE(owner_.slot->append_form(encoded_.bytes.span().first(100)).ok());
    const auto knows = co_await connect(Role::kSite, 7);
    const auto lacks = co_await connect(Role::kSite, 8);
    const auto older = co_await connect(Role::kSite, 9);
    knows->post({request(true, base_), {}});
    lacks->post({request(true, ref_), {}});
    older->post({request(false, {}), {}});
    v1::ModelBegin begun;
    const std::vector<std::byte> first = co_await take(knows, 100, &begun);
    EXPECT_EQ(wire::from_proto(begun.form()).value(), encoded_.form);
    EXPECT_TRUE(net::same_bytes(first, encoded_.bytes.span().first(100))) << "cut-through";
    EXPECT_TRUE(owner_.slot->append_form(encoded_.bytes.span().subspan(100)).ok());
    std::ranges::copy(whole(), owner_.slot->room().begin());
    owner_.slot->decoded();
    for (const auto& session : {lacks, older}) {
      const std::vector<std::byte> got = co_await take(session, whole().size(), &begun);
      EXPECT_FALSE(begun.has_form());
      EXPECT_EQ(sha256(got), ref_.digest);
    }
    EXPECT_EQ(sent("difference"), 1);
    EXPECT_EQ(sent("whole"), 2);
  }
  net::Awaitable<void> from_where_it_stopped() {
    have_slot();
    owner_.slot->also(encoded_.form, SharedBytes::from(Buffer::copy_of(encoded_.bytes.span())));
    std::ranges::copy(whole(), owner_.slot->room().begin());
    owner_.slot->decoded();
    const auto session = co_await connect(Role::kSite, 7);
    v1::Envelope message = request(true, base_);
    *message.mutable_model_request()->mutable_begun() = wire::to_proto(encoded_.form);
    message.mutable_model_request()->set_form_offset(300);
    session->post({message, {}});
    v1::ModelBegin begun;
    const std::size_t left = encoded_.bytes.size() - 300;
    const std::vector<std::byte> rest = co_await take(session, left, &begun);
    EXPECT_EQ(begun.offset(), 300u);
    EXPECT_TRUE(net::same_bytes(rest, encoded_.bytes.span().subspan(300)));
    // A part of another form, or more than there is of this one: from the start.
    message.mutable_model_request()->mutable_begun()->set_bytes(encoded_.form.bytes + 1);
    session->post({message, {}});
    co_await take(session, encoded_.bytes.size(), &begun);
    EXPECT_EQ(begun.offset(), 0u);
    *message.mutable_model_request()->mutable_begun() = wire::to_proto(encoded_.form);
    message.mutable_model_request()->set_form_offset(encoded_.form.bytes + 1);
    session->post({message, {}});
    co_await take(session, encoded_.bytes.size(), &begun);
    EXPECT_EQ(begun.offset(), 0u);
    // Of the model itself it has a part: it gets the rest of that.
    message.mutable_model_request()->clear_begun();
    message.mutable_model_request()->set_offset(400);
    session->post({message, {}});
    co_await take(session, whole().size() - 400, &begun);
    EXPECT_FALSE(begun.has_form());
    EXPECT_EQ(begun.offset(), 400u);
  }
  net::Awaitable<void> whole_after_all() {
    have_slot();
    owner_.slot->begin_form(encoded_.form);
    EXPECT_TRUE(owner_.slot->append_form(encoded_.bytes.span().first(100)).ok());
    const auto session = co_await connect(Role::kSite, 7);
    session->post({request(true, base_), {}});
    v1::ModelBegin begun;
    co_await take(session, 100, &begun);
    EXPECT_TRUE(begun.has_form());
    owner_.slot->drop_form();  // this node's parent is another one now, which has it whole
    EXPECT_TRUE(owner_.slot->append(whole()).ok());
    const std::vector<std::byte> got = co_await take(session, whole().size(), &begun);
    EXPECT_FALSE(begun.has_form());
    EXPECT_EQ(begun.offset(), 0u);
    EXPECT_EQ(sha256(got), ref_.digest);
  }

  // One that is here before it has its name: who asked for it by the other one gets it through, whatever it is called.
  net::Awaitable<void> ahead_of_its_name() {
    round::ModelRef unnamed = ref_;
    unnamed.digest[0] ^= std::byte{1};
    owner_.slot = std::make_shared<ModelSlot>(process_.runtime().strand, unnamed);
    EXPECT_TRUE(owner_.slot->begin(schema()).ok());
    EXPECT_TRUE(owner_.slot->append(whole().first(100)).ok());
    const auto older = co_await connect(Role::kSite, 7);
    const auto session = co_await connect(Role::kSite, 8, 1, 1, false);
    v1::Envelope shown = hello(1, 1);
    shown.mutable_hello()->set_takes_models_ahead(true);
    session->post({shown, {}});
    EXPECT_TRUE((co_await receive(session)).ok());
    while (owner_.joined.size() < 2) co_await net::asio::post(process_.runtime().strand, net::asio::use_awaitable);
    hub_->tell_ahead(unnamed);
    const Result<net::Frame> told = co_await receive(session);
    EXPECT_TRUE(told.ok() && told->header.has_model_ahead());
    EXPECT_EQ(wire::from_proto(told->header.model_ahead().model()).value(), unnamed);
    v1::Envelope message;
    *message.mutable_model_request()->mutable_model() = wire::to_proto(unnamed);
    session->post({message, {}});
    v1::ModelBegin begun;
    co_await take(session, 100, &begun);
    EXPECT_EQ(wire::from_proto(begun.model()).value(), unnamed) << "as the child calls it";
    owner_.slot->named(ref_);
    EXPECT_TRUE(owner_.slot->is_called(ref_) && owner_.slot->is_called(unnamed));
    EXPECT_TRUE(owner_.slot->append(whole().subspan(100)).ok());
    std::vector<std::byte> rest;
    while (rest.size() < whole().size() - 100) {
      const Result<net::Frame> part = co_await receive(session);
      if (!part.ok()) break;
      EXPECT_EQ(part->header.model_chunk().offset(), 100 + rest.size());
      rest.insert(rest.end(), part->payload.span().begin(), part->payload.span().end());
    }
    EXPECT_TRUE(net::same_bytes(rest, whole().subspan(100)));
    older->post({request(false, {}), {}});  // who is of an earlier version was told nothing that it does not know
    const std::vector<std::byte> got = co_await take(older, whole().size(), &begun);
    EXPECT_EQ(sha256(got), ref_.digest);
  }

  // The model that came here was damaged: it comes anew, into another slot, as the model itself.
  net::Awaitable<void> anew_after_damage(std::optional<round::ModelRef> have, std::size_t taken) {
    have_slot();
    const std::shared_ptr<ModelSlot> damaged = owner_.slot;
    damaged->begin_form(encoded_.form);
    EXPECT_TRUE(damaged->append_form(encoded_.bytes.span().first(100)).ok());
    const auto session = co_await connect(Role::kSite, 7);
    session->post({request(true, have), {}});
    v1::ModelBegin begun;
    co_await take(session, taken, &begun);
    have_slot();
    damaged->abandon();
    EXPECT_TRUE(owner_.slot->append(whole()).ok());
    const std::vector<std::byte> got = co_await take(session, whole().size(), &begun);
    EXPECT_FALSE(begun.has_form());
    EXPECT_EQ(begun.offset(), 0u);
    EXPECT_EQ(sha256(got), ref_.digest);
  }

  // Names that are longer together than a frame's header may be.
  static round::Schema long_schema() {
    std::vector<round::Tensor> tensors = schema().tensors();
    for (int i = 0; i < 11'000; ++i) {
      tensors.push_back({std::string(500, 'x') + std::to_string(i), round::DType::kF32, {0}});
    }
    return round::Schema::make(std::move(tensors)).value();
  }
  static v1::Envelope hello_of(std::uint32_t protocol) {
    v1::Envelope message = hello(1, 1);
    message.mutable_hello()->set_protocol_min(protocol);
    message.mutable_hello()->set_protocol_max(protocol);
    return message;
  }
  net::Awaitable<void> long_names() {
    owner_.slot = std::make_shared<ModelSlot>(process_.runtime().strand, ref_);
    EXPECT_TRUE(owner_.slot->begin(long_schema()).ok());
    EXPECT_TRUE(owner_.slot->append(whole()).ok());
    const auto session = co_await connect(Role::kSite, 7);
    session->post({request(false, {}), {}});
    std::vector<round::Tensor> tensors;
    for (bool more = true; more;) {
      const Result<net::Frame> frame = co_await receive(session);
      EXPECT_TRUE(frame.ok() && frame->header.has_model_begin());
      if (!frame.ok()) co_return;
      const v1::ModelBegin& begin = frame->header.model_begin();
      EXPECT_EQ(begin.first_tensor(), tensors.size());
      EXPECT_LT(begin.ByteSizeLong(), 300u << 10) << "a slow line has it within its deadline";
      EXPECT_TRUE(wire::add_tensors(begin.schema(), &tensors).ok());
      more = begin.more_tensors();
    }
    EXPECT_EQ(tensors, long_schema().tensors());
    const Result<net::Frame> first = co_await receive(session);
    EXPECT_TRUE(first.ok() && first->header.has_model_chunk());
    // A child of the version before takes a schema in one message: its session ends, and says why.
    const auto older = co_await connect(Role::kSite, 8, 1, 1, false);
    older->post({hello_of(wire::kProtocolOfSchemaParts - 1), {}});
    EXPECT_TRUE((co_await receive(older)).ok());
    older->post({request(false, {}), {}});
    const Result<net::Frame> ended = co_await receive(older);
    EXPECT_NE(ended.error().message.find("a frame cannot be sent: a header of"), std::string::npos)
        << ended.error().to_string();
  }

  std::vector<float> values_ = std::vector<float>(kValues);
  std::vector<float> before_ = std::vector<float>(kValues, 1.0F);
  round::ModelRef ref_;
  round::ModelRef base_;
  aggregate::EncodedModel encoded_;
};

TEST_F(HubModels, AChildGetsTheFormThatItCanUse) {
  run([this] { return by_what_it_holds(); });
}
TEST_F(HubModels, AFormGoesOnWhereItStopped) {
  run([this] { return from_where_it_stopped(); });
}
TEST_F(HubModels, AFormThatDoesNotComeAnyMoreGivesWayToTheModel) {
  run([this] { return whole_after_all(); });
}

TEST_F(HubModels, NamesAndShapesMayBeLongerThanAFrame) {
  run([this] { return long_names(); });
}

TEST_F(HubModels, AfterDamageTheModelItselfComes) {
  run([this] { return anew_after_damage(base_, 100); });
}
TEST_F(HubModels, AfterDamageItComesAlsoToWhoHasNothingYet) {
  run([this] { return anew_after_damage(std::nullopt, 0); });
}

TEST_F(HubModels, OneAheadOfItsNameGoesToThoseWhoTakeIt) {
  run([this] { return ahead_of_its_name(); });
}

}  // namespace
}  // namespace fluvial::tree
