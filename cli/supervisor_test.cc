#include "cli/supervisor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "core/base/testing.h"

namespace fluvial::cli {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

class SupervisorTest : public ::testing::Test {
 protected:
  ProcessSpec shell(const std::string& name, const std::string& script) const {
    return {
        .name = name, .role = "tool", .argv = {"/bin/sh", "-c", script, name}, .log_path = folder_ / (name + ".log")};
  }
  // A child that sleeps until it is told to end. It announces once it has started.
  ProcessSpec sleeper(const std::string& name, const std::string& trap = "") const {
    ProcessSpec spec = shell(name, trap + "echo up >&3; exec 3>&-; while :; do sleep 1000; done");
    spec.announces = true;
    return spec;
  }
  std::unique_ptr<Supervisor> make(std::chrono::milliseconds grace = 30s) {
    return std::move(Supervisor::create(grace)).value();
  }

  const TemporaryFolder folder_;
};

void wait_until_ended(pid_t process) {  // whosever child it is; a zombie has ended
  const int fd = static_cast<int>(::syscall(SYS_pidfd_open, process, 0));
  if (fd < 0 && errno == ESRCH) return;
  ASSERT_GE(fd, 0);
  pollfd ended{.fd = fd, .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&ended, 1, 60'000), 1);
  ::close(fd);
}

// One of a process group that is alive: no zombie, which waits for whoever adopted it. 0: none is.
pid_t living_of(pid_t group) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream stat(entry.path() / "stat");
    std::string number, name, state;
    pid_t parent = 0, of_group = 0;
    if (stat >> number >> name >> state >> parent >> of_group && of_group == group && state != "Z" && state != "X")
      return std::stoi(number);
  }
  return 0;
}
void wait_until_dead(pid_t group) {  // a SIGKILL takes a moment
  while (const pid_t process = living_of(group)) wait_until_ended(process);
}

bool is_gone(pid_t pid) { return ::kill(pid, 0) != 0 && errno == ESRCH; }

TEST_F(SupervisorTest, AReadyLineArrives) {
  const auto supervisor = make();
  const ProcessId process = supervisor->spawn(sleeper("a")).value();
  EXPECT_EQ(supervisor->wait_ready(process, 60s).value(), "up");
}

TEST_F(SupervisorTest, StopLeavesNothingBehind) {
  const auto supervisor = make();
  for (const char* name : {"a", "b", "c"}) {
    ASSERT_TRUE(supervisor->wait_ready(supervisor->spawn(sleeper(name)).value(), 60s).ok());
  }
  const std::vector<pid_t> pids = supervisor->living();
  ASSERT_EQ(pids.size(), 3U);
  const std::vector<RunningProcess> running = supervisor->running();
  ASSERT_EQ(running.size(), 3U);
  EXPECT_EQ(running[1].pid, pids[1]);
  EXPECT_EQ(running[1].name, "b");
  supervisor->stop();
  EXPECT_TRUE(supervisor->running().empty());
  for (const pid_t pid : pids) {
    EXPECT_TRUE(is_gone(pid));
    wait_until_dead(pid);  // and what it started
  }
  EXPECT_FALSE(supervisor->failure());
  EXPECT_EQ(supervisor->usage().size(), 3U);
}

TEST_F(SupervisorTest, WhoIgnoresTheTermIsKilledAfterTheGrace) {
  const auto supervisor = make(50ms);
  const ProcessId process = supervisor->spawn(sleeper("deaf", "trap '' TERM; ")).value();
  ASSERT_TRUE(supervisor->wait_ready(process, 60s).ok());
  const pid_t pid = supervisor->living().at(0);
  supervisor->stop();
  EXPECT_TRUE(is_gone(pid));
  wait_until_dead(pid);
}

TEST_F(SupervisorTest, AChildThatDiesStopsTheOthersAndSaysWhy) {
  const auto supervisor = make();
  const ProcessId other = supervisor->spawn(sleeper("other")).value();
  ASSERT_TRUE(supervisor->wait_ready(other, 60s).ok());
  ASSERT_TRUE(supervisor->spawn(shell("dying", "echo disk on fire; exit 3")).ok());
  EXPECT_FALSE(supervisor->wait_end(other).ok());
  ASSERT_TRUE(supervisor->failure());
  EXPECT_EQ(supervisor->failure()->code, Code::kInternal);
  EXPECT_THAT(supervisor->failure()->message, HasSubstr("dying ended with status 3"));
  EXPECT_THAT(supervisor->failure()->message, HasSubstr("disk on fire"));
  EXPECT_THAT(supervisor->explain({Code::kUnavailable, "no answer"}).message, HasSubstr("dying"));
  EXPECT_FALSE(supervisor->spawn(sleeper("late")).ok());
}

