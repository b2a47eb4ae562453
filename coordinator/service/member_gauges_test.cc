// What a scrape says of the federation's members.
#include "coordinator/service/member_gauges.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "core/digest/sha256.h"
#include "core/telemetry/declared.h"
#include "core/tree/test_runtime.h"
#include "core/tree/test_support.h"

namespace fluvial::coordinator {
namespace {

using testing::HasSubstr;
using testing::Not;

class MemberGaugesTest : public testing::Test {
 protected:
  // As the enrolment does it.
  NodeId enrol(Role role, const std::string& name) {
    const Digest secret = sha256(as_byte_span(name));
    const WallTime now = runtime_.clock.wall_now();
    const store::TokenRow token{name, secret, role, name, "eu", 100, now + std::chrono::hours(1)};
    EXPECT_TRUE(journal_->add_token(token).ok());
    const store::NodeRow node{NodeId(), role, name, "eu", 100, "serial", now, "", {}, {}, ""};
    const Result<store::NodeRow> row = journal_->redeem_token(secret, node, now);
    EXPECT_TRUE(row.ok()) << row.error().message;
    registry_.enrolled(*row);
    return row->id;
  }
  void connect(NodeId node, Role role, const std::string& name) {
    v1::LeaseRequest request;
    if (role == Role::kAggregator) request.set_advertise("192.0.2.1:7410");
    const Result<LeaseAnswer> lease = test_.run(registry_.lease({role, node, name, "serial", {}}, request));
    ASSERT_TRUE(lease.ok()) << lease.error().message;
    tree::Child child;
    child.node = node;
    child.role = role;
    child.lease = lease->epoch;
    child.incarnation = Incarnation(1);
    registry_.child_joined(child);
  }
  std::string scrape() {
    runtime_.metrics.measure();
    return runtime_.metrics.render();
  }
  double value(const char* name, const telemetry::Labels& labels = {}) {
    runtime_.metrics.measure();
    return runtime_.metrics.gauge(name, labels).value();
  }

