// A model much larger than what its parents may keep in memory: most of each update waits on the disk, and all of it
// counts.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <string>

#include "tests/integration/harness.h"

namespace fluvial::integration {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

constexpr std::uint64_t kLargeParams = 1'000'000;
constexpr std::uint64_t kChunkValues = 2'048;
constexpr std::uint64_t kUpdateBytes = kLargeParams * sizeof(float);
constexpr std::uint64_t kStagingBytes = 1 << 19;  // an eighth of an update, a sixteenth of a partial

class LargeModelTest : public FederationTest {
 protected:
  static cli::FederationShape small_parents(std::uint64_t sites) {
    cli::FederationShape shape{.sites = sites, .aggregators = 1};
    for (const char* parent : {"coordinator", "aggregator"}) {
      shape.arguments[parent] = {"--staging-bytes-max",
                                 std::to_string(kStagingBytes),
                                 "--budget-payload-bytes-max",
                                 "8MiB",
                                 "--budget-payload-bytes-per-member-max",
                                 "8MiB"};
    }
    shape.arguments["site"] = {"--session-reconnect-delay-max-ms", "500"};
    return shape;
  }
  double gauge(const std::string& name) { return gauge_of("aggregator-1", name); }
};

TEST_F(LargeModelTest, WaitsOnTheDiskGoesOnWhereItWasCutOffAndIsExact) {
  TcpGate gate;
  cli::FederationShape shape = small_parents(3);
  put_before_aggregator(gate, shape, "aggregator-1");
  start(std::move(shape));
  RoundGate& hold = hold_from(2);
  add_worker(1, gated(hold, 1));
  add_worker(2);
  add_worker(3);
  round::Plan wanted = plan(2);
  wanted.chunk_values = kChunkValues;
  const std::uint64_t run = start_run(wanted, kLargeParams);
  wait_in("aggregator-1", 2, 2);
  EXPECT_LE(gauge("staging_bytes"), kStagingBytes);
  EXPECT_EQ(gauge("staging_bytes") + gauge("staging_spilled_bytes"), 2.0 * kUpdateBytes);
  EXPECT_EQ(gauge("staging_limit_bytes"), kStagingBytes);

  kill_in_upload(gate, hold, "site-1", 2, kUpdateBytes / 2);
  wait_state(run, "done");
  EXPECT_THAT(log_of("aggregator-1"), ContainsRegex("transfer goes on site=site-1 chunks=2[0-9][0-9]\n")) << "half";
  expect_exact(run, 2);
}

// Beyond 4 GiB, for example: only where somebody asks for it.
TEST_F(LargeModelTest, OfAsManyValuesAsAskedForIsExact) {
  const char* const asked = std::getenv("FLUVIAL_LARGE_VALUES");
  if (asked == nullptr) GTEST_SKIP() << "FLUVIAL_LARGE_VALUES does not say how many, such as 1200000000";
  const CommandRun ran =
      run_fluvial(*supervisor_, folder_,
                  {"bench", "tree", "--sites", "1", "--aggregators", "1", "--params", asked, "--rounds", "2",
                   "--no-bound", "--work-dir", folder_.file("bench"), "--json", folder_.file("bench.json")});
  EXPECT_EQ(ran.exit_status, 0) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("exact: all 2 sums"));
  fmt::print("{}\n", ran.output);
}

}  // namespace
}  // namespace fluvial::integration
