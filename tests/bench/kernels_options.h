// The options of kernels_bench.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "tests/bench/kernels_case.h"

namespace fluvial::bench {

struct Options {
  std::vector<std::string> kernels, codecs, backends;  // empty: all
  std::vector<std::size_t> values;                     // these and the next two, empty: as usage() says
  std::vector<Target> targets;
  std::vector<std::size_t> threads;
  std::size_t repeats = 0;  // 0: as many as the time allows
  double seconds = 0.6;     // for each row
  bool all = false;         // also the rows that the default run leaves out
  bool list = false, markdown = false, help = false;
  std::string json;
};

// kInvalidArgument says which argument was wrong and what was expected.
Result<Options> parse_options(int argc, char** argv);
const char* usage();

// The combinations that one run goes through.
struct Combination {
  std::size_t values = 0;
  Target target = Target::kBaseline;
  std::size_t threads = 1;
  bool operator==(const Combination&) const = default;
};
std::vector<Combination> combinations(const Options& options);
bool selected(const Options& options, const Case& one);

}  // namespace fluvial::bench