  tree::TestRuntime test_{Role::kCoordinator};
  tree::Runtime& runtime_ = test_.get();
  std::unique_ptr<store::CoordinatorJournal> journal_ =
      store::CoordinatorJournal::open(test_.files(), "/journal.sqlite").value();
  std::shared_ptr<identity::DenyList> deny_ = std::make_shared<identity::DenyList>();
  Registry registry_{runtime_, *journal_, deny_, FailoverSettings{}};
  tree::FakeOwner owner_;
  tree::Hub hub_{runtime_, owner_, {}, deny_};
  RollCall roll_call_{registry_, runtime_.clock};
  MemberGauges gauges_{runtime_, registry_, hub_, roll_call_};
};

TEST_F(MemberGaugesTest, WhoIsEnrolledAndWhoIsHere) {
  enrol(Role::kSite, "hospital-a");
  const NodeId b = enrol(Role::kSite, "hospital-b");
  EXPECT_EQ(value("sites_available"), 0);
  connect(b, Role::kSite, "hospital-b");
  const std::string text = scrape();
  EXPECT_THAT(text, HasSubstr("fluvial_coordinator_member_connected{member=\"hospital-a\",role=\"site\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("fluvial_coordinator_member_connected{member=\"hospital-b\",role=\"site\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("fluvial_coordinator_members_enrolled{role=\"site\"} 2\n"));
  EXPECT_EQ(value("sites_available"), 1);
  ASSERT_TRUE(test_.run(registry_.revoke("hospital-a")).ok());
  EXPECT_THAT(scrape(), Not(HasSubstr("hospital-a"))) << "an alert for it must end";
  EXPECT_EQ(value("members_enrolled", {{"role", "site"}}), 1);
}

TEST_F(MemberGaugesTest, WhoIsInQuarantineUntilItIsCleared) {
  const NodeId a = enrol(Role::kSite, "hospital-a");
  ASSERT_TRUE(test_.run(registry_.quarantine(a, "two contents")).ok());
  EXPECT_THAT(scrape(), HasSubstr("fluvial_coordinator_site_quarantined{site=\"hospital-a\"} 1\n"));
  ASSERT_TRUE(test_.run(registry_.clear("hospital-a")).ok());
  EXPECT_THAT(scrape(), Not(HasSubstr("site_quarantined{site")));
}

TEST_F(MemberGaugesTest, WhoGoesPastItsAggregator) {
  enrol(Role::kAggregator, "paris");
  const NodeId a = enrol(Role::kSite, "hospital-a");
  connect(a, Role::kSite, "hospital-a");
  EXPECT_EQ(value("members_past_aggregator"), 1) << "paris was never here";
  EXPECT_THAT(scrape(), HasSubstr("member_past_aggregator{aggregator=\"paris\",member=\"hospital-a\"} 1\n"));
  EXPECT_THAT(scrape(), HasSubstr("member_connected{member=\"paris\",role=\"aggregator\"} 0\n"));
  registry_.child_left(a);
  EXPECT_EQ(value("members_past_aggregator"), 0);
  EXPECT_THAT(scrape(), Not(HasSubstr("member_past_aggregator{")));
}

TEST_F(MemberGaugesTest, WhatMembersReport) {
  const NodeId a = enrol(Role::kSite, "hospital-a");
  const NodeId b = enrol(Role::kSite, "hospital-b");
  connect(a, Role::kSite, "hospital-a");
  connect(b, Role::kSite, "hospital-b");
  EXPECT_EQ(value("sites_without_workers"), 0) << "they are of a version that says nothing";
  roll_call_.on_activity([a](NodeId node) {
    Activity activity;
    activity.workers = node == a ? 0 : 2;
    if (node == a) activity.wall_offset = std::chrono::milliseconds(-1500);
    if (node == a) activity.certificate_ends = WallTime(std::chrono::seconds(2'000'000'000));
    return std::optional(activity);
  });
  EXPECT_EQ(value("sites_without_workers"), 1);
  const std::string text = scrape();
  EXPECT_THAT(text, HasSubstr("fluvial_coordinator_clock_offset_seconds{member=\"hospital-a\"} -1.5\n"));
  EXPECT_THAT(text,
              HasSubstr("member_certificate_expiry_timestamp_seconds{member=\"hospital-a\",role=\"site\"} 2000000000"));
  EXPECT_THAT(text, Not(HasSubstr("clock_offset_seconds{member=\"hospital-b\"}")));
}

TEST(Phase, IsWhatTheSiteReportedUnlessItIsAway) {
  Activity activity;
  activity.doing = Doing::kTraining;
  EXPECT_EQ(phase_of(true, activity), "no_worker") << "it waits for one";
  activity.workers = 1;
  EXPECT_EQ(phase_of(true, activity), "training");
  EXPECT_EQ(phase_of(false, activity), "away");
  EXPECT_EQ(phase_of(true, std::nullopt), "unknown");
  const telemetry::Label& declared = telemetry::find_declared("late_sites_total", Role::kCoordinator)->labels.front();
  for (const Doing doing : round::kDoings) {
    activity.doing = doing;
    const std::string_view phase = phase_of(true, activity);
    EXPECT_TRUE(std::ranges::any_of(declared.values, [&](const auto& value) { return value.text == phase; })) << phase;
  }
}

TEST_F(MemberGaugesTest, NamesAreServedForSoManyAndTheOthersCounted) {
  for (int i = 0; i < 300; ++i) enrol(Role::kSite, "site-" + std::to_string(i));
  const std::string text = scrape();
  std::size_t series = 0;
  for (auto at = text.find("member_connected{"); at != text.npos; at = text.find("member_connected{", at + 1)) ++series;
  EXPECT_EQ(series, telemetry::NamedGauges::kSeriesMax);
  EXPECT_EQ(value("members_enrolled", {{"role", "site"}}), 300);
}

}  // namespace
}  // namespace fluvial::coordinator
