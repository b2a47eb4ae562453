#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cli/doctor/judge_test_support.h"

namespace fluvial::cli::doctor {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

PortFacts port(Status bound, std::string holder = "") {
  return {.setting = "listen", .address = "0.0.0.0:7400", .bound = std::move(bound), .holder = std::move(holder)};
}
Findings judge_one(const PortFacts& port, bool answers) {
  return judge(std::vector{port}, ProcessFacts{.answers = answers});
}

TEST(DoctorPorts, FreeOrOurOwn) {
  const Error taken{Code::kAlreadyExists, "Address already in use"};
  EXPECT_THAT(judge_one(port({}), false), FindsNothing());
  EXPECT_THAT(judge_one(port(taken), true), FindsNothing());
  EXPECT_THAT(text_of(judge_one(port(taken, "fluvial (pid 7)"), true)), HasSubstr("held by this node's process"));
}

TEST(DoctorPorts, SomebodyElses) {
  const Error taken{Code::kAlreadyExists, "Address already in use"};
  EXPECT_THAT(judge_one(port(taken, "nginx (pid 7)"), false), Finds(kError, "nginx (pid 7) has it", "another port"));
  EXPECT_THAT(judge_one(port(taken, "nginx (pid 7)"), true), Finds(kError, "nginx (pid 7) has it", "another port"));
  EXPECT_THAT(judge_one(port(taken), false), Finds(kError, "another process has it", "stop that one"));
}

TEST(DoctorPorts, ThatCannotBeHad) {
  EXPECT_THAT(judge_one(port(Error{Code::kPermissionDenied, "Permission denied"}), false),
              Finds(kError, "Permission denied", "CAP_NET_BIND_SERVICE"));
  EXPECT_THAT(judge_one(port(Error{Code::kUnavailable, "Cannot assign requested address"}), false),
              Finds(kError, "Cannot assign", "an address of this machine"));
}

VisitFacts visited(std::optional<Duration> offset = {}) {
  return {.address = "fl.example.org:7400",
          .reached = {},
          .peer = "coordinator 1 (coordinator)",
          .handshake = milliseconds(12),
          .round_trip = milliseconds(4),
          .wall_offset = offset};
}
VisitFacts failed(std::string why) {
  return {.address = "fl.example.org:7400", .reached = Error{Code::kUnavailable, "fl.example.org:7400: " + why}};
}
Findings judge_coordinator(VisitFacts visit) { return judge(ParentFacts{.coordinator = std::move(visit)}, {}); }

TEST(DoctorParent, Reached) {
  EXPECT_THAT(judge_coordinator(visited()), FindsNothing());
  VisitFacts proxied = visited();
  proxied.proxy = "proxy:3128";
  EXPECT_THAT(text_of(judge_coordinator(proxied)), HasSubstr("by the proxy proxy:3128"));
  proxied.round_trip = seconds(3);
  EXPECT_THAT(judge_coordinator(proxied), Finds(kWarning, "round trip 3.00 s", "full"));
}

TEST(DoctorParent, EachWayToFailHasItsAdvice) {
  const std::pair<const char*, const char*> ways[] = {
      {"cannot resolve the name: Host not found", "DNS"},
      {"cannot connect: Connection refused", "is that node running"},
      {"cannot connect: no answer in time", "firewall"},
      {"the peer says that our certificate has expired (or its clock is wrong)", "renews itself"},
      {"the certificate for coordinator 1 (coordinator) is refused: certificate is not yet valid", "time service"},
      {"site 7 (hospital-a) is on the deny list", "shut out"},
      {"the member has enrolled anew since", "copy of this folder"},
      {"aggregator 3 (eu) may not act as coordinator: its certificate is for the role aggregator", "another node's"},
      {"the peer does not speak TLS: is it the right port?", "7401"},
      {"the child (fluvial 0.2.0) speaks protocol 2, the parent 4: update the child first", "older of the two"},
      {"the peer does not know the authority of our certificate: it belongs to another federation", "fluvial enroll"},
      {"no TLS handshake in time", "MTU"},
      {"something new", "troubleshooting"}};
  for (const auto& [why, advice] : ways) EXPECT_THAT(judge_coordinator(failed(why)), Finds(kError, why, advice));
  EXPECT_THAT(judge_coordinator(failed("proxy squid:3128 (for fl:7400): 403 Forbidden")),
              Finds(kError, "403 Forbidden", "no_proxy"));
}

TEST(DoctorParent, ClocksApart) {
  EXPECT_THAT(judge_coordinator(visited(milliseconds(800))), FindsNothing());
  EXPECT_THAT(judge_coordinator(visited(seconds(90))),
              Finds(kWarning, "1 min 30 s behind that of the coordinator", "chrony"));
  EXPECT_THAT(judge_coordinator(visited(-seconds(7200))),
              Finds(kError, "2 h 00 min ahead of that of the coordinator", "chrony"));
}

TEST(DoctorParent, TheAdvertisedAddressMayBeReachableFromOutsideAlone) {
  ParentFacts facts{.coordinator = visited(), .parent = visited(), .advertised = visited()};
  EXPECT_THAT(judge(facts, {}), FindsNothing());
  facts.advertised = failed("cannot connect: no answer in time");
  EXPECT_THAT(judge(facts, {}), Finds(kWarning, "this node's advertised address", "advertise"));
}

TEST(DoctorParent, AVisitIsLetInWhereTheProcessIsNot) {
  const ParentFacts facts{.coordinator = visited()};
  EXPECT_THAT(judge(facts, {.answers = true}), Finds(kWarning, "has no parent", "older certificate: restart it"));
  EXPECT_THAT(judge(facts, {.answers = true, .connected = true}), FindsNothing());
  EXPECT_THAT(judge(facts, {.answers = false}), FindsNothing());
  const ParentFacts shut_out{.coordinator = failed("is on the deny list")};
  EXPECT_THAT(text_of(judge(shut_out, {.answers = true})), testing::Not(HasSubstr("restart it")));
}

TEST(DoctorAddress, OfACoordinator) {
  AdvertisedFacts facts{.members = "fl:7400", .enrolment = "fl:7401", .members_reached = {}, .enrolment_reached = {}};
  EXPECT_THAT(judge(facts), FindsNothing());
  facts.members_reached = Error{Code::kUnavailable, "cannot connect: Connection refused"};
  EXPECT_THAT(judge(facts), Finds(kWarning, "the members' port at fl:7400: not reached", "public_host"));
}

// Of an aggregator that is connected, and answers as itself where a test says nothing else.
WayBackFacts::Aggregator aggregator(const char* name, Status reached = {}) {
  WayBackFacts::Aggregator one{
      .name = name, .connected = true, .expected = fmt::format("aggregator 3 ({})", name), .tried = true};
  one.visit.address = fmt::format("{}.example.org:7400", name);
  one.visit.reached = std::move(reached);
  if (one.visit.reached.ok()) one.visit.peer = one.expected;
  return one;
}

TEST(DoctorWayBack, AllAnswerAsThemselves) {
  EXPECT_THAT(judge(WayBackFacts{}), ::testing::IsEmpty()) << "a federation without aggregators";
  const WayBackFacts facts{.aggregators = {aggregator("eu"), aggregator("us")}};
  EXPECT_THAT(judge(facts), FindsNothing());
  EXPECT_THAT(text_of(judge(facts)), HasSubstr("2 of 2 aggregators answer"));
}

TEST(DoctorWayBack, OneThatChildrenDoNotReach) {
  const Error silent{Code::kUnavailable, "us.example.org:7400: cannot connect: no answer in time"};
  WayBackFacts facts{.aggregators = {aggregator("eu"), aggregator("us", silent)}};
  EXPECT_THAT(judge(facts), Finds(kWarning, "aggregator us at us.example.org:7400: not reached", "firewall"));
  EXPECT_THAT(text_of(judge(facts)), HasSubstr("1 of 2 aggregators answer"));
  facts.aggregators[1].connected = false;
  EXPECT_THAT(judge(facts), Finds(kWarning, "nor is it connected", "is down"));
}

TEST(DoctorWayBack, SomebodyElseAnswers) {
  WayBackFacts facts{.aggregators = {aggregator("eu")}};
  facts.aggregators[0].visit.peer = "aggregator 4 (us)";
  EXPECT_THAT(judge(facts), Finds(kError, "aggregator 4 (us) answers there", "`advertise` of eu"));
  facts.aggregators = {aggregator("eu", Error{Code::kUnauthenticated,
                                              "eu.example.org:7400: the certificate for "
                                              "aggregator 3 (eu) is refused: unknown issuer"})};
  EXPECT_THAT(judge(facts), Finds(kError, "unknown issuer", "of this federation"));
  facts.in_rollover = true;
  EXPECT_THAT(judge(facts), Finds(kWarning, "unknown issuer", "fluvial authority show"));
  facts.aggregators = {
      aggregator("eu", Error{Code::kUnauthenticated, "eu.example.org:7400: the peer does not speak TLS"})};
  EXPECT_THAT(judge(facts), Finds(kError, "does not speak TLS", "something else"));
}

TEST(DoctorWayBack, WithoutTheTimeOrTheList) {
  WayBackFacts facts{.aggregators = {aggregator("eu"), aggregator("us")}};
  facts.aggregators[1].tried = false;
  EXPECT_THAT(judge(facts), Finds(kWarning, "1 of 2 aggregators were not tried", "ask again"));
  facts = {.listed = Error{Code::kUnavailable, "admin.sock: no answer"}};
  EXPECT_THAT(judge(facts), Finds(kWarning, "admin.sock: no answer", "log"));
}

TEST(DoctorEnrolment, ByWhatTheTokenNames) {
  EXPECT_THAT(judge(EnrolmentFacts{.address = "fl:7401", .reached = {}}), FindsNothing());
  EXPECT_THAT(
      judge(EnrolmentFacts{.address = "fl:7401",
                           .reached = Error{Code::kUnauthenticated, "fl:7401: wrong authority: the server shows ..."}}),
      Finds(kError, "wrong authority", "pins"));
}

}  // namespace
}  // namespace fluvial::cli::doctor
