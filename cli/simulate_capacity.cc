#include "cli/simulate_capacity.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "cli/format.h"
#include "cli/json.h"
#include "cli/local_run.h"
#include "cli/table.h"
#include "core/config/toml_file.h"
#include "simulator/run/capacity.h"

namespace fluvial::cli {
namespace {

// What a real run took: fluvial bench tree --json.
struct Measured {
  double round_p50_s = 0;
  double up_bytes_a_site = 0;
};

Result<Measured> read_measured(const std::string& path) {
  FLUVIAL_ASSIGN(const std::string text, config::read_text_file(path));
  FLUVIAL_ASSIGN(const json::value value, parse_json(text, path));
  std::vector<double> seconds;
  for (const json::value& round : array_member(value, "round_seconds")) seconds.push_back(to_number(round, 0));
  if (seconds.empty()) {
    return Error{Code::kInvalidArgument, path + ": no round_seconds; expected what fluvial bench tree --json wrote"};
  }
  std::sort(seconds.begin(), seconds.end());
  return Measured{seconds[seconds.size() / 2], number_member(value, "bytes_up_per_site_round", 0)};
}

double off(double predicted, double measured) { return measured > 0 ? predicted / measured - 1 : 0; }

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

json::object to_json(const simulator::SeedResult& result, const simulator::Capacity& capacity,
                     const std::optional<Measured>& measured) {
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
                      {"trace_hash", result.trace_hash}};
  if (measured) {
    object["against"] = json::object{{"round_seconds_p50", measured->round_p50_s},
                                     {"round_seconds_off", off(capacity.round_p50_s, measured->round_p50_s)},
                                     {"bytes_off", off(up_bytes_a_site(capacity), measured->up_bytes_a_site)}};
  }
  return object;
}

void print(const Io& io, const simulator::Capacity& capacity, const std::optional<Measured>& measured) {
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
  if (!measured) return;
  io.print(fmt::format(
      "\nagainst the real run: round p50 {} predicted, {} measured ({:+.0f} %); up a site {} and {} ({:+.1f} %)\n",
      format_seconds(capacity.round_p50_s), format_seconds(measured->round_p50_s),
      100 * off(capacity.round_p50_s, measured->round_p50_s), format_bytes(up_bytes_a_site(capacity)),
      format_bytes(measured->up_bytes_a_site), 100 * off(up_bytes_a_site(capacity), measured->up_bytes_a_site)));
}

}  // namespace

int run_capacity(const Io& io, const simulator::ScenarioFile& file, const simulator::Settle& settle, std::uint64_t seed,
                 const std::string& against, const std::string& json) {
  std::optional<Measured> measured;
  if (!against.empty()) {
    auto read = read_measured(against);
    if (!read.ok()) return fail(io, "simulate --against", read.error(), kUsage);
    measured = *read;
  }
  const auto begun = std::chrono::steady_clock::now();
  const auto result = simulator::run_seed(file, seed, settle, 0);
  if (!result.ok()) return fail(io, "simulate", result.error(), kUsage);
  const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  const simulator::Capacity capacity = simulator::capacity_of(*result);
  print(io, capacity, measured);
  io.note(fmt::format("{} events, {:.0f} s of virtual time in {}\n", result->events, result->virtual_s,
                      format_seconds(took)));
  for (const simulator::Violation& violation : result->violations) {
    io.print(violation.invariant + ": " + violation.detail + "\n");
  }
  if (!json.empty()) {
    const Status written = write_text_file(json, pretty(to_json(*result, capacity, measured)));
    if (!written.ok()) return fail(io, "simulate", written.error());
  }
  if (capacity.rounds == 0) return fail(io, "simulate", {Code::kFailedPrecondition, "no round was committed"});
  return result->violations.empty() ? kDone : kFailed;
}

}  // namespace fluvial::cli
