// The folders that each version from 0.2 on has left, with today's executable: every process says what it knew, and the
// run goes on.
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>

#include "tests/integration/recorded.h"
#include "tests/upgrade/recorded_versions.h"

namespace fluvial::integration {
namespace {

using cli::json::value;

class UpgradeTest : public FederationTest, public testing::WithParamInterface<std::string> {
 protected:
  std::string fixture() const { return std::string(FLUVIAL_FIXTURES) + "/" + GetParam() + "/federation"; }

  // As they were on the disk: git keeps no modes.
  void put_folders() {
    namespace fs = std::filesystem;
    fs::copy(fixture(), folder_.path(), fs::copy_options::recursive);
    for (const auto& entry : fs::recursive_directory_iterator(folder_.path())) {
      fs::permissions(entry.path(), fs::perms(entry.is_directory() ? 0700 : 0600));
      if (entry.path().extension() == ".toml") replace_in_file(entry.path().string(), kRecordedFolder, folder_.path());
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Fixtures, UpgradeTest, testing::ValuesIn(upgrade::recorded_versions()), [](const auto& info) {
  std::string name = "v" + info.param;
  std::ranges::replace(name, '.', '_');
  return name;
});

TEST_P(UpgradeTest, ARunGoesOnFromTheFoldersOfThatVersion) {
  put_folders();
  // The coordinator's port is another one than its members were enrolled at.
  TcpGate to_coordinator;
  cli::FederationShape shape{.sites = 2, .aggregators = 1};
  for (const char* child : {"aggregator-1", "site-1", "site-2"}) put_before_coordinator(to_coordinator, shape, child);
  ASSERT_NO_FATAL_FAILURE(start(std::move(shape)));
  adopt_run(kRecordedRun, recorded_plan(plan(0)));
  cli::json::array recorded = committed(kRecordedRun);  // and the open one, if its updates are in already
  ASSERT_GE(recorded.size(), kRecordedRounds);
  recorded.resize(kRecordedRounds);
  EXPECT_EQ(rounds_text(recorded), text_of_file(fixture() + "/rounds.txt"));

  // What was submitted in the open round is on the sites' disks: nobody trains it again.
  std::atomic<int> trained_again = 0;
  for (std::uint64_t i = 1; i <= 2; ++i) {
    add_worker(i, [&trained_again, train = bench_train(i)](const local::Task& task, std::span<const float> base,
                                                           std::span<float> local) {
      trained_again += task.round.value() == kRecordedRounds + 1 ? 1 : 0;
      return train(task, base, local);
    });
  }
  wait_state(kRecordedRun, "done");
  EXPECT_EQ(trained_again, 0);
  expect_exact(kRecordedRun, 6);
  for (const value& round : committed(kRecordedRun)) {
    EXPECT_EQ(cli::array_member(round, "contributors").size(), 2U) << cli::pretty(round);
  }
}

// A federation of another executable, whose nodes are brought to this one by one while it trains. FLUVIAL_PREVIOUS
// names the other: the version before, at a release.
class MixedTest : public FederationTest {
 protected:
  void start_previous() {
    const char* const previous = std::getenv("FLUVIAL_PREVIOUS");
    if (previous == nullptr) GTEST_SKIP() << "FLUVIAL_PREVIOUS names the executable of the version before";
    cli::FederationShape shape{.sites = 2, .aggregators = 1};
    for (const char* name : {"coordinator", "aggregator-1", "site-1", "site-2"}) {
      const std::string script =
          fmt::format(R"([ -e "{}" ] || {{ shift; set -- "{}" "$@"; }}; exec "$@")", mark(name), previous);
      shape.places[name].launcher = {"/bin/sh", "-c", script, "sh"};
    }
    start(std::move(shape));
  }
  std::string mark(const std::string& name) const { return folder_.file(name + ".updated"); }
  void update(const std::string& name) {
    std::ofstream(mark(name)) << "\n";
    federation_->kill(name);
    const Status back = federation_->restart(name);
    ASSERT_TRUE(back.ok()) << back.error().message;
  }
  void update_in_this_order(const std::vector<std::string>& names) {
    ASSERT_NO_FATAL_FAILURE(start_previous());
    if (IsSkipped()) return;
    RoundGate& last = hold_from(names.size() + 2);
    for (std::uint64_t i = 1; i <= 2; ++i) add_worker(i, gated(last, i));
    round::Plan wanted = recorded_plan(plan(0));
    wanted.rounds = names.size() + 4;
    wanted.models_kept = wanted.rounds + 1;
    const std::uint64_t run = start_run(wanted, 5'000);
    for (std::size_t i = 0; i < names.size(); ++i) {
      wait_committed(run, i + 1);
      ASSERT_NO_FATAL_FAILURE(update(names[i]));
    }
    last.open();
    wait_state(run, "done");
    expect_exact(run, wanted.rounds);
  }
};

TEST_F(MixedTest, FromTheCoordinatorDown) { update_in_this_order({"coordinator", "aggregator-1", "site-1", "site-2"}); }

TEST_F(MixedTest, FromASiteUp) { update_in_this_order({"site-1", "aggregator-1", "site-2", "coordinator"}); }

}  // namespace
}  // namespace fluvial::integration
