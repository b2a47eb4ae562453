// Machines that were started at different times: each node has monotonic clocks of its own, as it would have on a
// machine of its own, by a time namespace. (No namespace has a wall clock of its own: see docs/design/round.md,
// Clocks.)
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "core/base/testing.h"
#include "tests/integration/harness.h"

namespace fluvial::integration {
namespace {

#ifndef CLONE_NEWTIME
constexpr int CLONE_NEWTIME = 0x80;  // glibc 2.36 does not name it
#endif
constexpr const char* kNsenter = "/usr/bin/nsenter";

// In a child, after fork(): makes the namespace, says whether it could, and keeps it until `hold` is closed.
[[noreturn]] void become_maker(int told, int hold, const std::string& offsets) {
  char error = 0;
  if (::unshare(CLONE_NEWTIME) != 0) error = static_cast<char>(errno);
  const int file = error == 0 ? ::open("/proc/self/timens_offsets", O_WRONLY) : -1;
  if (error == 0 && ::write(file, offsets.data(), offsets.size()) < 0) error = static_cast<char>(errno);
  (void)!::write(told, &error, 1);
  char ignored = 0;
  (void)!::read(hold, &ignored, 1);
  ::_exit(0);
}

// A namespace whose monotonic clocks are ahead of ours.
Result<local::UniqueFd> make_time_namespace(std::chrono::seconds ahead) {
  std::array<int, 2> told{};
  std::array<int, 2> hold{};
  FLUVIAL_CHECK(::pipe2(told.data(), O_CLOEXEC) == 0 && ::pipe2(hold.data(), O_CLOEXEC) == 0, "pipes can be had");
  const local::UniqueFd told_read(told[0]);
  local::UniqueFd told_write(told[1]);
  const local::UniqueFd hold_read(hold[0]);
  local::UniqueFd hold_write(hold[1]);
  const std::string offsets = fmt::format("monotonic {0} 0\nboottime {0} 0\n", ahead.count());
  const pid_t maker = ::fork();
  if (maker == 0) {
    ::close(hold_write.release());  // or it would keep itself
    become_maker(told_write.get(), hold_read.get(), offsets);
  }
  told_write.reset();
  char error = EAGAIN;
  const bool heard = ::read(told_read.get(), &error, 1) == 1;
  local::UniqueFd made;
  if (heard && error == 0) {
    made = local::UniqueFd(::open(fmt::format("/proc/{}/ns/time_for_children", maker).c_str(), O_RDONLY | O_CLOEXEC));
    if (!made.valid()) error = static_cast<char>(errno);
  }
  hold_write.reset();
  ::waitpid(maker, nullptr, 0);
  if (made.valid()) return made;
  return Error{Code::kFailedPrecondition,
               fmt::format("cannot make a time namespace: {}", ::strerror(error))};  // NOLINT(concurrency-mt-unsafe)
}

TEST_F(FederationTest, NodesWhoseClocksDoNotAgreeCommitExactRounds) {
  if (::access(kNsenter, X_OK) != 0) GTEST_SKIP() << kNsenter << " is not here";
  using std::chrono::hours;
  cli::FederationShape shape{.sites = 3, .aggregators = 1};
  std::vector<local::UniqueFd> clocks;
  const std::vector<std::pair<const char*, std::chrono::seconds>> ahead = {
      {"aggregator-1", hours(1)}, {"site-1", hours(24)}, {"site-2", hours(24 * 365)}};
  for (const auto& [node, by] : ahead) {
    auto made = make_time_namespace(by);
    if (!made.ok()) GTEST_SKIP() << made.error().message;
    shape.places[node].launcher = {kNsenter, fmt::format("--time=/proc/{}/fd/{}", ::getpid(), made->get()), "--"};
    clocks.push_back(std::move(*made));
  }
  shape.arguments["coordinator"] = {"--failover-after-ms", "300"};
  shape.arguments["site"] = {"--session-reconnect-delay-max-ms", "500"};
  start(std::move(shape));
  RoundGate& hold = hold_from(3);
  for (std::uint64_t i = 1; i <= 3; ++i) add_worker(i, gated(hold, i));
  const auto process = supervisor_->pid_of(federation_->process_of("site-1"));
  EXPECT_THAT(text_of_file(fmt::format("/proc/{}/timens_offsets", process)), ::testing::HasSubstr("86400"));
  const std::uint64_t run = start_run(plan(6), 20'000);  // deadlines that adapt to what was measured, and failover
  hold.wait_arrival(3, 3);
  federation_->kill("aggregator-1");
  hold.open();
  wait_state(run, "done");
  expect_exact(run, 6);
}

}  // namespace
}  // namespace fluvial::integration
