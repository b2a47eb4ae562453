#include "coordinator/logic/federation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

namespace fluvial::coordinator {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Key;
using testing::UnorderedElementsAre;

constexpr NodeId kRoot(0);
constexpr NodeId kEuAggregator(1);  // an aggregator for eu
constexpr NodeId kParis(2);         // one for eu/paris, below it
constexpr SiteId kLouvre(11);
constexpr SiteId kOrsay(12);
constexpr SiteId kPrado(13);  // eu/madrid

// A federation with a journal that never fails: every lease asked for is granted, a new parent with a new epoch.
class FederationTest : public testing::Test {
 protected:
  FederationTest() {
    enrol(kEuAggregator, Role::kAggregator, "europe", "eu");
    enrol(kParis, Role::kAggregator, "paris", "eu/paris");
    enrol(kLouvre, Role::kSite, "louvre", "eu/paris");
    enrol(kOrsay, Role::kSite, "orsay", "eu/paris");
    enrol(kPrado, Role::kSite, "prado", "eu/madrid");
  }

  void enrol(NodeId id, Role role, std::string name, std::string region) {
    NodeEntry node;
    node.id = id;
    node.role = role;
    node.name = std::move(name);
    node.region = std::move(region);
    node.weight_max = 100;
    book_.put(node, now_);
  }

  Result<LeaseAnswer> ask(NodeId node, NodeId unreachable = NodeId(0)) {
    const NodeEntry& entry = book_.nodes().at(node);
    const bool aggregator = entry.role == Role::kAggregator;
    const Result<LeaseWanted> wanted = book_.request_lease(
        {node, entry.role, entry.name, aggregator ? entry.name + ":7410" : std::string(), unreachable}, now_);
    if (!wanted.ok()) return wanted.error();
    return book_.lease_granted(*wanted, journal_grants(*wanted), now_);
  }
  NodeId parent_of(NodeId node, NodeId unreachable = NodeId(0)) { return ask(node, unreachable).value().parent; }

  LeaseEntry journal_grants(const LeaseWanted& wanted) {
    LeaseEntry& lease = journal_[wanted.node];
    if (lease.epoch == Epoch(0) || lease.parent != wanted.parent) lease = {wanted.node, wanted.parent, Epoch(++epoch_)};
    return lease;
  }

  void join(NodeId node) {  // as a child of the coordinator
    const Epoch lease = book_.lease_of(node)->epoch;
    ASSERT_TRUE(book_.may_join(node, lease).ok());
    book_.child_joined(node, lease, Incarnation(1), now_);
  }
  MemberUp up(NodeId node) {
    const LeaseEntry& lease = *book_.lease_of(node);
    return {node, lease.parent, lease.epoch, Incarnation(1)};
  }
  // Everybody takes a lease and connects: europe at the coordinator, paris and prado at europe, two sites at paris.
  void everybody_comes() {
    for (const NodeId node : {kEuAggregator, kParis, kLouvre, kOrsay, kPrado}) ASSERT_TRUE(ask(node).ok());
    join(kEuAggregator);
    book_.members_changed(kEuAggregator, {up(kParis), up(kLouvre), up(kOrsay), up(kPrado)}, {}, now_);
    ASSERT_THAT(book_.connected_sites(), UnorderedElementsAre(Key(kLouvre), Key(kOrsay), Key(kPrado)));
  }
  void pass(Duration time) { now_ += time; }

