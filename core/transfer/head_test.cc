#include "core/transfer/head.h"

#include <gtest/gtest.h>

namespace fluvial::transfer {
namespace {

TEST(CheckBelow, APartialSpeaksOnlyForThoseBelowItsSender) {
  const auto is_below = [](SiteId site) { return site == SiteId(3); };
  PartialHead head;
  head.child = NodeId(2);
  head.what.missing = {SiteId(3)};
  EXPECT_TRUE(check_below(head, is_below).ok());
  head.what.refusals = {{SiteId(4), Error{Code::kInvalidArgument, "made up"}}};
  EXPECT_EQ(check_below(head, is_below).error().code, Code::kPermissionDenied);
  head.what.refusals.clear();
  head.what.missing.push_back(SiteId(5));
  EXPECT_EQ(check_below(head, is_below).error().code, Code::kPermissionDenied);
  head.what.missing.pop_back();
  EXPECT_TRUE(head.what.contributors.add({SiteId(6), Epoch(1), 1, {}, 0, {}}).ok());
  EXPECT_EQ(check_below(head, is_below).error().code, Code::kPermissionDenied);
}

TEST(Heads, AreRefusedInAnothersNameOrRole) {
  v1::UpdateBegin update;
  update.mutable_key()->set_site(7);
  update.set_base_sha256(std::string(32, 'b'));
  EXPECT_EQ(head_from_proto(update, NodeId(7), Role::kSite)->site, SiteId(7));
  EXPECT_EQ(head_from_proto(update, NodeId(8), Role::kSite).error().code, Code::kPermissionDenied);
  EXPECT_EQ(head_from_proto(update, NodeId(7), Role::kAggregator).error().code, Code::kPermissionDenied);
  update.set_base_sha256("short");
  EXPECT_FALSE(head_from_proto(update, NodeId(7), Role::kSite).ok());

  v1::PartialBegin partial;
  EXPECT_EQ(head_from_proto(partial, NodeId(2), Role::kAggregator)->child, NodeId(2));
  EXPECT_EQ(head_from_proto(partial, NodeId(2), Role::kSite).error().code, Code::kPermissionDenied);
  partial.set_scale_bits(0xffffffff);
  EXPECT_FALSE(head_from_proto(partial, NodeId(2), Role::kAggregator).ok());
}

TEST(Heads, SayWhichPassAndWhichMean) {
  v1::UpdateBegin update;
  update.mutable_key()->set_site(7);
  update.set_base_sha256(std::string(32, 'b'));
  EXPECT_EQ(head_from_proto(update, NodeId(7), Role::kSite)->from, round::MadeFrom{});
  update.set_pass(1);
  EXPECT_EQ(head_from_proto(update, NodeId(7), Role::kSite).error().code, Code::kInvalidArgument) << "of which mean?";
  update.set_mean_sha256(std::string(32, 'm'));
  EXPECT_EQ(head_from_proto(update, NodeId(7), Role::kSite)->from.pass, 1u);
  v1::PartialBegin partial;
  partial.set_pass(1);
  EXPECT_EQ(head_from_proto(partial, NodeId(2), Role::kAggregator)->pass, 1u);
}

// The bytes of all passes are those of one update of the model.
TEST(Terms, WhatTravelsIsComparedWithTheModelOnce) {
  const auto plain = [](const std::optional<round::Pass>& pass) {
    return make_terms({}, 1000, 0, {}, 20, nullptr, nullptr, nullptr, {}, pass).plain_values;
  };
  EXPECT_EQ(plain({}), 1000U);
  EXPECT_EQ(plain(round::Pass{.index = 0, .count = 2, .value_count = 60}), 0U);
  EXPECT_EQ(plain(round::Pass{.index = 1, .count = 2, .value_count = 80, .mean = round::VectorRef{}}), 1000U);
}

// What is late of one pass may have the shape of the next, and is no fault of its site's.
TEST(CheckPass, OnlyWhatFitsTheOpenOneMayComeIn) {
  const round::MadeFrom second{1, {std::byte{1}}};
  round::MadeFrom open;
  UpdateHead update;
  PartialHead partial;
  EXPECT_TRUE(check_pass(update, open).ok());
  EXPECT_TRUE(check_pass(partial, open).ok());
  open = second;
  EXPECT_EQ(check_pass(update, open).error().message, "the update of site 0 is of pass 1, and pass 2 is open");
  EXPECT_EQ(check_pass(update, open).error().code, Code::kStale);
  EXPECT_EQ(check_pass(partial, open).error().code, Code::kStale) << "one with names alone, too";
  update.from = second;
  partial.pass = 1;
  round::Contribution one{SiteId(3), Epoch(1), 5, {}, 0, {}};
  one.from = second;
  ASSERT_TRUE(partial.what.contributors.add(one).ok());
  EXPECT_TRUE(check_pass(update, open).ok());
  EXPECT_TRUE(check_pass(partial, open).ok());
  open.mean[0] = std::byte{2};
  EXPECT_EQ(check_pass(update, open).error().code, Code::kStale) << "of another attempt's mean";
  EXPECT_EQ(check_pass(partial, open).error().code, Code::kStale);
  EXPECT_NE(check_pass(partial, open).error().message.find("site 3"), std::string::npos);
}

TEST(Heads, SayWhatTheirDigestIsOf) {
  v1::UpdateBegin update;
  update.mutable_key()->set_site(7);
  update.set_base_sha256(std::string(32, 'b'));
  v1::PartialBegin partial;
  EXPECT_EQ(head_from_proto(update, NodeId(7), Role::kSite)->digest_kind, DigestKind::kStream) << "as 0.2 has it";
  EXPECT_EQ(head_from_proto(partial, NodeId(2), Role::kAggregator)->digest_kind, DigestKind::kStream);
  update.set_digest(v1::DIGEST_TREE);
  partial.set_digest(v1::DIGEST_TREE);
  EXPECT_EQ(head_from_proto(update, NodeId(7), Role::kSite)->digest_kind, DigestKind::kTree);
  EXPECT_EQ(head_from_proto(partial, NodeId(2), Role::kAggregator)->digest_kind, DigestKind::kTree);
  for (const int unknown : {2, -1, 1 << 30}) {
    update.set_digest(static_cast<v1::Digest>(unknown));
    partial.set_digest(static_cast<v1::Digest>(unknown));
    EXPECT_EQ(head_from_proto(update, NodeId(7), Role::kSite).error().code, Code::kInvalidArgument) << unknown;
    EXPECT_EQ(head_from_proto(partial, NodeId(2), Role::kAggregator).error().code, Code::kInvalidArgument) << unknown;
  }
}

TEST(Head, AnOpeningWhoseScaleHasNoRoomForItsParticipantsIsNoOpening) {
  wire::Opening opening;
  opening.plan.value_abs_max = 0.1;
  opening.scale_bits = 40;
  opening.participants = {{SiteId(1), Epoch(1), 2'000'000}, {SiteId(2), Epoch(1), 2'000'000}};
  EXPECT_TRUE(check_room(opening).ok());
  opening.participants.push_back({SiteId(3), Epoch(1), 2'000'000});
  EXPECT_EQ(check_room(opening).error().code, Code::kInvalidArgument);
  opening.participants.clear();  // a report of sites that are gone
  EXPECT_TRUE(check_room(opening).ok());
}

}  // namespace
}  // namespace fluvial::transfer
