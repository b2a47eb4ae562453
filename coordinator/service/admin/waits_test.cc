// What the admin API says of runs that wait, of whom they wait for, and of what is wrong.
#include "coordinator/service/admin/waits.h"

#include <gmock/gmock.h>

#include <boost/json.hpp>
#include <span>

#include "coordinator/service/admin/test_api.h"
#include "core/digest/sha256.h"

namespace fluvial::coordinator::admin {
namespace {

namespace json = boost::json;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

round::Schema small_schema() { return *round::Schema::make({{"w", round::DType::kF32, {4}}}); }

Buffer small_model() {
  const std::vector<float> values(4, 1.0F);
  return Buffer::copy_of(std::as_bytes(std::span(values)));
}

class WaitsTest : public ApiTest {
 protected:
  WaitsTest() : ApiTest({add_status, add_nodes, add_runs, add_rounds}), watcher_(feed_.watch()) {}

  // A site that holds a lease under the coordinator.
  NodeId enrol(const std::string& name) {
    const Digest secret = sha256(as_byte_span(name));
    EXPECT_TRUE(journal_->add_token({name, secret, Role::kSite, name, "eu", 100, WallTime::max(), {}}).ok());
    store::NodeRow row;
    row.role = Role::kSite;
    row.name = name;
    row.region = "eu";
    row.weight_max = 100;
    const NodeId id = journal_->redeem_token(secret, row, WallTime()).value().id;
    EXPECT_TRUE(journal_->grant(id, NodeId(0)).ok());
    return id;
  }
  void join(NodeId site) {
    test_.on_strand([&] {
      tree::Child child;
      child.node = site;
      child.name = root_->registry().book().name_of(site);
      child.lease = root_->registry().book().lease_of(site)->epoch;
      root_->child_joined(child);
    });
  }
  RunId start(const std::function<void(round::Plan&)>& change = {}) {
    store::RunRow row;
    row.plan.name = "digits";
    row.plan.participants_min = 2;
    row.plan.quorum = 2;
    if (change) change(row.plan);
    row.schema = small_schema();
    row.initial_model = store::model_digest(small_model().span());
    return test_.run(root_->runs().start([row] { return Result<NewRun>(NewRun{row, small_model()}); })).value();
  }
  // Two sites, and a run of them.
  void run_of_two(const std::function<void(round::Plan&)>& change = {}) {
    a_ = enrol("hospital-a");
    b_ = enrol("hospital-b");
    begin();
    join(a_);
    join(b_);
    start(change);
  }
  void wait_for(const std::string& event) {
    for (bool found = false; !found;) {
      test_.run(watcher_->wait());
      test_.on_strand([&] {
        for (const FeedLine& line : watcher_->lines) found = found || line.json.find(event) != std::string::npos;
        watcher_->lines.clear();
      });
    }
  }

  json::object get(const std::string& path) {
    const net::HttpResponse response = ask("GET", path);
    EXPECT_EQ(response.status, 200) << response.body;
    return json::parse(response.body).as_object();
  }
  // The members of a list that are of this node.
  static json::object of(const json::value& list, const std::string& key, const std::string& node) {
    for (const json::value& one : list.as_array()) {
      if (text(one.at(key)) == node) return one.as_object();
    }
    ADD_FAILURE() << node << " is not in " << json::serialize(list);
    return {};
  }
  static std::string text(const json::value& value) { return std::string(value.as_string()); }

