// What this process uses, from /proc and getrusage. Inside this room only.
#pragma once

namespace fluvial::telemetry {

struct ProcessUsage {
  double resident_bytes = 0;
  double cpu_seconds = 0;
  double open_files = 0;
};
ProcessUsage process_usage();
double process_start_seconds();  // since 1970; 0 when /proc does not say

}  // namespace fluvial::telemetry
