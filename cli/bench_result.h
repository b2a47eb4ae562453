// What `fluvial bench tree --json` wrote, read again. Inside cli/ only.
#pragma once

#include <string>

#include "simulator/run/calibrate.h"

namespace fluvial::cli {

struct BenchResult {
  simulator::MeasuredRun run;
  std::uint64_t tiers = 0;  // of aggregators
  std::string codec;
  std::string down;  // "fp32" where the file says nothing
  double round_p50_s = 0;
};

// kInvalidArgument naming the file when it is none.
Result<BenchResult> read_bench_result(const std::string& path);

}  // namespace fluvial::cli
