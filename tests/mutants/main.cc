// The rooms that have mutants, their unit tests and the simulator, with one mutant switched on, or none:
//
//   fluvial_mutants --list
//   fluvial_mutants NAME|none unit [ROOM]                          ROOM: the tests of that folder alone
//   fluvial_mutants NAME|none simulate SCENARIO.toml FIRST COUNT   says each seed before it runs
//
// Ends with 0 when nothing was noticed, 1 at the first test that fails or seed that violates an invariant, by a signal
// when a check stopped the process or a test or seed used up its time, and 2 when it was called wrongly.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <string>

#include "simulator/roles/settle.h"
#include "simulator/run/run.h"
#include "tests/mutants/selected.h"

namespace {

using namespace fluvial;  // NOLINT(google-build-using-namespace): one small program

constexpr rlim_t kCpuSecondsMax = 30;  // of one test or seed, which take less than two
constexpr unsigned kSecondsMax = 300;  // of one that waits for what does not come, on however busy a machine
constexpr rlim_t kMemoryBytesMax = rlim_t{8} << 30;

void begin_one() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto seconds = static_cast<rlim_t>(used.ru_utime.tv_sec + used.ru_stime.tv_sec);
  const rlimit limit{seconds + kCpuSecondsMax, RLIM_INFINITY};
  ::setrlimit(RLIMIT_CPU, &limit);
  ::alarm(kSecondsMax);
}

// The first test that fails is enough; --gtest_fail_fast would still set up all others to skip them.
class EachTest final : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo& test) override {
    std::printf("test %s.%s\n", test.test_suite_name(), test.name());
    std::fflush(stdout);
    begin_one();
  }
  void OnTestEnd(const testing::TestInfo& test) override {
    if (test.result()->Failed()) ::_exit(1);
  }
};

// Every test whose source stands in the folder, as --gtest_filter has it.
std::string tests_of(const std::string& room) {
  std::string filter;
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const testing::TestSuite& suite = *all.GetTestSuite(i);
    for (int k = 0; k < suite.total_test_count(); ++k) {
      const testing::TestInfo& test = *suite.GetTestInfo(k);
      if (std::string(test.file()).find("/" + room + "/") == std::string::npos) continue;
      filter += (filter.empty() ? "" : ":") + std::string(suite.name()) + "." + test.name();
    }
  }
  return filter;
}

int unit(const std::string& room) {
  int argc = 1;
  char name[] = "fluvial_mutants";
  char* argv[] = {name, nullptr};
  testing::InitGoogleMock(&argc, argv);
  testing::UnitTest::GetInstance()->listeners().Append(new EachTest);  // NOLINT: theirs from here on
  if (!room.empty()) GTEST_FLAG_SET(filter, tests_of(room));
  GTEST_FLAG_SET(brief, true);
  return RUN_ALL_TESTS();
}

int simulate(const std::string& scenario, std::uint64_t first, std::uint64_t count) {
  const Result<simulator::ScenarioFile> file = simulator::ScenarioFile::load(scenario);
  if (!file.ok()) {
    std::fprintf(stderr, "%s\n", file.error().to_string().c_str());
    return 2;
  }
  const simulator::Settle settle = simulator::settle();
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    begin_one();
    std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
    std::fflush(stdout);
    const Result<simulator::SeedResult> result = simulator::run_seed(*file, seed, settle, 0);
    if (!result.ok()) {
      std::fprintf(stderr, "%s\n", result.error().to_string().c_str());
      return 2;
    }
    if (result->violations.empty()) continue;
    const simulator::Violation& first_seen = result->violations.front();
    std::printf("violated %s: %s\n", first_seen.invariant.c_str(), first_seen.detail.c_str());
    return 1;
  }
  return 0;
}

int usage() {
  std::fprintf(stderr,
               "usage: fluvial_mutants --list | MUTANT|none unit [ROOM] | MUTANT|none simulate "
               "SCENARIO.toml FIRST COUNT\n");
  return 2;
}

bool select(const std::string& name) {
  if (name == "none") return true;
  const auto found = std::ranges::find(mutants::all(), name, &mutants::Mutant::name);
  if (found == mutants::all().end()) return false;
  mutants::selected = found->number;
  return true;
}

bool read_number(const std::string& text, std::uint64_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} && end == text.data() + text.size();
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() == 1 && words[0] == "--list") {
    for (const mutants::Mutant& mutant : mutants::all()) std::printf("%s\n", std::string(mutant.name).c_str());
    return 0;
  }
  const rlimit memory{kMemoryBytesMax, RLIM_INFINITY};
  ::setrlimit(RLIMIT_AS, &memory);
  if (words.size() < 2 || !select(words[0])) return usage();
  if (words[1] == "unit" && words.size() <= 3) return unit(words.size() == 3 ? words[2] : "");
  std::uint64_t first = 0;
  std::uint64_t count = 0;
  const bool fits =
      words[1] == "simulate" && words.size() == 5 && read_number(words[3], first) && read_number(words[4], count);
  return fits ? simulate(words[2], first, count) : usage();
}
