#include "core/round/gather.h"

#include <gtest/gtest.h>

namespace fluvial::round {
namespace {

std::vector<Participant> participants() {
  return {{SiteId(1), Epoch(1), 100}, {SiteId(2), Epoch(1), 100}, {SiteId(3), Epoch(1), 100}};
}
Contribution entry(std::uint32_t site, std::uint64_t lease = 1, std::uint8_t content = 0,
                   std::uint64_t submission = 1) {
  Contribution one{SiteId(site), Epoch(lease), 10, {}, 0, {}};
  one.digest[0] = std::byte{content};
  one.incarnation = Incarnation(1);
  one.submission = submission;
  return one;
}
ContributorSet set_of(std::initializer_list<Contribution> entries) {
  ContributorSet set;
  for (const Contribution& one : entries) EXPECT_TRUE(set.add(one).ok());
  return set;
}
void take(Gather& gather, const ContributorSet& set) {
  gather.begin_take(set);
  gather.finish_take(set);
}

TEST(Gather, ANewerLeaseFencesTheOldOne) {
  Gather gather(participants());
  EXPECT_TRUE(gather.update({{SiteId(1), Epoch(5), 100}}, {}).empty());
  EXPECT_EQ(gather.admit(SiteId(1), Epoch(1), 10).error().code, Code::kStale);
  EXPECT_TRUE(gather.admit(SiteId(1), Epoch(5), 10).ok());
  gather.update({{SiteId(1), Epoch(2), 100}}, {});
  EXPECT_TRUE(gather.admit(SiteId(1), Epoch(5), 10).ok()) << "an older one changes nothing";
}

TEST(Gather, WhatCameUnderTheOldLeaseIsVoidButNotAtTheRoot) {
  Gather inner(participants());
  take(inner, set_of({entry(1), entry(2)}));
  EXPECT_EQ(inner.update({{SiteId(1), Epoch(5), 100}}, {}), std::set{SiteId(1)});
  inner.forget_held();
  EXPECT_EQ(inner.awaited().size(), 3u);

  Gather root(participants());
  take(root, set_of({entry(1)}));
  root.move_lease(SiteId(1), Epoch(5));
  EXPECT_EQ(root.admit(SiteId(1), Epoch(5), 10).error().code, Code::kAlreadyExists);
  EXPECT_EQ(root.held().size(), 1u);
}

TEST(Gather, WhoIsGoneIsNotWaitedFor) {
  Gather gather(participants());
  take(gather, set_of({entry(2)}));
  EXPECT_EQ(gather.update({}, {SiteId(1), SiteId(2)}), std::set{SiteId(2)});
  EXPECT_EQ(gather.participant_count(), 2u) << "site 2 stays until it has left the sum";
  gather.forget_held();
  EXPECT_EQ(gather.awaited(), std::vector{SiteId(3)});
  EXPECT_EQ(gather.admit(SiteId(2), Epoch(1), 10).error().code, Code::kFailedPrecondition);
}

TEST(Gather, NamesWhomAPartialMustDoWithout) {
  Gather gather(participants());
  take(gather, set_of({entry(1)}));
  const ContributorSet partial = set_of({entry(1), entry(2), entry(3, 9), entry(4)});
  EXPECT_EQ(gather.without(partial), (std::vector{SiteId(1), SiteId(3), SiteId(4)}));
}

TEST(Gather, TheNextAttemptAsksWhoDeclinedOrWasMissingButNotWhoContradictedItself) {
  Gather gather(participants());
  gather.refuse({SiteId(1), {Code::kUnavailable, "out of memory"}});
  gather.refuse({SiteId(2), {Code::kConflict, "two contents"}});
  gather.mark_missing({SiteId(3)});
  EXPECT_TRUE(gather.settled());
  gather.next_attempt();
  EXPECT_EQ(gather.awaited(), (std::vector{SiteId(1), SiteId(3)}));
}

TEST(Gather, TheNextAttemptAsksAgainForWhatCouldNotBeUsed) {
  Gather gather(participants());
  gather.refuse({SiteId(1), {Code::kDataLoss, "the digest does not match"}});
  gather.refuse({SiteId(2), {Code::kInvalidArgument, "not finite"}});
  gather.refuse({SiteId(3), {Code::kPermissionDenied, "in another's name"}});
  EXPECT_TRUE(gather.settled()) << "nobody is left to wait for in this attempt";
  gather.next_attempt();
  EXPECT_EQ(gather.awaited(), (std::vector{SiteId(1), SiteId(2), SiteId(3)}));
}

TEST(Gather, WhoIsInTheSumIsNotRefused) {
  Gather gather(participants());
  take(gather, set_of({entry(1)}));
  gather.begin_take(set_of({entry(2)}));
  for (const std::uint32_t site : {1u, 2u}) gather.refuse({SiteId(site), {Code::kInternal, "gave up"}});
  gather.finish_take(set_of({entry(2)}));
  EXPECT_TRUE(gather.refusals().empty());
  EXPECT_EQ(gather.counted(), (std::vector{SiteId(1), SiteId(2)}));
  EXPECT_EQ(gather.held().size(), 2u);
}

}  // namespace
}  // namespace fluvial::round
