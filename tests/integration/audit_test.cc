// The audit log of a coordinator that works, and the users of its machine that may ask it.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <thread>

#include "core/identity/credentials.h"
#include "core/net/http.h"
#include "tests/integration/harness.h"

namespace fluvial::integration {
namespace {

using cli::json::object;
using cli::json::value;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class AuditTest : public FederationTest {
 protected:
  CommandRun fluvial(std::vector<std::string> arguments) {
    return run_fluvial(*supervisor_, folder_, std::move(arguments));
  }
  std::string data_dir() const { return folder_.file("coordinator"); }
  std::string new_token(const std::string& name) {
    const auto made = federation_->admin().post("/v1/tokens", object{{"role", "site"}, {"name", name}});
    EXPECT_TRUE(made.ok()) << made.error().message;
    token_id_ = cli::text_member(*made, "id");
    return cli::text_member(*made, "token");
  }
  CommandRun enroll(const std::string& token, const std::string& folder) {
    const std::string file = folder_.file(folder + ".token");
    std::ofstream(file) << token << "\n";
    EXPECT_EQ(::chmod(file.c_str(), 0600), 0);
    return fluvial({"enroll", "--token-file", file, "--data-dir", folder_.file(folder)});
  }
  // What `fluvial audit show` shows, with these arguments.
  std::vector<value> show(std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {"audit", "show", "--json", "--last", "0", "--data-dir", data_dir()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const CommandRun shown = fluvial(arguments);
    EXPECT_EQ(shown.exit_status, 0) << shown.output;
    const auto answer = cli::parse_json(shown.output, "the log");
    EXPECT_TRUE(answer.ok()) << shown.output;
    if (!answer.ok()) return {};
    const cli::json::array& entries = cli::array_member(*answer, "entries");
    return {entries.begin(), entries.end()};
  }
  static std::vector<std::string> kinds_of(const std::vector<value>& entries) {
    std::vector<std::string> kinds;
    for (const value& entry : entries) kinds.push_back(cli::text_member(entry, "kind"));
    return kinds;
  }
  CommandRun verify(const std::string& folder, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {"audit", "verify", "--data-dir", folder};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return fluvial(arguments);
  }
  std::string token_id_;
};

TEST_F(AuditTest, WhatIsWrittenIsFollowed) {
  start(0, 0);
  new_token("hospital-a");
  const auto process = supervisor_->spawn(fluvial_spec(
      folder_, "follow",
      {"audit", "show", "--follow", "--kind", "token-made", "--last", "1", "--json", "--data-dir", data_dir()}));
  ASSERT_TRUE(process.ok()) << process.error().message;
  wait_log("follow", "hospital-a");
  new_token("hospital-b");
  wait_log("follow", "hospital-b");
  supervisor_->signal_and_wait(*process, SIGKILL);
  const std::string lines = log_of("follow");
  EXPECT_EQ(std::ranges::count(lines, '\n'), 2) << lines;
}

TEST_F(AuditTest, SaysWhoDidWhatFromWhere) {
  start(0, 0);
  const std::string token = new_token("hospital-a");
  const std::string id = token_id_;
  ASSERT_EQ(enroll(token, "a").exit_status, 0);
  EXPECT_NE(enroll(token, "thief").exit_status, 0);
  const std::string serial =
      identity::load_credentials(folder_.file("a") + "/identity").value().chain.front().serial_hex();
  new_token("hospital-b");
  for (const auto& command : std::vector<std::vector<std::string>>{
           {"nodes", "revoke", "hospital-a"}, {"nodes", "remove", "hospital-a"}, {"token", "revoke", token_id_}}) {
    std::vector<std::string> arguments = command;
    arguments.insert(arguments.end(), {"--data-dir", data_dir()});
    const CommandRun done = fluvial(arguments);
    ASSERT_EQ(done.exit_status, 0) << done.output;
  }
  EXPECT_NE(fluvial({"nodes", "revoke", "nobody", "--data-dir", data_dir()}).exit_status, 0);

  const std::vector<value> entries = show();
  ASSERT_THAT(kinds_of(entries), ElementsAre("coordinator-started", "token-made", "enrolled", "enrolment-refused",
                                             "token-made", "revoked", "removed", "token-revoked"))
      << "and nothing of what was not done";
  for (const std::size_t by_user : {1U, 5U, 6U, 7U}) {
    EXPECT_EQ(cli::text_member(entries[by_user], "by"), "user") << by_user;
    EXPECT_EQ(cli::count_member(entries[by_user], "uid"), ::geteuid()) << by_user;
    EXPECT_EQ(cli::text_member(entries[by_user], "from"), "unix") << by_user;
  }
  EXPECT_EQ(cli::count_member(entries[1], "pid"), static_cast<std::uint64_t>(::getpid()));
  EXPECT_EQ(cli::text_member(entries[1], "token"), id);
  for (const std::size_t of_member : {2U, 5U}) {
    EXPECT_EQ(cli::text_member(entries[of_member], "member"), "hospital-a") << of_member;
    EXPECT_EQ(cli::text_member(entries[of_member], "serial"), serial) << of_member;
  }
  for (const std::size_t at_the_port : {2U, 3U}) {
    EXPECT_EQ(cli::text_member(entries[at_the_port], "token"), id) << at_the_port;
    EXPECT_THAT(cli::text_member(entries[at_the_port], "from"), HasSubstr("127.0.0.1:")) << at_the_port;
  }
  EXPECT_THAT(cli::text_member(entries[3], "detail"), HasSubstr("was used at"));
  EXPECT_EQ(cli::text_member(entries[7], "token"), token_id_);
  EXPECT_EQ(kinds_of(show({"--kind", "revoked", "--kind", "removed", "--member", "hospital-a"})).size(), 2U);
}

TEST_F(AuditTest, FollowsARunAndTheCoordinatorsOwnLife) {
  start(1, 0);
  RoundGate& second = hold_from(2);
  add_worker(1, gated(second, 1));
  const std::uint64_t run = start_run(plan(3), 1'000);
  wait_committed(run, 1);
  for (const char* verb : {"pause", "resume"}) {
    if (verb == std::string("resume")) second.open();
    ASSERT_EQ(fluvial({"run", verb, "--data-dir", data_dir()}).exit_status, 0) << verb;
  }
  wait_state(run, "done");
  supervisor_->signal_and_wait(federation_->process_of("coordinator"), SIGTERM);
  ASSERT_TRUE(federation_->restart("coordinator").ok());
  std::vector<value> entries = show();
  std::erase_if(entries, [](const value& entry) { return cli::text_member(entry, "kind") == "admitted"; });
  const std::vector<std::string> kinds = kinds_of(entries);
  ASSERT_GE(kinds.size(), 9U);
  EXPECT_THAT(std::vector<std::string>(kinds.begin() + 3, kinds.end()),
              ElementsAre("run-started", "run-paused", "run-resumed", "run-finished", "coordinator-stopped",
                          "coordinator-started"));
  EXPECT_EQ(cli::count_member(entries[3], "run"), run);
  EXPECT_THAT(cli::text_member(entries[3], "detail"), HasSubstr(", sha256 "));
  EXPECT_EQ(cli::text_member(entries[4], "by"), "user");
  EXPECT_EQ(cli::text_member(entries[6], "by"), "coordinator");
}

TEST_F(AuditTest, AMemberIsAdmittedOnceUntilItComesAsAnother) {
  start(1, 0);
  federation_->kill("site-1");
  ASSERT_TRUE(federation_->restart("site-1").ok());
  std::vector<value> entries;
  const auto came = cli::retry(std::chrono::seconds(60), [&]() -> Result<bool> {
    entries = show({"--kind", "admitted"});
    return entries.size() >= 2;
  });
  ASSERT_TRUE(came.ok() && *came) << entries.size();
  EXPECT_EQ(cli::text_member(entries[0], "member"), "site-1");
  EXPECT_EQ(cli::text_member(entries[0], "by"), "member");
  EXPECT_THAT(cli::text_member(entries[0], "from"), HasSubstr("127.0.0.1:"));
  EXPECT_FALSE(cli::text_member(entries[0], "serial").empty());
  EXPECT_THAT(cli::text_member(entries[0], "detail"), HasSubstr("the first time"));
  EXPECT_EQ(cli::text_member(entries[1], "detail"), "another process");
}

TEST_F(AuditTest, ABentEntryIsFoundInACopyOfTheJournal) {
  start(0, 0);
  ASSERT_EQ(enroll(new_token("hospital-a"), "a").exit_status, 0);
  const CommandRun live = verify(data_dir());
  EXPECT_EQ(live.exit_status, 0) << live.output;
  EXPECT_THAT(live.output, HasSubstr("3 entries are as they were written"));

  const std::string copy = folder_.file("restored");
  ASSERT_EQ(fluvial({"backup", folder_.file("backup"), "--data-dir", data_dir(), "--plain-key"}).exit_status, 0);
  ASSERT_EQ(fluvial({"restore", folder_.file("backup"), "--data-dir", copy}).exit_status, 0);
  const CommandRun whole = verify(copy);
  EXPECT_EQ(whole.exit_status, 0) << whole.output;
  EXPECT_THAT(whole.output, HasSubstr("3 entries"));

  const std::string file = copy + "/journal.sqlite";
  std::ifstream in(file, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(in)), {});
  const std::string written = R"("kind":"enrolled","by":"newcomer")";
  const std::size_t place = bytes.find(written);
  ASSERT_NE(place, std::string::npos);
  ASSERT_EQ(bytes.find(written, place + 1), std::string::npos);
  bytes.replace(place, written.size(), R"("kind":"enrolled","by":"newcomes")");
  std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
  const CommandRun bent = verify(copy);
  EXPECT_EQ(bent.exit_status, 1) << bent.output;
  EXPECT_THAT(bent.output, HasSubstr("entry 3 is not what was written"));

  const std::vector<value> entries = show();
  const std::string chain = cli::text_member(entries[1], "chain");
  EXPECT_EQ(verify(data_dir(), {"--from", "2", "--chain", chain}).exit_status, 0);
  const CommandRun other = verify(data_dir(), {"--from", "3", "--chain", chain});
  EXPECT_EQ(other.exit_status, 1);
  EXPECT_THAT(other.output, HasSubstr("entry 3 is not the one that was known"));
  EXPECT_EQ(verify(data_dir(), {"--from", "99", "--chain", chain}).exit_status, 1) << "the log ends before it";
  EXPECT_EQ(verify(folder_.file("nothing")).exit_status, 2);
}

// ---- who may ask ----------------------------------------------------------------------------------------------------

// The answer that a process of this user and these groups gets; -1: it cannot even connect.
int asked_by(std::uint32_t uid, std::uint32_t gid, const std::string& socket, const char* method, const char* target) {
  int status = -1;
  std::thread([&] {  // the system calls themselves, of which each changes this thread alone
    if (::syscall(SYS_setgroups, 0, nullptr) != 0 || ::syscall(SYS_setresgid, gid, gid, gid) != 0 ||
        ::syscall(SYS_setresuid, uid, uid, uid) != 0) {
      return;
    }
    const auto reply = net::http_request(net::UnixAddress{socket}, method, target, "{}", std::chrono::minutes(1));
    if (reply.ok()) status = reply->status;
  })
      .join();
  return status;
}

class AdminUsersTest : public AuditTest {
 protected:
  static constexpr std::uint32_t kAdmin = 61'001;
  static constexpr std::uint32_t kReader = 61'002;
  static constexpr std::uint32_t kReaders = 61'003;  // a group
  static constexpr std::uint32_t kStranger = 61'009;

  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
    ASSERT_NE(::mkdtemp(open_folder_.data()), nullptr);
    ASSERT_EQ(::chmod(open_folder_.c_str(), 0755), 0);  // the federation's own folder is shut to others
  }
  ~AdminUsersTest() override {
    supervisor_->stop();
    ::unlink(socket().c_str());
    ::rmdir(open_folder_.c_str());
  }
  void start_with(std::vector<std::string> more) {
    more.insert(more.end(), {"--admin-socket", socket()});
    cli::FederationShape shape{.sites = 0, .aggregators = 0};
    shape.arguments["coordinator"] = std::move(more);
    start(std::move(shape));
  }
  std::string socket() const { return open_folder_ + "/admin.sock"; }
  std::string open_folder_ = "/tmp/fluvial-admin-XXXXXX";
};

TEST_F(AdminUsersTest, AnotherUserDoesNotEvenReachTheSocket) {
  start_with({});
  EXPECT_EQ(asked_by(kStranger, kStranger, socket(), "GET", "/v1/status"), -1);
  EXPECT_EQ(asked_by(0, 0, socket(), "GET", "/v1/status"), 200);
}

TEST_F(AdminUsersTest, OnlyWhomTheSettingsNameIsAnswered) {
  start_with({"--admin-users", std::to_string(kAdmin), "--admin-readers", fmt::format("{}, @{}", kReader, kReaders)});
  EXPECT_EQ(asked_by(kStranger, kStranger, socket(), "GET", "/v1/status"), 403);
  EXPECT_EQ(asked_by(kStranger, kStranger, socket(), "POST", "/v1/tokens"), 403);
  EXPECT_EQ(asked_by(kStranger, kStranger, socket(), "GET", "/"), 403) << "nor is the console's page";
  wait_log("coordinator", "a user who may not administer asked");
  EXPECT_THAT(log_of("coordinator"), HasSubstr(fmt::format("uid={}", kStranger)));

  for (const auto& [uid, gid] : {std::pair(kReader, kReader), std::pair(kStranger, kReaders)}) {
    EXPECT_EQ(asked_by(uid, gid, socket(), "GET", "/v1/status"), 200) << uid;
    EXPECT_EQ(asked_by(uid, gid, socket(), "GET", "/v1/audit"), 200) << uid;
    EXPECT_EQ(asked_by(uid, gid, socket(), "POST", "/v1/backup"), 403) << uid;
    EXPECT_EQ(asked_by(uid, gid, socket(), "POST", "/v1/tokens/0/revoke"), 403) << uid;
  }
  EXPECT_EQ(asked_by(kAdmin, kAdmin, socket(), "POST", "/v1/tokens/0/revoke"), 404) << "it may, and there is none";
  EXPECT_EQ(asked_by(kAdmin, kAdmin, socket(), "POST", "/v1/backup/made"), 400);
  EXPECT_EQ(kinds_of(show({"--admin-socket", socket()})), std::vector<std::string>{"coordinator-started"});
}

TEST_F(AdminUsersTest, AUserThatTheMachineDoesNotKnowIsNamedAtTheStart) {
  const CommandRun refused = fluvial({"coordinator", "--data-dir", data_dir(), "--metrics-listen", "off", "--listen",
                                      "127.0.0.1:0", "--enrol-listen", "127.0.0.1:0", "--admin-users", "no-such-user"});
  EXPECT_NE(refused.exit_status, 0);
  EXPECT_THAT(refused.output, HasSubstr("this machine has no user 'no-such-user'"));
}

}  // namespace
}  // namespace fluvial::integration
