// What a parent's memory may be: by the model and the staging budget, and not by how many children send at once.
#include <gtest/gtest.h>

#include "cli/process_counts.h"
#include "core/store/staging.h"
#include "tests/integration/harness.h"

namespace fluvial::integration {
namespace {

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr bool kWatched = true;
#else
constexpr bool kWatched = false;
#endif
#else
constexpr bool kWatched = false;
#endif

constexpr std::uint64_t kMemoryParams = 2'000'000;
constexpr std::uint64_t kSites = 16;
constexpr std::uint64_t kAside = 64'000'000;

class MemoryTest : public FederationTest {
 protected:
  // A tenth more: what all parts take at most does not quite fit, and comes together seldom.
  static std::uint64_t bound() {
    return (12 * kMemoryParams + store::staging_bytes_for(kMemoryParams) + kAside) * 11 / 10;
  }
};

TEST_F(MemoryTest, OfAParentDoesNotGrowWithItsChildren) {
  if (kWatched) GTEST_SKIP() << "the sanitizer's own memory would be measured";
  cli::FederationShape shape{.sites = kSites, .aggregators = 1, .sites_per_process = kSites};
  for (const char* parent : {"coordinator", "aggregator"}) shape.arguments[parent] = {"--compute-threads", "2"};
  start(std::move(shape));
  const std::vector<std::string> parents = {"coordinator", "aggregator-1"};
  std::vector<pid_t> pids;
  for (const std::string& name : parents) pids.push_back(supervisor_->pid_of(federation_->process_of(name)));
  cli::MemoryPeaks peaks(pids);
  add_workers();
  const std::uint64_t run = start_run(plan(3), kMemoryParams);
  wait_state(run, "done");
  const std::vector<std::uint64_t> most = peaks.stop();
  for (std::size_t i = 0; i < parents.size(); ++i) {
    EXPECT_GT(most[i], 12 * kMemoryParams) << parents[i] << ": the sum and the model at least";
    EXPECT_LT(most[i], bound()) << parents[i] << ": " << kSites << " updates are "
                                << kSites * kMemoryParams * sizeof(float);
  }
  expect_exact(run, 3);
}

}  // namespace
}  // namespace fluvial::integration