  Federation book_{FailoverSettings{5s, 60s, 30s}};
  TimePoint now_{1h};
  std::map<NodeId, LeaseEntry> journal_;
  std::uint64_t epoch_ = 0;
};

TEST_F(FederationTest, TheNearestRegionIsTheParent) {
  everybody_comes();
  EXPECT_EQ(parent_of(kEuAggregator), kRoot);
  EXPECT_EQ(parent_of(kParis), kEuAggregator);
  EXPECT_EQ(parent_of(kLouvre), kParis);
  EXPECT_EQ(parent_of(kPrado), kEuAggregator);
  EXPECT_EQ(book_.branch(kLouvre), kEuAggregator);
  EXPECT_EQ(book_.via(kLouvre), kEuAggregator);
}

TEST_F(FederationTest, OnlyWhoIsEnrolledUnderItsNameGetsALease) {
  EXPECT_EQ(book_.request_lease({kLouvre, Role::kSite, "orsay", "", {}}, now_).error().code, Code::kUnauthenticated);
  EXPECT_EQ(book_.request_lease({kLouvre, Role::kAggregator, "louvre", "h:1", {}}, now_).error().code,
            Code::kUnauthenticated);
  EXPECT_EQ(book_.request_lease({NodeId(99), Role::kSite, "nobody", "", {}}, now_).error().code,
            Code::kUnauthenticated);
  book_.revoked(kLouvre, WallTime{}, now_);
  EXPECT_EQ(ask(kLouvre).error().code, Code::kUnauthenticated);
}

TEST_F(FederationTest, WhoWasRevokedOrIsInQuarantineIsNotWaitedFor) {
  everybody_comes();
  const std::vector<round::Participant> all{{kLouvre, Epoch(1), 10}, {kOrsay, Epoch(1), 10}, {kPrado, Epoch(1), 10}};
  EXPECT_TRUE(book_.barred_among(all).empty());
  book_.revoked(kLouvre, WallTime{}, now_);
  book_.quarantined(kOrsay, WallTime{}, "two contents");
  const std::vector<round::Refusal> barred = book_.barred_among(all);
  ASSERT_EQ(barred.size(), 2U);
  EXPECT_EQ(barred[0].site, kLouvre);
  EXPECT_FALSE(round::drops_update(barred[0].error.code)) << "enrolled again it brings what it has";
  EXPECT_EQ(barred[1].site, kOrsay);
  EXPECT_EQ(barred[1].error.code, Code::kConflict);
}

TEST_F(FederationTest, AnAggregatorThatIsAwayForLongGivesItsChildrenUp) {
  everybody_comes();
  book_.members_changed(kEuAggregator, {}, {kParis, kLouvre, kOrsay}, now_);
  pass(4999ms);
  EXPECT_EQ(parent_of(kLouvre), kParis) << "it may be restarting";
  pass(1ms);
  EXPECT_EQ(parent_of(kLouvre), kEuAggregator) << "the next that serves, not the coordinator";
  book_.child_left(kEuAggregator, now_);
  pass(5s);
  EXPECT_EQ(parent_of(kOrsay), kRoot);
}

TEST_F(FederationTest, ASubtreeMovesWhole) {
  everybody_comes();
  const Epoch louvre_before = book_.lease_of(kLouvre)->epoch;
  book_.child_left(kEuAggregator, now_);
  EXPECT_THAT(book_.members(), IsEmpty());
  pass(5s);
  const Result<LeaseAnswer> moved = ask(kParis);
  ASSERT_TRUE(moved.ok());
  EXPECT_TRUE(moved->moved);
  EXPECT_EQ(moved->parent, kRoot);
  join(kParis);
  EXPECT_THAT(book_.members_changed(kParis, {up(kLouvre), up(kOrsay)}, {}, now_).sites_up,
              ElementsAre(kLouvre, kOrsay));
  EXPECT_EQ(book_.lease_of(kLouvre)->epoch, louvre_before) << "its own lease has not moved";
  EXPECT_EQ(book_.branch(kLouvre), kParis);
  EXPECT_EQ(book_.via(kLouvre), kParis);
}

TEST_F(FederationTest, AParentOfThePastAnnouncesInVain) {
  everybody_comes();
  const MemberUp old_paris = up(kParis);
  pass(1h);
  ASSERT_EQ(parent_of(kParis, kEuAggregator), kRoot) << "it could not reach europe, which is connected";
  EXPECT_THAT(book_.connected_sites(), ElementsAre(Key(kPrado))) << "until it comes by its new way";
  // europe has not noticed, and repeats what it knows; the leases of the sites below paris have not changed.
  const MembersChanged said = book_.members_changed(kEuAggregator, {old_paris, up(kLouvre), up(kPrado)}, {}, now_);
  EXPECT_THAT(said.sites_up, ElementsAre(kPrado));
  EXPECT_THAT(said.not_counted, ElementsAre(kParis, kLouvre));
  join(kParis);
  book_.members_changed(kParis, {up(kLouvre)}, {}, now_);
  book_.members_changed(kEuAggregator, {}, {kParis, kLouvre}, now_);
  EXPECT_EQ(book_.via(kLouvre), kParis) << "what europe lost was not there any more";
  book_.child_left(kEuAggregator, now_);
  EXPECT_EQ(book_.via(kLouvre), kParis);
}

TEST_F(FederationTest, AChildThatCannotReachItsParentGetsAnotherForAWhile) {
  everybody_comes();
  pass(1h);
  EXPECT_EQ(parent_of(kLouvre, kParis), kEuAggregator);
  EXPECT_EQ(parent_of(kOrsay), kParis) << "the others stay";
  pass(59999ms);
  EXPECT_EQ(parent_of(kLouvre), kEuAggregator);
  EXPECT_EQ(parent_of(kOrsay, kParis), kEuAggregator);
  pass(1ms);
  EXPECT_EQ(parent_of(kLouvre), kParis);
}

TEST_F(FederationTest, WhoHasOnlyJustComeIsNotBlamedForHavingBeenAway) {
  everybody_comes();
  book_.members_changed(kEuAggregator, {}, {kParis}, now_);
  pass(1s);
  book_.members_changed(kEuAggregator, {up(kParis)}, {}, now_);
  pass(1s);
  EXPECT_EQ(parent_of(kLouvre, kParis), kParis);
  pass(4s);
  EXPECT_EQ(parent_of(kLouvre, kParis), kEuAggregator) << "by now it should have been reached";
}

TEST_F(FederationTest, AfterARestartOfTheCoordinatorAggregatorsHaveTimeToCome) {
  everybody_comes();
  Federation again(FailoverSettings{5s, 60s, 30s});
  for (const auto& [id, node] : book_.nodes()) again.put(node, now_);
  for (const auto& [id, lease] : journal_) again.put(lease);
  book_ = again;
  EXPECT_THAT(book_.connected_sites(), IsEmpty());
  pass(4s);
  EXPECT_EQ(parent_of(kLouvre), kParis);
  pass(1s);
  EXPECT_EQ(parent_of(kLouvre), kRoot) << "neither has come";
}

TEST_F(FederationTest, AnAggregatorThatAsksForALeaseIsExpectedOnce) {
  everybody_comes();
  book_.child_left(kEuAggregator, now_);
  pass(10s);
  ASSERT_TRUE(ask(kEuAggregator).ok());
  EXPECT_EQ(parent_of(kPrado), kEuAggregator) << "it is about to be here";
  pass(4s);
  ASSERT_TRUE(ask(kEuAggregator).ok());
  pass(1s);
  EXPECT_EQ(parent_of(kPrado), kRoot) << "it asks and does not come";
}

TEST_F(FederationTest, ChildrenGoHomeOnceTheNearerParentHasBeenUpForAWhile) {
  everybody_comes();
  book_.members_changed(kEuAggregator, {}, {kParis, kLouvre, kOrsay}, now_);
  pass(5s);
  ASSERT_EQ(parent_of(kLouvre), kEuAggregator);
  ASSERT_EQ(parent_of(kOrsay), kEuAggregator);
  book_.members_changed(kEuAggregator, {up(kLouvre), up(kOrsay)}, {}, now_);
  EXPECT_THAT(book_.send_home(now_), IsEmpty());

  ASSERT_TRUE(ask(kParis).ok());
  book_.members_changed(kEuAggregator, {up(kParis)}, {}, now_);
  EXPECT_LE(book_.next_home(now_), now_ + 30s);
  pass(29999ms);
  EXPECT_THAT(book_.send_home(now_), IsEmpty());
  pass(1ms);
  EXPECT_THAT(book_.send_home(now_), ElementsAre(kLouvre, kOrsay));
  EXPECT_THAT(book_.send_home(now_), IsEmpty()) << "each is told once";
  EXPECT_EQ(book_.next_home(now_), std::nullopt);
  EXPECT_THAT(book_.connected_sites(), ElementsAre(Key(kPrado)));
  EXPECT_EQ(book_.via(kLouvre), kEuAggregator) << "it may still be told of the commit";

  book_.members_changed(kEuAggregator, {}, {kLouvre}, now_);
  EXPECT_EQ(parent_of(kLouvre), kParis);
  book_.members_changed(kEuAggregator, {up(kLouvre)}, {}, now_);
  EXPECT_THAT(book_.connected_sites(), UnorderedElementsAre(Key(kLouvre), Key(kPrado)));
  EXPECT_THAT(book_.send_home(now_), IsEmpty());
}

TEST_F(FederationTest, WhoDoesNotGoIsToldAgainWhenItIsAnnouncedAgain) {
  everybody_comes();
  pass(1h);
  ASSERT_EQ(parent_of(kLouvre, kParis), kEuAggregator);
  book_.members_changed(kEuAggregator, {up(kLouvre)}, {}, now_);
  EXPECT_THAT(book_.send_home(now_), IsEmpty()) << "it could not reach paris just now";
  EXPECT_LE(book_.next_home(now_), now_ + 60s);
  pass(60s);
  EXPECT_THAT(book_.send_home(now_), ElementsAre(kLouvre));
  book_.members_changed(kEuAggregator, {up(kLouvre)}, {}, now_);
  EXPECT_THAT(book_.send_home(now_), ElementsAre(kLouvre));
}

TEST_F(FederationTest, ANewAggregatorGetsTheChildrenItIsNearerTo) {
  everybody_comes();
  const NodeId madrid(3);
  enrol(madrid, Role::kAggregator, "madrid", "eu/madrid");
  ASSERT_EQ(parent_of(madrid), kEuAggregator);
  book_.members_changed(kEuAggregator, {up(madrid)}, {}, now_);
  pass(30s);
  EXPECT_THAT(book_.send_home(now_), ElementsAre(kPrado));
}

TEST_F(FederationTest, NobodyBelowOneThatGoesHomeTakesPart) {
  everybody_comes();
  book_.child_left(kEuAggregator, now_);
  pass(5s);
  ASSERT_EQ(parent_of(kParis), kRoot);
  join(kParis);
  book_.members_changed(kParis, {up(kLouvre), up(kOrsay)}, {}, now_);
  ASSERT_TRUE(ask(kEuAggregator).ok());
  join(kEuAggregator);
  pass(30s);
  EXPECT_THAT(book_.send_home(now_), ElementsAre(kParis));
  EXPECT_THAT(book_.connected_sites(), IsEmpty());
}

TEST_F(FederationTest, AQuarantinedSiteIsHereAndTakesNoPart) {
  everybody_comes();
  book_.quarantined(kLouvre, WallTime{}, "two contents");
  EXPECT_TRUE(book_.is_quarantined(kLouvre));
  EXPECT_THAT(book_.connected_sites(), UnorderedElementsAre(Key(kOrsay), Key(kPrado)));
  EXPECT_TRUE(book_.members().contains(kLouvre));
  EXPECT_EQ(parent_of(kLouvre), kParis);
  book_.cleared(kLouvre);
  EXPECT_TRUE(book_.connected_sites().contains(kLouvre));
}

TEST_F(FederationTest, AnOlderGrantThatComesLateChangesNothing) {
  everybody_comes();
  const LeaseWanted wanted{kPrado, kRoot, {}};
  const LeaseEntry newer{kPrado, kEuAggregator, Epoch(101)};
  ASSERT_TRUE(book_.lease_granted({kPrado, kEuAggregator, {}}, newer, now_).ok());
  EXPECT_EQ(book_.lease_granted(wanted, {kPrado, kRoot, Epoch(100)}, now_).error().code, Code::kStale);
  EXPECT_EQ(*book_.lease_of(kPrado), newer);
}

TEST_F(FederationTest, AChildWithoutACurrentLeaseMayNotJoin) {
  everybody_comes();
  const Epoch old = book_.lease_of(kEuAggregator)->epoch;
  EXPECT_TRUE(book_.may_join(kEuAggregator, old).ok());
  EXPECT_EQ(book_.may_join(kEuAggregator, Epoch(old.value() + 1)).error().code, Code::kStale);
  EXPECT_EQ(book_.may_join(kParis, book_.lease_of(kParis)->epoch).error().code, Code::kStale) << "europe's child";
}

TEST_F(FederationTest, ARevokedSiteIsNoMemberAnyMore) {
  everybody_comes();
  book_.revoked(kLouvre, WallTime{}, now_);
  EXPECT_THAT(book_.connected_sites(), UnorderedElementsAre(Key(kOrsay), Key(kPrado)));
}

TEST_F(FederationTest, EnrollingAnewVoidsWhatTheOldKeyHad) {
  everybody_comes();
  const MemberUp old = up(kLouvre);
  NodeEntry anew = book_.nodes().at(kLouvre);
  EXPECT_FALSE(book_.put(anew, now_)) << "the same certificate";
  anew.certificate_serial = "second";
  EXPECT_TRUE(book_.put(anew, now_));
  EXPECT_THAT(book_.connected_sites(), UnorderedElementsAre(Key(kOrsay), Key(kPrado)));
  EXPECT_THAT(book_.members_changed(kEuAggregator, {old}, {}, now_).not_counted, ElementsAre(kLouvre));
  journal_.erase(kLouvre);
  const LeaseAnswer answer = ask(kLouvre).value();
  EXPECT_GT(answer.epoch, old.lease);
  EXPECT_TRUE(answer.moved) << "an open round must hear of it";
  EXPECT_THAT(book_.members_changed(kEuAggregator, {old}, {}, now_).not_counted, ElementsAre(kLouvre));
  EXPECT_THAT(book_.members_changed(kEuAggregator, {up(kLouvre)}, {}, now_).sites_up, ElementsAre(kLouvre));
}

TEST_F(FederationTest, WhoGoesPastItsAggregatorIsToldAndWhy) {
  const auto past = [&](NodeId node) {
    const auto detour = book_.detour_of(node, now_);
    return detour ? book_.name_of(detour->past) + " " + detour->reason : "";
  };
  ASSERT_TRUE(ask(kLouvre).ok());
  EXPECT_EQ(past(kLouvre), "paris has enrolled and never come");
  everybody_comes();
  EXPECT_EQ(past(kLouvre), "");
  book_.members_changed(kEuAggregator, {}, {kParis, kLouvre, kOrsay}, now_);
  pass(7s);
  ASSERT_EQ(parent_of(kLouvre), kEuAggregator);
  EXPECT_EQ(past(kLouvre), "paris is away (7 s)");
  EXPECT_EQ(past(kPrado), "");
  ASSERT_TRUE(ask(kParis).ok());
  book_.members_changed(kEuAggregator, {up(kParis)}, {}, now_);
  pass(1s);
  EXPECT_EQ(past(kLouvre), "paris is back; its children return in 29 s");
  pass(29s);
  EXPECT_EQ(past(kLouvre), "paris is back; its children return between rounds");
  ASSERT_EQ(parent_of(kOrsay, kParis), kEuAggregator);
  pass(20s);
  EXPECT_EQ(past(kOrsay), "paris could not be reached from there at paris:7410; tried again in 40 s");
  book_.revoked(kParis, WallTime{}, now_);
  EXPECT_EQ(past(kOrsay), "") << "a revoked aggregator is nobody's parent";
}

TEST_F(FederationTest, ItKnowsSinceWhenSomebodyIsHereOrAway) {
  const TimePoint opened = now_;
  pass(10s);
  EXPECT_FALSE(book_.stay_of(kLouvre).here);
  EXPECT_FALSE(book_.stay_of(kLouvre).came);
  EXPECT_EQ(book_.stay_of(kLouvre).since, opened);
  everybody_comes();
  const TimePoint came = now_;
  pass(10s);
  book_.members_changed(kEuAggregator, {up(kLouvre)}, {}, now_);  // announced again: it was here all the time
  EXPECT_TRUE(book_.stay_of(kLouvre).here);
  EXPECT_EQ(book_.stay_of(kLouvre).since, came);
  book_.child_left(kEuAggregator, now_);
  pass(10s);
  for (const NodeId node : {kEuAggregator, kParis, kLouvre}) {
    EXPECT_FALSE(book_.stay_of(node).here);
    EXPECT_TRUE(book_.stay_of(node).came);
    EXPECT_EQ(book_.stay_of(node).since, came + 10s);
  }
  EXPECT_FALSE(book_.stay_of(NodeId(99)).here) << "nobody";
}

TEST_F(FederationTest, TheWishedParentIsTheNearestWhetherItServesOrNot) {
  everybody_comes();
  EXPECT_EQ(book_.parent_wished(kLouvre), kParis);
  book_.members_changed(kEuAggregator, {}, {kParis}, now_);
  pass(1h);
  EXPECT_EQ(parent_of(kLouvre), kEuAggregator);
  EXPECT_EQ(book_.parent_wished(kLouvre), kParis);
  EXPECT_EQ(book_.parent_wished(kEuAggregator), kRoot);
  EXPECT_EQ(book_.parent_wished(NodeId(99)), kRoot);
}

}  // namespace
}  // namespace fluvial::coordinator
