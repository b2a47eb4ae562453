#include "cli/bench_result.h"

#include <algorithm>
#include <vector>

#include "cli/json.h"
#include "core/config/toml_file.h"

namespace fluvial::cli {
namespace {

// Of all processes of the role together.
double cpu_seconds(const json::value& value, std::string_view role) {
  double sum = 0;
  for (const json::value& process : array_member(value, "processes")) {
    if (text_member(process, "role") == role) sum += number_member(process, "cpu_seconds", 0);
  }
  return sum;
}

}  // namespace

Result<BenchResult> read_bench_result(const std::string& path) {
  FLUVIAL_ASSIGN(const std::string text, config::read_text_file(path));
  FLUVIAL_ASSIGN(const json::value value, parse_json(text, path));
  BenchResult result;
  simulator::MeasuredRun& run = result.run;
  std::vector<double> seconds;
  for (const json::value& round : array_member(value, "round_seconds")) seconds.push_back(to_number(round, 0));
  run.sites = count_member(value, "sites");
  run.aggregators = count_member(value, "aggregators");
  run.values = count_member(value, "params");
  run.rounds = count_member(value, "rounds");
  if (seconds.empty() || run.sites == 0 || run.values == 0 || run.rounds == 0) {
    return Error{Code::kInvalidArgument,
                 path + ": no round_seconds, sites, params or rounds; expected what fluvial bench tree --json wrote"};
  }
  std::sort(seconds.begin(), seconds.end());
  result.round_p50_s = seconds[seconds.size() / 2];
  result.codec = text_member(value, "codec");
  result.down = text_member(value, "down");
  if (result.down.empty()) result.down = "fp32";
  result.tiers = run.aggregators == 0 ? 0 : count_member(value, "tiers");
  run.update_bytes = number_member(value, "bytes_up_per_site_round", 0);
  run.root_up_bytes = number_member(value, "bytes_up_root_round", 0);
  run.root_down_bytes = number_member(value, "bytes_down_root_round", 0);
  const auto sites = static_cast<double>(run.sites);
  run.site_cpu_s = (cpu_seconds(value, "site") + cpu_seconds(value, "worker")) / sites;
  if (run.aggregators > 0) {
    run.aggregator_cpu_s = cpu_seconds(value, "aggregator") / static_cast<double>(run.aggregators);
  }
  run.coordinator_cpu_s = cpu_seconds(value, "coordinator");
  return result;
}

}  // namespace fluvial::cli
