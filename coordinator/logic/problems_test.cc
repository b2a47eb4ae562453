#include "coordinator/logic/problems.h"

#include <gmock/gmock.h>

#include <chrono>

namespace fluvial::coordinator {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr WallTime kThatNight = std::chrono::sys_days(std::chrono::year(2026) / 1 / 31) + 3h + 12min;

MemberFacts site(const std::string& name) {
  MemberFacts member;
  member.name = name;
  member.stay = {true, true, kThatNight - 1h};
  return member;
}
Situation well() {
  Situation facts;
  facts.now = kThatNight;
  facts.staging_bytes_max = 1000;
  facts.members = {site("hospital-a"), site("hospital-b")};
  RunFacts run;
  run.run = RunId(3);
  run.round = RoundId(17);
  run.attempt = 1;
  run.quorum = 2;
  run.may_come = 2;
  facts.run = run;
  return facts;
}
auto problem(Severity severity, const std::string& what, const std::string& page) {
  return AllOf(Field(&Problem::severity, severity), Field(&Problem::what, HasSubstr(what)),
               Field(&Problem::runbook, HasSubstr(page)), Field(&Problem::advice, testing::Not(IsEmpty())));
}
auto only(Severity severity, const std::string& what, const std::string& page) {
  return ElementsAre(problem(severity, what, page));
}

TEST(Problems, ThereAreNoneWhenAllIsWell) { EXPECT_THAT(problems(well()), IsEmpty()); }

TEST(Problems, AnIdentityThatTwoMachinesShowIsOne) {
  Situation facts = well();
  facts.members[0].held_twice = true;
  EXPECT_THAT(problems(facts), only(Severity::kError, "two machines show the identity of hospital-a",
                                    "enrol.md#two-machines-with-one-identity"));
}

TEST(Problems, ADiskThatFailsIsTheFirst) {
  Situation facts = well();
  facts.members[0].quarantine = "two updates of one name";
  facts.storage_fault = "the journal: no space left";
  EXPECT_THAT(problems(facts),
              ElementsAre(problem(Severity::kError, "no space left", "#fluvialstoragefault"),
                          problem(Severity::kWarning, "hospital-a is in quarantine", "#fluvialsitequarantined")));
}

TEST(Problems, ARunThatPausedItselfIsOneAndOneThatAPersonPausedIsNone) {
  Situation facts = well();
  facts.run->round = RoundId(0);
  facts.run->paused = true;
  facts.run->reason = "round 17: no quorum";
  EXPECT_THAT(problems(facts),
              only(Severity::kError, "run 3 paused itself: round 17: no quorum", "#fluvialrunpauseditself"));
  facts.run->by_person = true;
  EXPECT_THAT(problems(facts), IsEmpty());
}

TEST(Problems, ARunWithoutEnoughSitesSaysSo) {
  Situation facts = well();
  facts.run->round = RoundId(0);
  facts.run->waits = "waiting for sites: 1 connected";
  EXPECT_THAT(problems(facts), only(Severity::kError, "run 3 opens no round", "#fluvialrunwaitsforsites"));
}

TEST(Problems, ARoundThatCannotHaveItsQuorumIsSeenBeforeItsDeadline) {
  Situation facts = well();
  facts.run->in = 1;
  facts.run->may_come = 1;
  EXPECT_THAT(problems(facts), IsEmpty());
  facts.run->may_come = 0;
  EXPECT_THAT(problems(facts), only(Severity::kWarning, "1 in, 0 may come, 2 needed", "#fluvialquorumatrisk"));
  facts.run->may_come = 1;
  facts.run->attempt = 2;
  EXPECT_THAT(problems(facts), only(Severity::kWarning, "in its attempt 2", "#fluvialroundstuck"));
}

TEST(Problems, NobodyEnrolledAndNobodyHereAreTwoThings) {
  Situation facts = well();
  facts.run.reset();
  facts.members.clear();
  EXPECT_THAT(problems(facts), only(Severity::kWarning, "no site is enrolled", "enrol.md"));
  facts.members = {site("hospital-a")};
  facts.members[0].stay = {false, true, kThatNight - 10min};
  EXPECT_THAT(problems(facts),
              ElementsAre(problem(Severity::kError, "no site is connected", "#fluvialsiteaway"),
                          problem(Severity::kWarning, "hospital-a is away since 03:02 UTC", "#fluvialsiteaway")));
}

TEST(Problems, WhatIsWrongWithAMemberNamesIt) {
  Situation facts = well();
  MemberFacts& member = facts.members[1];
  const auto now_is = [&](Severity severity, const std::string& what, const std::string& page) {
    EXPECT_THAT(problems(facts), only(severity, what, page));
    EXPECT_EQ(problems(facts).at(0).node, "hospital-b");
    member = site("hospital-b");
  };
  member.workers = 0;
  now_is(Severity::kWarning, "hospital-b has no worker attached", "#fluvialsiteswithoutworkers");
  member.too_heavy = true;
  now_is(Severity::kWarning, "hospital-b takes no part", "plan.md#late");
  facts.run.reset();
  member.workers = 0;
  EXPECT_THAT(problems(facts), IsEmpty()) << "nobody wants to train";
  member = site("hospital-b");
  facts.run = well().run;
  member.past = "eu-agg";
  member.past_reason = "is away (12 s)";
  now_is(Severity::kWarning, "hospital-b goes past eu-agg, which is away (12 s)", "#fluvialregionpastaggregator");
  member.straggler_score = 3.14;
  now_is(Severity::kWarning, "takes 3.1 times as long", "#fluvialpersistentstraggler");
  member.ahead = "it knows of round 9 of run 1";
  now_is(Severity::kError, "it knows of round 9", "backup.md#an-older-copy");
  member.stay = {false, false, kThatNight - 10min};
  now_is(Severity::kWarning, "hospital-b has not come since the coordinator started at 03:02 UTC", "#fluvialsiteaway");
  member.role = Role::kAggregator;
  member.stay = {false, true, kThatNight - 10min};
  now_is(Severity::kWarning, "hospital-b is away since 03:02 UTC", "#fluvialaggregatordown");
  member.wall_offset = -6s;
  now_is(Severity::kWarning, "the clock of hospital-b is 6 s behind", "#fluvialclocksapart");
  member.wall_offset = 5s;
  EXPECT_THAT(problems(facts), IsEmpty());
}

TEST(Problems, WhoStartsARunOfWindowsHearsWhomItLeavesOut) {
  std::map<NodeId, NodeEntry> nodes;
  for (std::uint32_t i = 1; i <= 8; ++i) {
    nodes[NodeId(i)] = {.id = NodeId(i), .name = "site-" + std::to_string(i), .weight_max = round::kStaleWeightLimit};
  }
  nodes[NodeId(1)].weight_max -= 1;
  nodes[NodeId(2)].removed_at = nodes[NodeId(3)].revoked_at = kThatNight;
  nodes[NodeId(4)].role = Role::kAggregator;
  round::Plan plan;
  EXPECT_EQ(heavy_sites_note(plan, nodes), std::nullopt) << "a plain round takes them all";
  round::set_mode("async", &plan);
  EXPECT_THAT(heavy_sites_note(plan, nodes).value(),
              HasSubstr("leave out site-5 (weight_max 1048576), site-6 (weight_max 1048576), site-7 (weight_max "
                        "1048576), site-8 (weight_max 1048576): enrol it anew"));
  for (auto& [id, node] : nodes) node.removed_at.reset(), node.revoked_at.reset();
  EXPECT_THAT(heavy_sites_note(plan, nodes).value(), HasSubstr("site-7 (weight_max 1048576) and 1 more: "));
  plan = {};
  plan.late = "next";
  EXPECT_TRUE(heavy_sites_note(plan, nodes).has_value());
  for (auto& [id, node] : nodes) node.weight_max = 1'000'000;
  EXPECT_EQ(heavy_sites_note(plan, nodes), std::nullopt);
}

TEST(Problems, ACertificateIsSpokenOfBeforeItEnds) {
  Situation facts = well();
  facts.members[0].certificate_ends = kThatNight + 24h * 15;
  EXPECT_THAT(problems(facts), IsEmpty());
  facts.members[0].certificate_ends = kThatNight + 24h * 13 + 1h;
  EXPECT_THAT(problems(facts),
              only(Severity::kWarning, "of hospital-a ends in 13 days", "#fluvialcertificateexpiring"));
  facts.members[0].certificate_ends = kThatNight + 47h + 1min;
  EXPECT_THAT(problems(facts), only(Severity::kError, "ends in 47 h", "#fluvialcertificateexpiring"));
  facts.members[0].certificate_ends = kThatNight - 1s;
  EXPECT_THAT(problems(facts), only(Severity::kError, "has ended", "#fluvialcertificateexpiring"));
}

TEST(Problems, AShortCertificateIsSpokenOfWhenItsRenewalIsOverdue) {
  Situation facts = well();
  facts.certificate_validity = 24h;
  facts.members[0].certificate_ends = kThatNight + 7h;
  EXPECT_THAT(problems(facts), IsEmpty()) << "it is renewed from half of its life on";
  facts.members[0].certificate_ends = kThatNight + 5h + 1min;
  EXPECT_THAT(problems(facts), only(Severity::kWarning, "of hospital-a ends in 5 h", "#fluvialcertificateexpiring"));
  facts.members[0].certificate_ends = kThatNight + 1h + 1min;
  EXPECT_THAT(problems(facts), only(Severity::kError, "ends in 1 h", "#fluvialcertificateexpiring"));
  facts.members[0].certificate_ends = kThatNight + 24h * 13 + 1h;
  EXPECT_THAT(problems(facts), only(Severity::kWarning, "ends in 13 days", "#fluvialcertificateexpiring"))
      << "one from before, which should have moved over";
}

TEST(Problems, TheAuthorityIsSpokenOfBeforeItEnds) {
  Situation facts = well();
  facts.authority_began = kThatNight - 24h * 1'000;
  facts.authority_ends = kThatNight + 24h * 61;
  EXPECT_THAT(problems(facts), IsEmpty());
  facts.authority_ends = kThatNight + 24h * 59 + 1h;
  EXPECT_THAT(problems(facts), only(Severity::kWarning, "authority ends in 59 days", "authorities.md"));
  facts.authority_ends = kThatNight + 24h * 13 + 1h;
  EXPECT_THAT(problems(facts), only(Severity::kError, "authority ends in 13 days", "authorities.md"));
  facts.authority_ends = std::chrono::sys_days(std::chrono::year(9999) / 12 / 31);
  EXPECT_THAT(problems(facts), IsEmpty());
  facts.authority_began = kThatNight - 24h * 10;  // one of a month, which a program renews
  facts.authority_ends = kThatNight + 24h * 20;
  EXPECT_THAT(problems(facts), IsEmpty());
}

TEST(Problems, StagingIsOneFromNineTenthsOfItsBudgetOn) {
  Situation facts = well();
  facts.staging_bytes = 899;
  EXPECT_THAT(problems(facts), IsEmpty());
  facts.staging_bytes = 900;
  EXPECT_THAT(problems(facts), only(Severity::kWarning, "900 of 1000 B", "#fluvialstagingnearbudget"));
}

TEST(Problems, ASilentMemberIsOneAndSoIsASiteThatNeverCounts) {
  Situation facts = well();
  facts.members[0].silent = true;
  EXPECT_THAT(problems(facts), only(Severity::kWarning, "hospital-a is connected and silent", "plan.md#"));
  facts.members[0].silent = false;
  round::Plan plan;
  EXPECT_FALSE(uncounted(plan, 4).has_value()) << "a few rounds show nothing";
  facts.members[0].uncounted = uncounted(plan, 5);
  ASSERT_TRUE(facts.members[0].uncounted.has_value());
  EXPECT_THAT(problems(facts), only(Severity::kWarning,
                                    "hospital-a works, and was in none of the last 5 rounds: what "
                                    "it makes is late each time, and waits in its residual",
                                    "plan.md#late"));
  EXPECT_THAT(problems(facts)[0].advice, HasSubstr("late = \"next\""));
  plan.late = "next";
  plan.staleness_max = 4;
  EXPECT_FALSE(uncounted(plan, 10).has_value()) << "of a slow one some rounds hold nothing";
  EXPECT_THAT(uncounted(plan, 11)->what, HasSubstr("more than staleness_max = 4 of them"));
  EXPECT_THAT(uncounted(plan, 11)->advice, HasSubstr("raise staleness_max (16 at most)"));
  plan.mode = "async";
  EXPECT_FALSE(uncounted(plan, 100).has_value()) << "windows wait for nobody";
}

}  // namespace
}  // namespace fluvial::coordinator