  std::shared_ptr<Watcher> watcher_;
  NodeId a_, b_;
};

TEST_F(WaitsTest, WithoutRunAndSitesTheStatusSaysWhatIsMissing) {
  begin();
  const json::object status = get("/v1/status");
  EXPECT_TRUE(status.at("waits").as_array().empty());
  EXPECT_TRUE(status.at("runs").as_array().empty());
  ASSERT_EQ(status.at("problems").as_array().size(), 1U);
  const json::value& problem = status.at("problems").as_array()[0];
  EXPECT_EQ(problem.at("what"), "no site is enrolled");
  EXPECT_THAT(text(problem.at("do")), HasSubstr("fluvial token create"));
  EXPECT_EQ(problem.at("runbook"), "docs/operations/enrol.md");
  EXPECT_EQ(ask("GET", "/v1/rounds/open?run=1").status, 404) << "there is no run";
}

TEST_F(WaitsTest, ARunThatCannotOpenARoundNamesThoseWhoAreAway) {
  const NodeId a = enrol("hospital-a");
  enrol("hospital-b");
  begin();
  join(a);
  start();
  const json::object status = get("/v1/status");
  const json::array& waits = status.at("waits").as_array();
  ASSERT_EQ(waits.size(), 2U) << json::serialize(waits);
  EXPECT_THAT(text(waits[0].at("reason")), StartsWith("1 connected, round 1 needs 2"))
      << "what is missing is said by `what`";
  EXPECT_EQ(waits[1].at("node"), "hospital-b");
  EXPECT_THAT(text(waits[1].at("reason")), StartsWith("not connected since the coordinator started"));
  EXPECT_EQ(waits[1].at("severity"), "warning");
  EXPECT_TRUE(waits[1].at("since").is_string());
  EXPECT_EQ(status.at("problems").as_array()[0].at("severity"), "error") << "the worst is the first";
  EXPECT_THAT(text(status.at("problems").as_array()[0].at("what")), HasSubstr("run 1 opens no round"));
  EXPECT_EQ(of(status.at("problems"), "node", "hospital-b").at("severity"), "warning");
  EXPECT_EQ(status.at("sites_enrolled"), 2);
  EXPECT_EQ(status.at("runs").as_array().size(), 1U);
  EXPECT_EQ(get("/v1/runs/1").at("waits").as_array().size(), 2U);
}

TEST_F(WaitsTest, AnOpenRoundSaysOfEachSiteWhereItIs) {
  run_of_two();
  wait_for("\"opened\"");
  json::object open = get("/v1/rounds/open");
  EXPECT_EQ(open.at("round"), 1);
  EXPECT_EQ(open.at("quorum"), 2);
  EXPECT_EQ(of(open.at("sites"), "name", "hospital-a").at("state"), "awaited");
  EXPECT_TRUE(of(open.at("sites"), "name", "hospital-a").at("doing").is_null()) << "it has not reported";
  test_.on_strand([&] { root_->child_left(b_); });
  open = get("/v1/rounds/open");
  const json::object away = of(open.at("sites"), "name", "hospital-b");
  EXPECT_EQ(away.at("state"), "away");
  EXPECT_THAT(text(away.at("reason")), StartsWith("not connected since "));
  EXPECT_THAT(text(away.at("reason")), Not(HasSubstr("started")));
  const json::object status = get("/v1/status");
  EXPECT_EQ(of(status.at("waits"), "node", "hospital-b").at("severity"), "warning");
  EXPECT_EQ(of(status.at("waits"), "node", "hospital-a").at("what"), "its update of round 1");
  EXPECT_THAT(text(status.at("problems").as_array()[0].at("what")), HasSubstr("cannot have its quorum"));
}

TEST_F(WaitsTest, AnOpenWindowHasAGoalAndWaitsForThoseAloneWhoNeedSomebody) {
  enrol("hospital-c");
  run_of_two([](round::Plan& plan) {
    round::set_mode("async", &plan);
    plan.async_goal = 1;
    plan.quorum = 1;
    plan.soft_deadline = std::chrono::milliseconds(1);
  });
  wait_for("\"opened\"");
  json::object status = get("/v1/status");
  const json::object& run = status.at("run").as_object();
  EXPECT_EQ(run.at("mode"), "async");
  EXPECT_EQ(run.at("open").at("mode"), "async");
  EXPECT_EQ(run.at("open").at("goal"), 1);
  EXPECT_TRUE(status.at("waits").as_array().empty()) << json::serialize(status.at("waits"));
  EXPECT_EQ(get("/v1/rounds/open").at("goal"), 1);
  EXPECT_EQ(get("/v1/runs").at("runs").as_array()[0].at("mode"), "async");
  test_.on_strand([&] {
    const json::object line = json::parse(waits_line(*context_, root_->runs().active()->machine)).as_object();
    EXPECT_EQ(line.at("open").at("goal"), 1);
    root_->child_left(b_);
  });
  const json::object away = of(get("/v1/status").at("waits"), "node", "hospital-b");
  EXPECT_EQ(away.at("severity"), "warning");
  EXPECT_EQ(away.at("what"), "an update of it");
  const json::array shares = get("/v1/rounds").at("shares").as_array();
  ASSERT_EQ(shares.size(), 2U) << "who takes part and never counted is told, too";
  EXPECT_EQ(shares[1].at("name"), "hospital-b");
  EXPECT_EQ(shares[1].at("rounds"), 0);
}

TEST_F(WaitsTest, ARoundThatIsNoWindowHasNoGoal) {
  run_of_two();
  wait_for("\"opened\"");
  const json::object open = get("/v1/status").at("run").at("open").as_object();
  EXPECT_EQ(open.at("mode"), "rounds");
  EXPECT_FALSE(open.contains("goal"));
  EXPECT_TRUE(get("/v1/rounds").at("shares").as_array().empty());
}

TEST_F(WaitsTest, ARefusedAndADecliningSiteAreToldApart) {
  run_of_two();
  wait_for("\"opened\"");
  test_.on_strand([&] {
    root_->refused(RunId(1), RoundId(1), {}, {a_, {Code::kInvalidArgument, "NaN in tensor 'w'"}});
    root_->declined(b_, {RunId(1), RoundId(1), AttemptId(1), {b_, {Code::kUnavailable, "one of two workers is gone"}}});
  });
  const json::object open = get("/v1/rounds/open");
  EXPECT_EQ(of(open.at("sites"), "name", "hospital-a").at("state"), "refused");
  EXPECT_EQ(of(open.at("sites"), "name", "hospital-a").at("reason"), "refused: NaN in tensor 'w'");
  EXPECT_EQ(of(open.at("sites"), "name", "hospital-b").at("state"), "declined");
  const json::object status = get("/v1/status");
  ASSERT_EQ(status.at("waits").as_array().size(), 1U);
  EXPECT_EQ(status.at("waits").as_array()[0].at("what"), "the deadline of the attempt") << "nobody else will be in";
}

TEST_F(WaitsTest, APauseForWantOfAQuorumSaysWhyEachWasNotIn) {
  run_of_two([](round::Plan& plan) {
    plan.soft_deadline = std::chrono::milliseconds(1);
    plan.hard_deadline = std::chrono::milliseconds(2);
    plan.attempts_max = 1;
  });
  wait_for("\"paused\"");
  const store::RunRow row = journal_->run(RunId(1)).value();
  EXPECT_EQ(row.status, store::RunStatus::kPaused);
  EXPECT_THAT(row.reason, StartsWith("round 1: no quorum after 1 attempt: 0 of 2 needed; hospital-a: connected, "));
  EXPECT_THAT(row.reason, HasSubstr("; hospital-b: connected, "));
  const json::object status = get("/v1/status");
  EXPECT_EQ(text(status.at("run").at("reason")), row.reason);
  EXPECT_EQ(status.at("waits").as_array()[0].at("what"), "a person");
  EXPECT_THAT(text(status.at("problems").as_array()[0].at("what")),
              StartsWith("run 1 paused itself: round 1: no quorum"));
}

TEST_F(WaitsTest, WhatAPersonPausedIsNoProblem) {
  begin();
  start();
  ASSERT_TRUE(test_.run(root_->runs().pause(RunId(1), std::string(kByPerson))).ok());
  const json::object status = get("/v1/status");
  EXPECT_EQ(status.at("waits").as_array()[0].at("what"), "a person");
  for (const json::value& problem : status.at("problems").as_array()) {
    EXPECT_THAT(text(problem.at("what")), Not(HasSubstr("run 1")));
  }
}

TEST_F(WaitsTest, ANodeSaysSinceWhenItIsHereAndWhichParentItShouldHave) {
  const NodeId a = enrol("hospital-a");
  begin();
  join(a);
  const json::object node = of(get("/v1/nodes").at("nodes"), "name", "hospital-a");
  EXPECT_TRUE(node.at("connected").as_bool());
  EXPECT_TRUE(node.at("since").is_string());
  EXPECT_EQ(node.at("parent_wished"), "coordinator");
  for (const char* unheard : {"workers", "doing", "progress", "certificate_ends_at"}) {
    EXPECT_TRUE(node.at(unheard).is_null()) << unheard;
  }
}

TEST_F(WaitsTest, WhatANodeReportsIsSaidUntilItGoesAway) {
  run_of_two();
  wait_for("\"opened\"");
  test_.on_strand([&] {
    round::NodeReport report;
    report.node = a_;
    report.doing = Doing::kSending;
    report.doing_for = std::chrono::seconds(10);
    report.workers = 1;
    report.done_bytes = 40 << 20;
    report.total_bytes = 400 << 20;
    report.heard = runtime_.clock.now();
    root_->reported(a_, report);
    report.node = b_;
    report.doing = Doing::kTraining;
    report.workers = 0;
    root_->reported(b_, report);
  });
  const json::object sending = of(get("/v1/rounds/open").at("sites"), "name", "hospital-a");
  EXPECT_THAT(text(sending.at("reason")), StartsWith("sending 40 of 400 MiB, "));
  EXPECT_EQ(sending.at("doing"), "sending");
  EXPECT_EQ(sending.at("progress").at("done_bytes"), 40 << 20);
  EXPECT_TRUE(sending.at("progress").at("eta_s").is_number());
  const json::object status = get("/v1/status");
  const json::array& tiers = status.at("run").at("open").at("tiers").as_array();
  ASSERT_EQ(tiers.size(), 1U) << json::serialize(tiers);
  EXPECT_EQ(tiers[0].at("child"), "site");
  EXPECT_EQ(tiers[0].at("parent"), "coordinator");
  EXPECT_EQ(tiers[0].at("doing"), "sending");
  EXPECT_EQ(tiers[0].at("nodes"), 1);
  EXPECT_EQ(tiers[0].at("total_bytes"), 400 << 20);
  EXPECT_TRUE(tiers[0].at("eta_s").is_number());
  EXPECT_EQ(get("/v1/rounds/open").at("tiers").as_array().size(), 1U);
  EXPECT_EQ(of(status.at("waits"), "node", "hospital-a").at("severity"), "info") << "that passes by itself";
  EXPECT_EQ(of(status.at("waits"), "node", "hospital-b").at("reason"), "no worker attached");
  EXPECT_EQ(of(status.at("problems"), "node", "hospital-b").at("what"), "hospital-b has no worker attached");
  EXPECT_EQ(of(get("/v1/nodes").at("nodes"), "name", "hospital-b").at("workers"), 0);
  test_.on_strand([&] { root_->child_left(a_); });
  join(a_);
  EXPECT_TRUE(of(get("/v1/nodes").at("nodes"), "name", "hospital-a").at("doing").is_null()) << "it has not said yet";
}

TEST_F(WaitsTest, ManyAreCountedAndAFewNamed) {
  for (int i = 0; i < 120; ++i) enrol("site-" + std::to_string(i));
  begin();
  start();
  const json::object status = get("/v1/status");
  EXPECT_EQ(status.at("waits").as_array().size(), kToldMax + 1);
  EXPECT_EQ(status.at("waits").as_array().back().at("reason"), "and 21 more");
  EXPECT_EQ(status.at("problems").as_array().size(), kToldMax + 1);
}

}  // namespace
}  // namespace fluvial::coordinator::admin
