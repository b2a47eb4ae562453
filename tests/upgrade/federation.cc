// upgrade_federation, with FLUVIAL_FIXTURE=FOLDER: records the folders of a coordinator, an aggregator and two sites
// that were stopped in the middle of a run's fourth round, with two updates that wait for their outcome, and what the
// coordinator said of the rounds before. Real processes, keys and certificates, so each recording is another one.
#include <fmt/format.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/integration/harness.h"
#include "tests/integration/recorded.h"
#include "tests/upgrade/recording.h"

namespace fluvial::integration {
namespace {

using cli::json::value;

class Record : public FederationTest {
 protected:
  void stop(const std::string& name) { supervisor_->signal_and_wait(federation_->process_of(name), SIGTERM); }

  // Files alone: sockets are those of processes. The folder's name in configurations becomes a word.
  void keep(const std::string& name, const std::string& to) {
    namespace fs = std::filesystem;
    const fs::path from = folder_.file(name);
    for (const auto& entry : fs::recursive_directory_iterator(from)) {
      if (!entry.is_regular_file() || entry.path().filename() == "metrics.address") continue;
      const fs::path target = fs::path(to) / name / entry.path().lexically_relative(from);
      fs::create_directories(target.parent_path());
      fs::copy_file(entry.path(), target);
      if (target.extension() == ".toml") replace_in_file(target.string(), folder_.path(), kRecordedFolder);
    }
  }
};

TEST_F(Record, AFederation) {
  const char* const to = std::getenv("FLUVIAL_FIXTURE");
  ASSERT_NE(to, nullptr) << "usage: FLUVIAL_FIXTURE=FOLDER upgrade_federation";
  cli::FederationShape shape{.sites = 2, .aggregators = 1};
  shape.arguments["coordinator"] = {"--certificate-days", "3650"};
  start(std::move(shape));
  RoundGate& gate = hold_from(kRecordedRounds + 1);
  for (std::uint64_t i = 1; i <= 2; ++i) add_worker(i, gated(gate, i));
  const std::uint64_t run = start_run(recorded_plan(plan(0)), 500);
  ASSERT_EQ(run, kRecordedRun);
  wait_committed(run, kRecordedRounds);
  gate.wait_arrival(kRecordedRounds + 1, 2);
  const std::string said = rounds_text(committed(run));
  stop("coordinator");
  gate.open();
  for (std::size_t i = 1; i <= 2; ++i) {
    wait_status(i,
                [](const value& status) { return cli::count_member(status, "pending_round") == kRecordedRounds + 1; });
  }
  for (const char* name : {"site-1", "site-2", "aggregator-1"}) stop(name);

  std::filesystem::remove_all(to);
  for (const char* name : {"coordinator", "aggregator-1", "site-1", "site-2"}) keep(name, to);
  ASSERT_TRUE(upgrade::compact_databases(to).ok());
  std::ofstream(std::string(to) + "/rounds.txt", std::ios::binary) << said;
}

}  // namespace
}  // namespace fluvial::integration
