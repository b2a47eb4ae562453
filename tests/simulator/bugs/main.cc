// fluvial_bugs BUG SCENARIO.toml FIRST_SEED SEEDS [LINES]: runs the seeds with a deliberate bug ("none": without) until
// one is caught by the invariant that the bug is named for, and says which. Exit status 0: there was one (or, without a
// bug, nothing was found in two runs of each).
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <map>
#include <string>

#include "core/store/file_system.h"
#include "simulator/roles/settle.h"
#include "simulator/run/seeds.h"
#include "tests/simulator/bugs/bugs.h"

namespace {

using namespace fluvial;             // NOLINT(google-build-using-namespace): one small program
using namespace fluvial::simulator;  // NOLINT(google-build-using-namespace)

std::uint64_t number_of(const char* text) {
  std::uint64_t number = 0;
  const std::string given(text);
  std::from_chars(given.data(), given.data() + given.size(), number);
  return number;
}

int usage() {
  std::fprintf(stderr, "usage: fluvial_bugs BUG SCENARIO.toml FIRST_SEED SEEDS [LINES]\n\nbugs:\n  none\n");
  for (const Bug& bug : bugs()) std::fprintf(stderr, "  %s: %s\n", bug.name.c_str(), bug.what.c_str());
  return 2;
}

void print(const std::string& name, const SeedResult& failure) {
  for (const std::string& line : failure.log) std::printf("%s\n", line.c_str());
  for (const Violation& violation : failure.violations) {
    std::printf("%s: seed %llu: %s: %s\n", name.c_str(), static_cast<unsigned long long>(failure.seed),
                violation.invariant.c_str(), violation.detail.c_str());
  }
}

// Without a bug: every seed twice, and none may find anything.
Result<bool> honest(const ScenarioFile& file, SeedsOptions options) {
  options.failures_max = options.seeds;
  options.twice = options.seeds;
  FLUVIAL_ASSIGN(const SeedsResult result,
                 run_seeds(file, settle([] { return std::make_unique<Tamper>(); }), options, {}));
  for (const SeedResult& failure : result.failures) print("none", failure);
  std::printf("none: %llu seeds, %zu caught\n", static_cast<unsigned long long>(result.seeds), result.failures.size());
  return result.failures.empty();
}

// Seed by seed until the invariant that the bug is named for is the first to see it: in some worlds another one, or the
// lack of progress, comes before.
Result<bool> caught(const ScenarioFile& file, const Bug& bug, SeedsOptions options) {
  const Settle inhabitants = settle([&bug] { return make_bug(bug.name); });
  const std::uint64_t end = options.first_seed + options.seeds;
  std::map<std::string, std::uint64_t> others;
  for (options.seeds = 1; options.first_seed < end; ++options.first_seed) {
    FLUVIAL_ASSIGN(const SeedsResult result, run_seeds(file, inhabitants, options, {}));
    if (result.failures.empty()) continue;
    const std::string& invariant = result.failures.front().violations.front().invariant;
    if (invariant == bug.invariant) {
      print(bug.name, result.failures.front());
      break;
    }
    ++others[invariant];
  }
  for (const auto& [invariant, seeds] : others) {
    std::printf("%s: %llu seeds before that were caught by %s\n", bug.name.c_str(),
                static_cast<unsigned long long>(seeds), invariant.c_str());
  }
  if (options.first_seed == end) std::printf("%s: expected %s to catch it\n", bug.name.c_str(), bug.invariant.c_str());
  return options.first_seed < end;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5 && argc != 6) return usage();
  const std::string name = argv[1];
  const auto bug = std::ranges::find(bugs(), name, &Bug::name);
  if (name != "none" && bug == bugs().end()) return usage();
  const Result<ScenarioFile> file = ScenarioFile::load(argv[2]);
  if (!file.ok()) {
    std::fprintf(stderr, "%s\n", file.error().to_string().c_str());
    return 2;
  }
  SeedsOptions options;
  options.first_seed = number_of(argv[3]);
  options.seeds = number_of(argv[4]);
  if (argc == 6) options.lines_max = number_of(argv[5]);
  const Result<bool> as_expected = name == "none" ? honest(*file, options) : caught(*file, *bug, options);
  if (!as_expected.ok()) std::fprintf(stderr, "%s\n", as_expected.error().to_string().c_str());
  return as_expected.ok() ? (*as_expected ? 0 : 1) : 2;
}
