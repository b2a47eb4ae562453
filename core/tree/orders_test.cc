#include "core/tree/orders.h"

#include <gtest/gtest.h>

#include "core/identity/key.h"
#include "core/wire/mapping.h"

namespace fluvial::tree {
namespace {

constexpr round::HistoryId kHistory{9};
constexpr SiteId kSite{7};

class OrdersTest : public testing::Test {
 protected:
  OrdersTest() {
    orders_.in_history(kHistory);
    orders_.by(identity::PublicKey::of(key_));
  }

  wire::Order signed_by(const identity::PrivateKey& key, std::string_view kind, std::string body) const {
    auto order = std::make_shared<v1::Signed>();
    order->set_signature(wire::signature_to_proto(identity::sign(key, kind, as_byte_span(body)).value()));
    order->set_body(std::move(body));
    return order;
  }
  wire::Opening opening(std::uint64_t round, std::uint32_t attempt, std::uint64_t epoch = 1,
                        const std::optional<round::Pass>& pass = {}) const {
    wire::Opening opening;
    opening.pass = pass;
    opening.run = RunId(4);
    opening.round = RoundId(round);
    opening.attempt = AttemptId(attempt);
    opening.epoch = Epoch(epoch);
    opening.base = {RunId(4), ModelVersion(round - 1), {}, 40};
    opening.plan.name = "test";
    opening.value_count = 10;
    opening.participants = {{kSite, Epoch(5), 100}};
    opening.order = signed_by(key_, wire::kOpeningKind, wire::opening_body(opening, {kSite}, kHistory));
    return opening;
  }
  wire::Commit commit(const wire::Decided& decided) const {
    wire::Commit commit;
    commit.run = RunId(4);
    commit.round = RoundId(3);
    commit.attempt = AttemptId(1);
    commit.model = {RunId(4), ModelVersion(3), {}, 40};
    commit.order = signed_by(key_, wire::kCommitKind, wire::commit_body(commit, "", kHistory));
    commit.outcomes[kSite] = signed_by(key_, wire::kOutcomeKind, wire::outcome_body(decided, kHistory));
    return commit;
  }
  static wire::Decided counted(SiteId site = kSite, std::uint64_t round = 3) {
    return {RunId(4), RoundId(round), site, round::Outcome::kCounted, Digest{std::byte{1}}};
  }
  v1::OutcomeReply reply() const {
    v1::OutcomeReply reply;
    reply.set_run(4);
    reply.set_round(3);
    reply.set_site(kSite.value());
    reply.set_sha256(wire::digest_to_proto(*counted().digest));
    reply.set_outcome(v1::OutcomeReply::OUTCOME_COUNTED);
    *reply.mutable_order() = *signed_by(key_, wire::kOutcomeKind, wire::outcome_body(counted(), kHistory));
    return reply;
  }

