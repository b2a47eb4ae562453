// A hub on loopback and children that behave, or do not.
#include "core/tree/hub.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "core/tree/test_support.h"

namespace fluvial::tree {
namespace {

using testing::HasSubstr;

struct BadValue {
  std::size_t at;
  float value;
  std::string reason;
};

class HubScenarios : public HubTest {
 protected:
  net::Awaitable<void> bad_values(std::vector<BadValue> cases) {
    const auto session = co_await connect(Role::kSite, 7);
    for (const BadValue& bad : cases) {
      std::vector<float> values(kValues, 0.5f);
      values[bad.at] = bad.value;
      post_update(session, 7, values);
      const v1::Receipt receipt = co_await next_receipt(session);
      EXPECT_EQ(receipt.code(), wire::code_to_proto(Code::kDataLoss)) << bad.reason;
      EXPECT_THAT(receipt.message(), HasSubstr(bad.reason));
    }
    EXPECT_EQ(owner_.refusals.size(), cases.size());
    EXPECT_TRUE(owner_.arrivals.empty());
    post_update(session, 7, std::vector<float>(kValues, 0.25f));
    co_await stale_marker(session);
    EXPECT_EQ(owner_.arrivals.size(), 1u) << "the session goes on";
  }
  // An update for a round that is not open is answered after everything before it.
  net::Awaitable<void> stale_marker(std::shared_ptr<net::Session> session) {
    session->post({begin(7, 99), {}});
    const v1::Receipt receipt = co_await next_receipt(session);
    EXPECT_EQ(receipt.round(), 99u);
    EXPECT_EQ(receipt.code(), wire::code_to_proto(Code::kStale));
  }
  net::Awaitable<void> good_update() {
    const auto session = co_await connect(Role::kSite, 7);
    std::vector<float> values(kValues);
    for (std::size_t i = 0; i < kValues; ++i) values[i] = static_cast<float>(i) / 8;
    post_update(session, 7, values);
    co_await stale_marker(session);
    EXPECT_EQ(owner_.arrivals.size(), 1u);
    const transfer::StagedArrival& arrival = owner_.arrivals.at(0);
    EXPECT_EQ(arrival.update()->site, SiteId(7));
    EXPECT_EQ(arrival.what.contributors.find(SiteId(7))->weight, 7u);
    EXPECT_EQ(arrival.what.contributors.find(SiteId(7))->digest, sha256(std::as_bytes(std::span(values))));
    EXPECT_EQ(arrival.chunks->total_bytes(), kValues * sizeof(float));
  }
  net::Awaitable<void> broken_transfers() {
    const auto session = co_await connect(Role::kSite, 7);
    const std::vector<float> values(kValues, 1.0f);
    const std::vector<std::function<void()>> faults{
        [&] {  // another digest
          session->post({begin(7), {}});
          for (std::size_t i = 0; i < 3; ++i) post_chunk(session, i, chunk_bytes(values, i));
          post_end(session, Digest{});
        },
        [&] {  // a chunk is missing
          session->post({begin(7), {}});
          post_chunk(session, 0, chunk_bytes(values, 0));
          post_end(session, sha256({}));
        },
        [&] {  // out of order
          session->post({begin(7), {}});
          post_chunk(session, 1, chunk_bytes(values, 1));
        },
        [&] {  // too long a chunk
          session->post({begin(7), {}});
          post_chunk(session, 0, SharedBytes::from(Buffer::copy_of(std::as_bytes(std::span(values)))));
        },
        [&] {  // another shape
          v1::Envelope message = begin(7);
          message.mutable_update_begin()->set_value_count(kValues + 1);
          session->post({std::move(message), {}});
        },
        [&] {  // no probe
          v1::Envelope message = begin(7);
          message.mutable_update_begin()->set_probe(2);
          session->post({std::move(message), {}});
        },
        [&] {  // another codec
          v1::Envelope message = begin(7);
          message.mutable_update_begin()->set_codec("int8");
          session->post({std::move(message), {}});
        },
    };
    for (std::size_t i = 0; i < faults.size(); ++i) {
      faults[i]();
      const v1::Receipt receipt = co_await next_receipt(session);
      EXPECT_NE(receipt.code(), 0u) << i;
      EXPECT_EQ(receipt.round(), 1u) << i;
    }
    EXPECT_TRUE(owner_.arrivals.empty());
    EXPECT_EQ(hub_->budget().bytes_used(), 0u) << "what was refused is given back";
    co_await stale_marker(session);
  }
  net::Awaitable<void> breach(Role role, bool hello, v1::Envelope message, Code expected) {
    const auto session = co_await connect(role, 7, 1, 1, hello);
    session->post({std::move(message), {}});
    const Error error = co_await end_of(session);
    EXPECT_EQ(error.code, expected) << error.to_string();
  }
  net::Awaitable<void> breaches() {
    v1::Envelope partial;
    partial.mutable_partial_begin()->set_run(1);
    v1::Envelope chunk;
    chunk.mutable_update_chunk()->set_index(0);
    v1::Envelope downward;
    downward.mutable_round_commit()->set_run(1);
    v1::Envelope member;
    member.mutable_member_change()->add_down(3);
    v1::Envelope other_decline;
    other_decline.mutable_decline()->set_site(8);
    co_await breach(Role::kSite, true, begin(8), Code::kPermissionDenied);
    co_await breach(Role::kAggregator, true, begin(7), Code::kPermissionDenied);
    co_await breach(Role::kSite, true, partial, Code::kPermissionDenied);
    co_await breach(Role::kSite, true, member, Code::kPermissionDenied);
    co_await breach(Role::kSite, true, other_decline, Code::kPermissionDenied);
    co_await breach(Role::kSite, true, chunk, Code::kFailedPrecondition);
    co_await breach(Role::kSite, true, downward, Code::kFailedPrecondition);
    co_await breach(Role::kSite, false, chunk, Code::kFailedPrecondition);
  }
  net::Awaitable<void> incarnations() {
    const auto first = co_await connect(Role::kSite, 7, 1, 5);
    const auto second = co_await connect(Role::kSite, 7, 1, 6);
    const Error replaced = co_await end_of(first);
    EXPECT_EQ(replaced.code, Code::kStale);
    const auto older = co_await connect(Role::kSite, 7, 1, 4, false);
    older->post({hello(1, 4), {}});
    const Error refused = co_await end_of(older);
    EXPECT_EQ(refused.code, Code::kStale);
    EXPECT_TRUE(second->is_open());
    EXPECT_EQ(owner_.left.size(), 1u);
  }
  net::Awaitable<void> shut_out() {
    const auto session = co_await connect(Role::kSite, 7, 1, 1, false);
    owner_.on_may_join = [this] { deny_->replace({{NodeId(7)}, {}}); };
    session->post({hello(1, 1), {}});
    const Error refused = co_await end_of(session);
    EXPECT_EQ(refused.code, Code::kPermissionDenied) << refused.to_string();
    EXPECT_TRUE(owner_.joined.empty());
  }
  net::Awaitable<void> denied() {
    const auto session = co_await connect(Role::kSite, 7);
    const auto other = co_await connect(Role::kSite, 8);
    session->post({begin(7), {}});  // an update is under way
    deny_->replace({{}, {}, {session_key(7)}, {}});
    hub_->drop_denied();
    const Error ended = co_await end_of(session);
    EXPECT_EQ(ended.code, Code::kPermissionDenied) << ended.to_string();
    EXPECT_TRUE(other->is_open());
    EXPECT_TRUE(owner_.arrivals.empty());
  }
  Digest session_key(std::uint32_t node) const { return hub_->children().at(NodeId(node)).session->member().key.id(); }
  net::Awaitable<void> leases() {
    const auto session = co_await connect(Role::kSite, 7, /*lease=*/0);
    v1::Envelope request;
    request.mutable_lease_request();
    session->post({std::move(request), {}});
    const Result<net::Frame> grant = co_await receive(session);
    EXPECT_TRUE(grant.ok() && grant->header.lease_grant().epoch() == 3);
    session->post({begin(7), {}});
    const Error ended = co_await end_of(session);
    EXPECT_EQ(ended.code, Code::kFailedPrecondition);
    EXPECT_TRUE(owner_.joined.empty()) << "a session without a lease is no member's";
  }
  net::Awaitable<void> cut_through() {
    std::vector<std::byte> bytes(kValues * sizeof(float));
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7);
    const round::ModelRef ref{RunId(1), ModelVersion(0), sha256(bytes), bytes.size()};
    owner_.slot = std::make_shared<ModelSlot>(process_.runtime().strand, ref);
    EXPECT_TRUE(owner_.slot->begin(schema()).ok());
    EXPECT_TRUE(owner_.slot->append(ByteSpan(bytes).first(1000)).ok());
    const auto session = co_await connect(Role::kSite, 7);
    v1::Envelope request;
    *request.mutable_model_request()->mutable_model() = wire::to_proto(ref);
    request.mutable_model_request()->set_offset(100);  // it has the first bytes already
    session->post({std::move(request), {}});
    std::vector<std::byte> got(ByteSpan(bytes).first(100).begin(), ByteSpan(bytes).first(100).end());
    const Result<net::Frame> begun = co_await receive(session);
    EXPECT_TRUE(begun.ok() && begun->header.model_begin().offset() == 100);
    while (got.size() < bytes.size()) {
      const Result<net::Frame> part = co_await receive(session);
      EXPECT_TRUE(part.ok() && part->header.has_model_chunk());
      if (!part.ok()) co_return;
      EXPECT_EQ(part->header.model_chunk().offset(), got.size());
      got.insert(got.end(), part->payload.span().begin(), part->payload.span().end());
      if (got.size() == 1000) EXPECT_TRUE(owner_.slot->append(ByteSpan(bytes).subspan(1000)).ok());
    }
    EXPECT_EQ(sha256(got), ref.digest);
    EXPECT_FALSE(owner_.slot->append(ByteSpan(bytes).first(1)).ok()) << "beyond its end";
  }
  // One that asks and asks has one question answered at a time, and the others are served meanwhile.
  net::Awaitable<void> questions() {
    net::AsyncSignal changed(process_.runtime().strand);
    int asked = 0;
    bool may_answer = false;
    owner_.on_outcome_asked = [&] {
      ++asked;
      changed.notify_all();
    };
    owner_.answering = [&]() -> net::Awaitable<void> { return until(&may_answer, &changed); };
    const auto greedy = co_await connect(Role::kSite, 7);
    const auto other = co_await connect(Role::kSite, 8);
    v1::Envelope query;
    query.mutable_outcome_query()->set_site(7);
    for (int i = 0; i < 5; ++i) greedy->post({query, {}});
    while (asked == 0) co_await changed.wait();
    other->post({begin(8, 99), {}});
    const v1::Receipt receipt = co_await next_receipt(other);
    EXPECT_EQ(receipt.round(), 99u);
    EXPECT_EQ(asked, 1);
    may_answer = true;
    changed.notify_all();
    co_await stale_marker(greedy);
    EXPECT_EQ(asked, 5);
    owner_.answering = nullptr;
  }
  static net::Awaitable<void> until(const bool* holds, net::AsyncSignal* changed) {
    while (!*holds) co_await changed->wait();
  }
  net::Awaitable<void> anothers_question() {
    const auto session = co_await connect(Role::kSite, 7);
    v1::Envelope query;
    query.mutable_outcome_query()->set_site(8);
    session->post({std::move(query), {}});
    const Error end = co_await end_of(session);
    EXPECT_THAT(end.message, HasSubstr("in the name of another site"));
  }
  net::Awaitable<void> before_admission() {
    const auto session = co_await connect(Role::kSite, 7, 1, 1, false);
    v1::Envelope large;
    large.mutable_hello()->set_software(std::string(128 << 10, 'x'));
    session->post({std::move(large), {}});
    const Error end = co_await end_of(session);
    EXPECT_THAT(end.message, HasSubstr("before the peer is admitted"));
  }
};

TEST_F(HubScenarios, ItsBudgetFollowsTheModelUnlessAPersonHasGivenOne) {
  run([this]() -> net::Awaitable<void> {
    EXPECT_EQ(hub_->budget().bytes_max(), std::uint64_t{32} << 20);
    hub_->sums(100'000'000);
    EXPECT_EQ(hub_->budget().bytes_max(), 800'000'000U);
    hub_->sums(1'000);
    EXPECT_EQ(hub_->budget().bytes_max(), std::uint64_t{32} << 20);
    HubOptions given;
    given.staging_bytes_max = 1'000;
    Hub other(process_.runtime(), owner_, given, deny_);
    other.sums(100'000'000);
    EXPECT_EQ(other.budget().bytes_max(), 1'000U);
    co_return;
  });
}

TEST_F(HubScenarios, AChildsQuestionsWaitForEachOtherAndNobodyElseDoes) {
  run([this] { return questions(); });
}

TEST_F(HubScenarios, ASiteAsksAboutItsOwnOutcomesAlone) {
  run([this] { return anothers_question(); });
}

TEST_F(HubScenarios, BeforeItIsLetInAPeerMaySayLittle) {
  run([this] { return before_admission(); });
}

TEST_F(HubScenarios, AGoodUpdateArrivesWhole) {
  run([this] { return good_update(); });
}
TEST_F(HubScenarios, ABadValueIsRefusedByTensorAndTheSessionGoesOn) {
  run([this] {
    return bad_values({{3, std::numeric_limits<float>::quiet_NaN(), "3"},
                       {599, std::numeric_limits<float>::infinity(), "599"},
                       {510, 101.0f, "tensor 'b', value 10 is 101"}});
  });
}
TEST_F(HubScenarios, ABrokenTransferIsRefusedAndTheSessionGoesOn) {
  run([this] { return broken_transfers(); });
}
TEST_F(HubScenarios, ABreachOfTheProtocolEndsTheSession) {
  run([this] { return breaches(); });
}
TEST_F(HubScenarios, ANewIncarnationReplacesAndAnOlderOneIsRefused) {
  run([this] { return incarnations(); });
}
TEST_F(HubScenarios, WhoIsShutOutAfterItsSessionWasAcceptedDoesNotJoin) {
  run([this] { return shut_out(); });
}
TEST_F(HubScenarios, WhoIsDeniedMeanwhileGoesWithWhatIsUnderWayAndTheOthersStay) {
  run([this] { return denied(); });
}
TEST_F(HubScenarios, ASessionWithoutALeaseMayOnlyAskForOne) {
  run([this] { return leases(); });
}
TEST_F(HubScenarios, AModelIsPassedOnAsItArrives) {
  run([this] { return cut_through(); });
}

}  // namespace
}  // namespace fluvial::tree
