#include "cli/simulate_capacity.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string_view>
#include <utility>

#include "cli/bench_result.h"
#include "cli/format.h"
#include "cli/json.h"
#include "cli/local_run.h"
#include "cli/table.h"
#include "simulator/run/capacity.h"

namespace fluvial::cli {
namespace {

struct Figure {
  std::string name;
  std::string key;  // in the JSON
  double predicted = 0;
  double measured = 0;
  bool is_time = false;
  double off() const { return measured > 0 ? predicted / measured - 1 : 0; }
};

// Of one site and round, on average.
double up_bytes_a_site(const simulator::Capacity& capacity) {
  double bytes = 0;
  double sites = 0;
  for (const auto& tier : capacity.tiers) {
    if (tier.total.role != Role::kSite) continue;
    bytes += tier.up_bytes_a_round;
    sites += static_cast<double>(tier.total.hosts);
  }
  return sites > 0 ? bytes / sites : 0;
}

double root_bytes(const simulator::Capacity& capacity, bool up) {
  double bytes = 0;
  for (const auto& tier : capacity.tiers) {
    if (tier.total.tier == 1) bytes += up ? tier.up_bytes_a_round : tier.down_bytes_a_round;
  }
  return bytes;
}

std::vector<Figure> compare(const simulator::Capacity& capacity, const BenchResult& bench) {
  return {{"round, median", "round_seconds", capacity.round_p50_s, bench.round_p50_s, true},
          {"up, a site and round", "site_up_bytes", up_bytes_a_site(capacity), bench.run.update_bytes},
          {"into the coordinator, a round", "root_up_bytes", root_bytes(capacity, true), bench.run.root_up_bytes},
          {"out of it, a round", "root_down_bytes", root_bytes(capacity, false), bench.run.root_down_bytes}};
}

// Another tree, model or codec is no comparison.
Status check_fits(const simulator::Scenario& scenario, const BenchResult& bench, const std::string& path) {
  const simulator::TreeScenario& tree = scenario.tree;
  const std::uint64_t sites = tree.depth == 0 ? tree.sites : tree.sites * tree.aggregators + tree.sites_at_root;
  const std::uint64_t aggregators = tree.depth == 0 ? 0 : tree.aggregators;
  const auto wrong = [&](std::string_view what, const std::string& there, const std::string& here) {
    return Error{Code::kInvalidArgument, fmt::format("{} is of {} {}, the scenario has {}", path, there, what, here)};
  };
  const auto differs = [&](std::string_view what, std::uint64_t there, std::uint64_t here) -> Status {
    return there == here ? Status{} : Status{wrong(what, std::to_string(there), std::to_string(here))};
  };
  FLUVIAL_TRY(differs("sites", bench.run.sites, sites));
  FLUVIAL_TRY(differs("aggregators", bench.run.aggregators, aggregators));
  FLUVIAL_TRY(differs("tiers of aggregators", bench.tiers, tree.depth));
  FLUVIAL_TRY(differs("values", bench.run.values, scenario.workload.values));
  if (bench.codec != scenario.plan.codec) return wrong("as codec", bench.codec, scenario.plan.codec);
  return {};
}

json::object to_json(const simulator::SeedResult& result, const simulator::Capacity& capacity,
                     const simulator::ComputeScenario& compute, const std::vector<Figure>& figures) {
  json::array tiers;
  for (const auto& tier : capacity.tiers) {
    tiers.push_back(json::object{{"tier", tier.total.tier},
                                 {"role", std::string(role_name(tier.total.role))},
                                 {"hosts", tier.total.hosts},
                                 {"up_bytes_per_round", tier.up_bytes_a_round},
                                 {"down_bytes_per_round", tier.down_bytes_a_round}});
  }
  json::object object{{"seed", result.seed},
                      {"events", result.events},
                      {"rounds", capacity.rounds},
                      {"round_seconds_p50", capacity.round_p50_s},
                      {"round_seconds_p95", capacity.round_p95_s},
                      {"round_seconds_max", capacity.round_max_s},
                      {"rounds_per_hour", capacity.rounds_per_hour},
                      {"participants", capacity.participants},
                      {"stragglers", capacity.stragglers},
                      {"tiers", std::move(tiers)},
                      {"compute", json::object{{"encode_ns", compute.encode_ns},
                                               {"merge_ns", compute.merge_ns},
                                               {"finalise_ns", compute.finalise_ns},
                                               {"byte_ns", compute.byte_ns},
                                               {"cores", compute.cores}}},
                      {"trace_hash", result.trace_hash}};
  if (!figures.empty()) {
    json::object against;
    for (const Figure& figure : figures) {
      against[figure.key] =
          json::object{{"predicted", figure.predicted}, {"measured", figure.measured}, {"off", figure.off()}};
    }
    object["against"] = std::move(against);
  }
  return object;
}

void print(const Io& io, const simulator::Capacity& capacity) {
  io.print(fmt::format("{} rounds: p50 {}, p95 {}, slowest {}; {:.1f} an hour\n", capacity.rounds,
                       format_seconds(capacity.round_p50_s), format_seconds(capacity.round_p95_s),
                       format_seconds(capacity.round_max_s), capacity.rounds_per_hour));
  io.print(fmt::format("{:.1f} participants a round, {:.1f} of them stragglers\n\n", capacity.participants,
                       capacity.stragglers));
  Table table({{"TIER"},
               {"ROLE"},
               {"HOSTS", Align::kRight},
               {"UP A ROUND", Align::kRight},
               {"DOWN A ROUND", Align::kRight},
               {"UP A HOST", Align::kRight}});
  for (const auto& tier : capacity.tiers) {
    table.add({std::to_string(tier.total.tier), std::string(role_name(tier.total.role)),
               std::to_string(tier.total.hosts), format_bytes(tier.up_bytes_a_round),
               format_bytes(tier.down_bytes_a_round),
               format_bytes(tier.up_bytes_a_round / static_cast<double>(tier.total.hosts))});
  }
  io.print(table.render(io.terminal()));
}

void print(const Io& io, const std::vector<Figure>& figures) {
  if (figures.empty()) return;
  Table table(
      {{"AGAINST THE REAL RUN"}, {"PREDICTED", Align::kRight}, {"MEASURED", Align::kRight}, {"OFF", Align::kRight}});
  for (const Figure& figure : figures) {
    const auto shown = [&](double value) { return figure.is_time ? format_seconds(value) : format_bytes(value); };
    table.add({figure.name, shown(figure.predicted), shown(figure.measured),
               figure.measured > 0 ? fmt::format("{:+.1f} %", 100 * figure.off()) : "-"});
  }
  io.print("\n" + table.render(io.terminal()));
}

// The scenario's costs, or those that the real runs show.
Result<simulator::ComputeScenario> costs_of(simulator::ScenarioFile& file, const CapacityOptions& options) {
  FLUVIAL_ASSIGN(const simulator::Scenario scenario, file.draw(options.seed));
  if (options.calibrate.empty()) return scenario.compute;
  std::vector<simulator::MeasuredRun> runs;
  for (const std::string& path : options.calibrate) {
    FLUVIAL_ASSIGN(const BenchResult bench, read_bench_result(path));
    runs.push_back(bench.run);
  }
  FLUVIAL_ASSIGN(const simulator::ComputeScenario compute, simulator::calibrate(runs, scenario.compute));
  FLUVIAL_TRY(file.set("compute.encode_ns", compute.encode_ns));
  FLUVIAL_TRY(file.set("compute.merge_ns", compute.merge_ns));
  FLUVIAL_TRY(file.set("compute.finalise_ns", compute.finalise_ns));
  FLUVIAL_TRY(file.set("compute.byte_ns", compute.byte_ns));
  return compute;
}

}  // namespace

int run_capacity(const Io& io, simulator::ScenarioFile file, const simulator::Settle& settle,
                 const CapacityOptions& options) {
  const auto compute = costs_of(file, options);
  if (!compute.ok()) return fail(io, "simulate", compute.error(), kUsage);
  std::optional<BenchResult> bench;
  if (!options.against.empty()) {
    auto read = read_bench_result(options.against);
    if (!read.ok()) return fail(io, "simulate --against", read.error(), kUsage);
    bench = std::move(*read);
    const auto scenario = file.draw(options.seed);
    const Status fits = scenario.ok() ? check_fits(*scenario, *bench, options.against) : Status{scenario.error()};
    if (!fits.ok()) return fail(io, "simulate --against", fits.error(), kUsage);
  }
  if (!options.calibrate.empty()) {
    io.note(fmt::format("calibrated: encode {:.2f}, merge {:.2f}, finalise {:.2f} ns a value, {:.2f} ns a byte\n",
                        compute->encode_ns, compute->merge_ns, compute->finalise_ns, compute->byte_ns));
  }
  const auto begun = std::chrono::steady_clock::now();
  const auto result = simulator::run_seed(file, options.seed, settle, 0);
  if (!result.ok()) return fail(io, "simulate", result.error(), kUsage);
  const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  const simulator::Capacity capacity = simulator::capacity_of(*result);
  const std::vector<Figure> figures = bench ? compare(capacity, *bench) : std::vector<Figure>{};
  print(io, capacity);
  print(io, figures);
  io.note(fmt::format("{} events, {:.0f} s of virtual time in {}\n", result->events, result->virtual_s,
                      format_seconds(took)));
  for (const simulator::Violation& violation : result->violations) {
    io.print(violation.invariant + ": " + violation.detail + "\n");
  }
  if (!options.json.empty()) {
    const Status written = write_text_file(options.json, pretty(to_json(*result, capacity, *compute, figures)));
    if (!written.ok()) return fail(io, "simulate", written.error());
  }
  if (capacity.rounds == 0) return fail(io, "simulate", {Code::kFailedPrecondition, "no round was committed"});
  return result->violations.empty() ? kDone : kFailed;
}

}  // namespace fluvial::cli