  const identity::PrivateKey key_ = identity::PrivateKey::generate().value();
  const identity::PrivateKey other_ = identity::PrivateKey::generate().value();
  Orders orders_;
};

TEST_F(OrdersTest, AnOpeningIsTheCoordinatorsOrNobodys) {
  EXPECT_TRUE(orders_.opened(opening(3, 1)).value());
  wire::Opening bare = opening(4, 1);
  bare.order = nullptr;
  EXPECT_EQ(orders_.opened(bare).error().code, Code::kUnauthenticated);
  wire::Opening forged = opening(4, 1);
  forged.order = signed_by(other_, wire::kOpeningKind, forged.order->body());
  EXPECT_EQ(orders_.opened(forged).error().code, Code::kUnauthenticated);
  wire::Opening bent = opening(4, 1);
  bent.round = RoundId(std::uint64_t{1} << 63);
  EXPECT_EQ(orders_.opened(bent).error().code, Code::kUnauthenticated);
  wire::Opening other_kind = opening(4, 1);
  other_kind.order = signed_by(key_, wire::kCommitKind, other_kind.order->body());
  EXPECT_EQ(orders_.opened(other_kind).error().code, Code::kUnauthenticated);
}

TEST_F(OrdersTest, APassThatIsOverIsNotOpenedAgain) {
  const round::Pass first{0, 2, 4, {}, {}};
  const round::Pass second{1, 2, 4, round::VectorRef{{std::byte{1}}, 16}, {}};
  EXPECT_TRUE(orders_.opened(opening(3, 1, 1, first)).value());
  EXPECT_TRUE(orders_.opened(opening(3, 1, 1, second)).value());
  EXPECT_TRUE(orders_.opened(opening(3, 1, 1, second)).value()) << "again, after a reconnect";
  EXPECT_FALSE(orders_.opened(opening(3, 1, 1, first)).value());
  EXPECT_TRUE(orders_.opened(opening(3, 2, 1, first)).value()) << "the next attempt begins with the first";
  EXPECT_FALSE(orders_.opened(opening(3, 1, 1, second)).value());
}

TEST_F(OrdersTest, WhatWasRefusedLeavesNothingBehind) {
  wire::Opening forged = opening(1000, 1);
  forged.order = signed_by(other_, wire::kOpeningKind, forged.order->body());
  EXPECT_FALSE(orders_.opened(forged).ok());
  EXPECT_TRUE(orders_.opened(opening(3, 1)).value());
}

TEST_F(OrdersTest, AnOlderOpeningIsLeftAlone) {
  EXPECT_TRUE(orders_.opened(opening(3, 2, 5)).value());
  EXPECT_TRUE(orders_.opened(opening(3, 2, 5)).value()) << "again, after a reconnect";
  EXPECT_FALSE(orders_.opened(opening(3, 1, 5)).value());
  EXPECT_FALSE(orders_.opened(opening(3, 3, 4)).value());
  EXPECT_FALSE(orders_.opened(opening(2, 9, 5)).value());
  EXPECT_TRUE(orders_.opened(opening(3, 3, 5)).value());
  EXPECT_TRUE(orders_.opened(opening(4, 1, 5)).value());
}

TEST_F(OrdersTest, AnotherHistoryBeginsAnew) {
  EXPECT_TRUE(orders_.opened(opening(8, 1)).value());
  orders_.in_history(round::HistoryId(10));
  EXPECT_FALSE(orders_.opened(opening(9, 1)).ok()) << "it is of the history before";
  orders_.in_history(kHistory);
  EXPECT_TRUE(orders_.opened(opening(3, 1)).value());
}

TEST_F(OrdersTest, ACommitIsTheCoordinators) {
  wire::Commit honest = commit(counted());
  EXPECT_TRUE(orders_.committed(honest).ok());
  wire::Commit other_model = honest;
  other_model.model.digest[0] = std::byte{1};
  EXPECT_EQ(orders_.committed(other_model).error().code, Code::kUnauthenticated);
  honest.order = nullptr;
  EXPECT_EQ(orders_.committed(honest).error().code, Code::kUnauthenticated);
}

TEST_F(OrdersTest, AnOutcomeIsAboutOneSiteAndOneRound) {
  EXPECT_EQ(orders_.outcome_of(kSite, commit(counted())).value(), counted());
  EXPECT_EQ(orders_.outcome_of(SiteId(8), commit(counted())).value(), std::nullopt);
  EXPECT_FALSE(orders_.outcome_of(kSite, commit(counted(SiteId(8)))).ok()) << "of another site, shown as its own";
  EXPECT_FALSE(orders_.outcome_of(kSite, commit(counted(kSite, 2))).ok()) << "of another round";
  wire::Commit forged = commit(counted());
  forged.outcomes[kSite] = signed_by(other_, wire::kOutcomeKind, forged.outcomes[kSite]->body());
  EXPECT_FALSE(orders_.outcome_of(kSite, forged).ok());
  wire::Decided other_bytes = counted();  // as the coordinator answers whoever asks about bytes that nobody sent
  other_bytes.outcome = round::Outcome::kLate;
  EXPECT_FALSE(orders_.outcome_of(kSite, commit(other_bytes)).ok()) << "an answer, shown as the commit's outcome";
  wire::Decided late = other_bytes;
  late.digest.reset();
  EXPECT_EQ(orders_.outcome_of(kSite, commit(late)).value(), late);
}

TEST_F(OrdersTest, AnAnswerSaysWhatTheCoordinatorSigned) {
  EXPECT_TRUE(orders_.answered(reply()).ok());
  v1::OutcomeReply late = reply();
  late.set_outcome(v1::OutcomeReply::OUTCOME_LATE);
  EXPECT_EQ(orders_.answered(late).error().code, Code::kUnauthenticated);
  v1::OutcomeReply other = reply();
  other.set_sha256(std::string(32, 'x'));
  EXPECT_FALSE(orders_.answered(other).ok());
  v1::OutcomeReply bare = reply();
  bare.clear_order();
  EXPECT_FALSE(orders_.answered(bare).ok());
}

TEST_F(OrdersTest, ARunEndsByTheCoordinatorsWord) {
  v1::RunState state;
  state.set_run(4);
  state.set_state("done");
  EXPECT_EQ(orders_.ended(state).error().code, Code::kUnauthenticated);
  *state.mutable_order() = *signed_by(key_, wire::kRunStateKind, wire::run_state_body(state, Epoch(1), kHistory));
  EXPECT_TRUE(orders_.ended(state).ok());
  state.set_run(5);
  EXPECT_FALSE(orders_.ended(state).ok());
}

TEST_F(OrdersTest, ACoordinatorThatSignsNothingIsBelieved) {
  orders_.by({});
  wire::Opening bare = opening(3, 2);
  bare.order = nullptr;
  EXPECT_TRUE(orders_.opened(bare).value());
  wire::Commit commit = this->commit(counted());
  commit.order = nullptr;
  EXPECT_TRUE(orders_.committed(commit).ok());
  v1::OutcomeReply answer = reply();
  answer.clear_order();
  EXPECT_TRUE(orders_.answered(answer).ok());
}

TEST_F(OrdersTest, AContributionIsItsSitesOwn) {
  round::Contribution given{kSite, Epoch(5), 100, Digest{std::byte{1}}, 0, {}, Incarnation(2), 8};
  const identity::PublicKey site = identity::PublicKey::of(other_);
  const auto check = [&] { return check_author(site, RunId(4), RoundId(3), Digest{}, given); };
  EXPECT_EQ(check().error().code, Code::kUnauthenticated);
  EXPECT_EQ(check().error().message, "its contribution is without its signature");
  const std::string body = wire::contribution_body(RunId(4), RoundId(3), Digest{}, given);
  given.signature = identity::sign(other_, wire::kContributionKind, as_byte_span(body)).value();
  EXPECT_TRUE(check().ok());
  given.weight = 1000;
  EXPECT_EQ(check().error().code, Code::kUnauthenticated);
}

}  // namespace
}  // namespace fluvial::tree
