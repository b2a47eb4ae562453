// Certificates that live for seconds and renew themselves; members that were away past the end of theirs; and what a
// restored backup has forgotten of them.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "core/identity/credentials.h"
#include "tests/integration/harness.h"

namespace fluvial::integration {
namespace {

using cli::json::value;
using testing::HasSubstr;

constexpr std::chrono::seconds kRenewalPatience{60};

class RenewalTest : public FederationTest {
 protected:
  // Sessions end soon after the certificate that they know, so a renewal that is not told shows.
  static cli::FederationShape living(int seconds, std::uint64_t sites, std::uint64_t aggregators) {
    cli::FederationShape shape{.sites = sites, .aggregators = aggregators};
    const std::vector<std::string> brief = {"--session-past-certificate-max-ms", "500"};
    for (const char* role : {"coordinator", "aggregator", "site"}) shape.arguments[role] = brief;
    shape.arguments["coordinator"].insert(shape.arguments["coordinator"].end(),
                                          {"--certificate-validity-s", std::to_string(seconds)});
    return shape;
  }
  identity::Certificate certificate_of(const std::string& name) const {
    const auto credentials = identity::load_credentials(folder_.file(name) + "/identity");
    EXPECT_TRUE(credentials.ok()) << credentials.error().message;
    return credentials->chain.front();
  }
  std::string serial_of(const std::string& name) const { return certificate_of(name).serial_hex(); }
  // Until its certificate is another one; that one's serial.
  std::string wait_renewed(const std::string& name, const std::string& before) const {
    std::string serial;
    const auto changed =
        cli::retry(kRenewalPatience, [&]() -> Result<bool> { return (serial = serial_of(name)) != before; });
    EXPECT_TRUE(changed.ok() && *changed) << name;
    return serial;
  }
  void wait_ended(const std::string& name, std::chrono::seconds since) const {
    const WallTime end = certificate_of(name).not_after() + since;
    const auto ended = cli::retry(kRenewalPatience, [&]() -> Result<bool> { return SystemClock().wall_now() > end; });
    EXPECT_TRUE(ended.ok() && *ended);
  }
  value node(const std::string& name) const {
    const value nodes = federation_->admin().get("/v1/nodes?all=1").value();
    const auto list = cli::array_member(nodes, "nodes");
    for (const value& each : list) {
      if (cli::text_member(each, "name") == name) return each;
    }
    return {};
  }
  void wait_node(const std::string& name, const std::function<bool(const value&)>& wanted) const {
    const auto came = cli::retry(kRenewalPatience, [&]() -> Result<bool> { return wanted(node(name)); });
    EXPECT_TRUE(came.ok() && *came) << name;
  }
  void wait_connected(const std::string& name) const {
    wait_node(name, [](const value& one) { return cli::bool_member(one, "connected"); });
  }
  // How often the text stands in a node's log.
  std::size_t times(const std::string& name, const std::string& text) const {
    const std::string log = log_of(name);
    std::size_t count = 0;
    for (std::size_t at = log.find(text); at != std::string::npos; at = log.find(text, at + 1)) ++count;
    return count;
  }
};

TEST_F(RenewalTest, TwoHundredRoundsGoThroughRenewalsAndNobodyNotices) {
  constexpr std::uint64_t kRounds = 200;
  constexpr std::uint64_t kStretch = 40;  // rounds between two renewals at least
  start(living(5, 3, 1));
  for (std::uint64_t i = 1; i <= 3; ++i) {
    std::map<std::string, std::string> awaited = {{fmt::format("site-{}", i), ""}};
    if (i == 1) awaited.emplace("aggregator-1", "");
    for (auto& [name, serial] : awaited) serial = serial_of(name);
    add_worker(i, [this, awaited, train = bench_train(i)](const local::Task& task, std::span<const float> base,
                                                          std::span<float> local) mutable {
      if (task.round.value() % kStretch == 0) {
        for (auto& [name, serial] : awaited) serial = wait_renewed(name, serial);
      }
      return train(task, base, local);
    });
  }
  const std::uint64_t run = start_run(plan(kRounds), 1'000);
  wait_state(run, "done");
  const auto rounds = committed(run);
  ASSERT_EQ(rounds.size(), kRounds);
  for (const value& round : rounds) {
    for (const char* site : {"site-1", "site-2", "site-3"}) {
      EXPECT_TRUE(names(round, "contributors", site)) << site << " in round " << cli::count_member(round, "round");
    }
  }
  for (const char* member : {"aggregator-1", "site-1", "site-2", "site-3"}) {
    EXPECT_GE(times(member, "certificate renewed"), kRounds / kStretch - 1) << member;
    EXPECT_EQ(times(member, "connected to parent"), 1U) << "no session ended for it, or " << member << " came anew";
    EXPECT_EQ(times(member, "the parent's certificate has ended"), 0U) << member;
  }
  EXPECT_GE(times("coordinator", "own certificate is renewed"), 2U);
  EXPECT_EQ(times("coordinator", "certificate has ended"), 0U);
}

TEST_F(RenewalTest, AMemberThatWasAwayPastItsEndComesBackByItself) {
  start(living(4, 1, 0));
  federation_->kill("site-1");
  const std::string before = serial_of("site-1");
  wait_ended("site-1", std::chrono::seconds(1));
  ASSERT_TRUE(federation_->restart("site-1").ok());
  wait_connected("site-1");
  EXPECT_NE(serial_of("site-1"), before);
  EXPECT_GE(times("site-1", "certificate renewed"), 1U);
}

TEST_F(RenewalTest, TooLongAfterItsEndAMemberIsToldThatItNeedsAToken) {
  cli::FederationShape shape = living(4, 1, 0);
  shape.arguments["coordinator"].insert(shape.arguments["coordinator"].end(), {"--renew-ended-max-s", "1"});
  start(std::move(shape));
  federation_->kill("site-1");
  wait_ended("site-1", std::chrono::seconds(3));
  ASSERT_TRUE(federation_->restart("site-1").ok());
  wait_log("site-1", "too long ago to be renewed");
  EXPECT_THAT(log_of("site-1"), HasSubstr("the member needs a token"));
  EXPECT_FALSE(cli::bool_member(node("site-1"), "connected"));
}

TEST_F(RenewalTest, ARevokedMemberDoesNotRenewAfterItsEnd) {
  start(living(4, 1, 0));
  federation_->kill("site-1");
  ASSERT_TRUE(federation_->admin().post("/v1/nodes/site-1/revoke").ok());
  wait_ended("site-1", std::chrono::seconds(1));
  ASSERT_TRUE(federation_->restart("site-1").ok());
  wait_log("site-1", "was revoked at");
  EXPECT_FALSE(cli::bool_member(node("site-1"), "connected"));
}

TEST_F(RenewalTest, KilledBetweenTheAnswerAndTheDiskItGoesOn) {
  start(living(4, 1, 0));
  for (std::size_t renewed = 1; renewed <= 4; ++renewed) {
    const std::size_t so_far = times("coordinator", "certificate renewed member=site-1");
    const auto granted = cli::retry(kRenewalPatience, [&]() -> Result<bool> {
      return times("coordinator", "certificate renewed member=site-1") > so_far;
    });
    ASSERT_TRUE(granted.ok() && *granted);
    federation_->kill("site-1");  // the journal has the certificate, the disk of the member perhaps not
    EXPECT_TRUE(identity::load_credentials(folder_.file("site-1") + "/identity").ok());
    ASSERT_TRUE(federation_->restart("site-1").ok());
    wait_connected("site-1");
  }
}

TEST_F(RenewalTest, AnOldFleetMovesOverByItself) {
  const std::string file = folder_.file("coordinator-of-0.2.toml");
  std::ofstream(file) << "certificate_days = 90\n";
  cli::FederationShape shape{.sites = 1, .aggregators = 1};
  shape.arguments["coordinator"] = {"--config", file};
  start(std::move(shape));
  const auto left = [this](const std::string& name) {
    return certificate_of(name).not_after() - SystemClock().wall_now();
  };
  for (const char* member : {"aggregator-1", "site-1"}) EXPECT_GT(left(member), std::chrono::days(89)) << member;
  federation_->kill("coordinator");
  std::ofstream(file) << "certificate_validity_s = 86400\n";
  ASSERT_TRUE(federation_->restart("coordinator").ok());
  federation_->kill("site-1");  // the session to its aggregator goes on otherwise, and it hears nothing of it
  ASSERT_TRUE(federation_->restart("site-1").ok());
  for (const char* member : {"aggregator-1", "site-1"}) {
    const auto moved =
        cli::retry(kRenewalPatience, [&]() -> Result<bool> { return left(member) <= std::chrono::days(1); });
    EXPECT_TRUE(moved.ok() && *moved) << member;
  }
}

TEST_F(RenewalTest, ARestoredCoordinatorAdoptsWhatItHasForgottenAndHearsWhomItRefused) {
  start(2, 1);
  federation_->kill("coordinator");
  copy_folder(folder_.file("coordinator"), folder_.file("backup"));
  ASSERT_TRUE(federation_->restart("coordinator").ok());
  wait_connected("aggregator-1");

  // After the backup one site enrols with another key, and one is shut out.
  federation_->kill("site-2");
  std::filesystem::remove_all(folder_.file("site-2") + "/identity");
  const auto token = federation_->admin().post("/v1/tokens", {{"role", "site"}, {"name", "site-2"}, {"ttl_s", 600}});
  ASSERT_TRUE(token.ok()) << token.error().message;
  const CommandRun enrolled =
      run_fluvial(*supervisor_, folder_,
                  {"enroll", "--token", cli::text_member(*token, "token"), "--data-dir", folder_.file("site-2")});
  ASSERT_EQ(enrolled.exit_status, 0) << enrolled.output;
  ASSERT_TRUE(federation_->restart("site-2").ok());
  wait_connected("site-2");
  ASSERT_TRUE(federation_->admin().post("/v1/nodes/site-1/revoke").ok());
  wait_log("aggregator-1", "a member is refused from now on");

  federation_->kill("coordinator");
  std::filesystem::rename(folder_.file("coordinator"), folder_.file("lost"));
  copy_folder(folder_.file("backup"), folder_.file("coordinator"));
  const CommandRun marked =
      run_fluvial(*supervisor_, folder_, {"coordinator", "--data-dir", folder_.file("coordinator"), "--restored"});
  ASSERT_EQ(marked.exit_status, 0) << marked.output;
  EXPECT_THAT(marked.output, HasSubstr("repeat the revocations"));
  ASSERT_TRUE(federation_->restart("coordinator").ok());

  wait_log("coordinator", "still knows whom the history before refused");
  wait_node("site-1", [](const value& one) { return cli::bool_member(one, "revoked"); });
  wait_log("coordinator", "taken over, with its key");
  wait_connected("site-2");
  EXPECT_FALSE(cli::bool_member(node("site-1"), "connected"));
}

}  // namespace
}  // namespace fluvial::integration