TEST_F(SupervisorTest, ASignalStopsEverything) {
  const auto supervisor = make();
  const ProcessId process = supervisor->spawn(sleeper("a")).value();
  ASSERT_TRUE(supervisor->wait_ready(process, 60s).ok());
  ::kill(::getpid(), SIGINT);
  const Status ended = supervisor->wait_end(process);
  ASSERT_FALSE(ended.ok());
  EXPECT_EQ(ended.error().code, Code::kCancelled);
}

TEST_F(SupervisorTest, AShortProcessRunsToItsEnd) {
  const auto supervisor = make();
  EXPECT_TRUE(supervisor->run(shell("fine", "exit 0")).ok());
  EXPECT_FALSE(supervisor->failure());
  const Status bad = supervisor->run(shell("bad", "exit 7"));
  ASSERT_FALSE(bad.ok());
  EXPECT_THAT(bad.error().message, HasSubstr("status 7"));
}

class Variable {
 public:
  explicit Variable(const char* name) : name_(name) { ::setenv(name, "exported", 1); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  ~Variable() { ::unsetenv(name_); }

 private:
  const char* name_;
};

TEST_F(SupervisorTest, AChildIsNotSetByTheSettingsOfOurEnvironment) {
  const Variable folder("FLUVIAL_DATA_DIR");
  const Variable socket("FLUVIAL_ADMIN_SOCKET");
  const Variable session("FLUVIAL_SESSION_FRAME_DEADLINE_MS");
  const Variable config("FLUVIAL_CONFIG");
  const Variable no_setting("FLUVIAL_DIGITS");
  const Variable longer("FLUVIAL_DATA_DIR_OF_SOMETHING_ELSE");
  const auto supervisor = make();
  ASSERT_TRUE(supervisor->run(shell("all", "env | grep =exported$ | sort")).ok());
  EXPECT_EQ(tail_of(folder_ / "all.log", 10), "FLUVIAL_DATA_DIR_OF_SOMETHING_ELSE=exported\nFLUVIAL_DIGITS=exported");
}

TEST_F(SupervisorTest, AnExecutableThatIsMissingIsNamed) {
  const auto supervisor = make();
  ProcessSpec spec = shell("x", "");
  spec.argv[0] = "/nowhere/fluvial";
  const auto spawned = supervisor->spawn(spec);
  ASSERT_FALSE(spawned.ok());
  EXPECT_THAT(spawned.error().message, HasSubstr("cannot start /nowhere/fluvial: No such file"));
}

TEST_F(SupervisorTest, AnAnnouncerThatNeverDoesIsNamed) {
  const auto supervisor = make();
  ProcessSpec spec = shell("silent", "exec sleep 1000");
  spec.announces = true;
  const auto ready = supervisor->wait_ready(supervisor->spawn(spec).value(), 20ms);
  ASSERT_FALSE(ready.ok());
  EXPECT_EQ(ready.error().code, Code::kDeadlineExceeded);
  EXPECT_THAT(ready.error().message, HasSubstr("silent"));
}

// Killed with -9 there is nobody left to clean up: the kernel does it.
TEST_F(SupervisorTest, ChildrenDieWithAKilledParent) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t parent = ::fork();
  if (parent == 0) {
    auto supervisor = Supervisor::create(30s);
    const auto process = supervisor.value()->spawn(sleeper("orphan"));
    if (!supervisor.value()->wait_ready(process.value(), 60s).ok()) ::_exit(1);
    const pid_t child = supervisor.value()->living().at(0);
    (void)!::write(ends[1], &child, sizeof child);
    ::kill(::getpid(), SIGKILL);
  }
  pid_t child = 0;
  ASSERT_EQ(::read(ends[0], &child, sizeof child), static_cast<ssize_t>(sizeof child));
  ::waitpid(parent, nullptr, 0);
  // Only the shell is the kernel's to kill for us; what it started itself would be the shell's matter.
  wait_until_ended(child);
  ::kill(-child, SIGKILL);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(DescribeEnd, SaysHowItEnded) {
  EXPECT_EQ(describe_end(0x0100), "ended with status 1");
  EXPECT_THAT(describe_end(SIGKILL), HasSubstr("killed by signal 9"));
}

}  // namespace
}  // namespace fluvial::cli
