// fluvial_bugs BUG SCENARIO.toml FIRST_SEED SEEDS [LINES]: runs the seeds with a deliberate bug ("none": without) until
// one is caught, and says which seed and invariant caught it. Exit status 0: caught by the invariant that it is named
// for (or, without a bug, nothing found in two runs of each).
#include <algorithm>
#include <charconv>
#include <cstdio>
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

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5 && argc != 6) return usage();
  const std::string name = argv[1];
  const bool honest = name == "none";
  if (!honest && make_bug(name) == nullptr) return usage();
  const Result<ScenarioFile> file = ScenarioFile::load(argv[2]);
  if (!file.ok()) {
    std::fprintf(stderr, "%s\n", file.error().to_string().c_str());
    return 2;
  }
  SeedsOptions options;
  options.first_seed = number_of(argv[3]);
  options.seeds = number_of(argv[4]);
  options.failures_max = honest ? options.seeds : 1;
  options.twice = honest;
  if (argc == 6) options.lines_max = number_of(argv[5]);
  const Settle inhabitants = settle([name, honest] { return honest ? std::make_unique<Tamper>() : make_bug(name); });
  const Result<SeedsResult> result = run_seeds(*file, inhabitants, options, {});
  if (!result.ok()) {
    std::fprintf(stderr, "%s\n", result.error().to_string().c_str());
    return 2;
  }
  for (const SeedResult& failure : result->failures) {
    for (const std::string& line : failure.log) std::printf("%s\n", line.c_str());
    for (const Violation& violation : failure.violations) {
      std::printf("%s: seed %llu: %s: %s\n", name.c_str(), static_cast<unsigned long long>(failure.seed),
                  violation.invariant.c_str(), violation.detail.c_str());
    }
  }
  std::printf("%s: %llu seeds, %llu events, %llu rounds, %zu caught\n", name.c_str(),
              static_cast<unsigned long long>(result->seeds), static_cast<unsigned long long>(result->events),
              static_cast<unsigned long long>(result->rounds_committed), result->failures.size());
  if (honest || result->failures.empty()) return result->failures.empty() == honest ? 0 : 1;
  const std::string& caught_by = result->failures.front().violations.front().invariant;
  const std::string& expected = std::ranges::find(bugs(), name, &Bug::name)->invariant;
  if (caught_by != expected) std::printf("%s: expected %s to catch it\n", name.c_str(), expected.c_str());
  return caught_by == expected ? 0 : 1;
}
