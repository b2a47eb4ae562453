// What a person sees of a run: a line while it goes on, a table at the end, an account of what went wrong.
#include <fmt/format.h>

#include <algorithm>
#include <boost/json/serialize.hpp>
#include <functional>

#include "cli/format.h"
#include "cli/table.h"
#include "tests/chaos/chaos.h"

namespace fluvial::chaos {
namespace {

using namespace std::chrono_literals;
using cli::json::value;
using std::chrono::steady_clock;

constexpr std::size_t kLogLines = 40;
constexpr std::size_t kGapsShown = 5;

double seconds_of(steady_clock::duration time) { return std::chrono::duration<double>(time).count(); }

std::uint64_t total(const std::map<std::string, std::uint64_t>& counts) {
  std::uint64_t sum = 0;
  for (const auto& [key, count] : counts) sum += count;
  return sum;
}

std::uint64_t count_of(const std::map<std::string, std::uint64_t>& counts, const std::string& key) {
  const auto found = counts.find(key);
  return found == counts.end() ? 0 : found->second;
}

cli::json::object to_object(const std::map<std::string, std::uint64_t>& counts) {
  cli::json::object object;
  for (const auto& [key, count] : counts) object[key] = count;
  return object;
}

}  // namespace

void Chaos::show(const Progress& progress, bool last) {
  const bool interactive = io_.terminal().is_interactive();
  const auto now = steady_clock::now();
  if (!last && now - shown_ < (interactive ? 200ms : 5'000ms)) return;
  shown_ = now;
  std::vector<std::string> out;
  for (const auto& [name, node] : disturber_->nodes()) {
    if (node.state != Disturber::State::kUp) out.push_back(fmt::format("{} {}", name, state_name(node.state)));
  }
  const std::string line = fmt::format(
      "{:6.1f} s  round {:>5}  {}/{} sites  {:4.1f} s ago, longest {:.1f} s  kills {:>4}  stops {:>4}  cuts {:>4}  "
      "disks {:>4}  nets {:>4}  {}",
      seconds_of(now - begun_), rounds_before_ + progress.committed, progress.contributors, options_.sites,
      seconds_of(now - progress.last_commit), seconds_of(progress.longest_gap), total(disturber_->kills()),
      total(disturber_->stops()), total(disturber_->power_cuts()), total(disturber_->disk_faults()),
      total(disturber_->network_faults()), fmt::join(out, ", "));
  if (!interactive) return io_.print(line + "\n");
  io_.print("\r\033[K" + cli::shorten(line, std::max<std::size_t>(io_.terminal().columns(), 40) - 1) +
            (last ? "\n" : ""));
}

// The longest ones, and the longest ones with the coordinator up: the first are the faults', the others the product's.
std::vector<GapShown> Chaos::longest_gaps() const {
  std::vector<GapShown> all;
  for (const auto& auditor : auditors_) {
    for (const Gap& gap : auditor->gaps()) {
      all.push_back({seconds_of(gap.until - gap.from), seconds_of(disturber_->coordinator_out(gap.from, gap.until)),
                     gap.round, gap.attempt});
    }
  }
  const auto up_seconds = [](const GapShown& gap) { return gap.seconds - gap.out_seconds; };
  std::ranges::sort(all, std::ranges::greater(), up_seconds);
  const auto middle = all.begin() + static_cast<std::ptrdiff_t>(std::min(kGapsShown, all.size()));
  std::ranges::sort(middle, all.end(), std::ranges::greater(), &GapShown::seconds);
  all.resize(std::min(2 * kGapsShown, all.size()));
  return all;
}

// What all runs have in common.
Chaos::Totals Chaos::totals() const {
  Totals all;
  for (const auto& auditor : auditors_) {
    const CommitLog& log = auditor->log();
    all.rounds += log.last();
    all.late += log.late();
    all.refused += log.refused();
    all.between_passes += log.between_passes();
    for (const auto& [attempts, rounds] : log.by_attempts()) all.by_attempts[attempts] += rounds;
    for (const auto& [site, rounds] : log.counted()) all.counted[site] += rounds;
  }
  return all;
}

void Chaos::print_report() const {
  const Totals log = totals();
  const auto right = [](const char* name) { return cli::Table::Column{name, cli::Align::kRight}; };
  cli::Table roles({{"ROLE"}, right("KILLED"), right("STOPPED"), right("POWER CUT"), right("DISK"), right("NETWORK")});
  for (const char* role : {"coordinator", "aggregator", "site"}) {
    std::vector<std::string> cells = {role};
    for (const auto* counts : {&disturber_->kills(), &disturber_->stops(), &disturber_->power_cuts(),
                               &disturber_->disk_faults(), &disturber_->network_faults()}) {
      cells.push_back(std::to_string(count_of(*counts, role)));
    }
    roles.add(std::move(cells));
  }
  cli::Table attempts({{"ATTEMPTS"}, {"ROUNDS", cli::Align::kRight}});
  for (const auto& [attempt, rounds] : log.by_attempts) attempts.add({std::to_string(attempt), std::to_string(rounds)});
  cli::Table sites({{"SITE"}, {"COUNTED", cli::Align::kRight}, {"NOT COUNTED", cli::Align::kRight}});
  for (const cli::LocalSite& site : federation_->sites()) {
    const std::uint64_t counted = count_of(log.counted, site.name);
    sites.add({site.name, std::to_string(counted), std::to_string(log.rounds - counted)});
  }
  cli::Table gaps({{"WITHOUT A COMMIT", cli::Align::kRight},
                   {"COORDINATOR OUT", cli::Align::kRight},
                   {"UNTIL ROUND", cli::Align::kRight},
                   {"ATTEMPT", cli::Align::kRight}});
  for (const GapShown& gap : longest_gaps()) {
    gaps.add({cli::format_seconds(gap.seconds), cli::format_seconds(gap.out_seconds), std::to_string(gap.round),
              std::to_string(gap.attempt)});
  }
  for (const cli::Table* table : {&roles, &attempts, &sites, &gaps}) io_.print("\n" + table->render(io_.terminal()));
  io_.print(fmt::format(
      "\n{} runs, {} rounds in {} of faults ({} kills, {} stops, {} power cuts, {} disks and {} networks that failed, "
      "{} workers that walked out): each is exact, and committed once\n"
      "{} processes ended of themselves when their disk failed; a person paused {} times, and mended {} times\n"
      "late {}, refused {}, gone between two passes {}\n"
      "two rounds with every site at most {} after the last fault of each run; every submission has an outcome, every "
      "residual is exact\n",
      auditors_.size(), figures_.rounds, cli::format_seconds(figures_.seconds), total(disturber_->kills()),
      total(disturber_->stops()), total(disturber_->power_cuts()), total(disturber_->disk_faults()),
      total(disturber_->network_faults()), workers_->walked_out(), disturber_->ended_of_themselves(), paused_, mended_,
      log.late, log.refused, log.between_passes, cli::format_seconds(figures_.healed_s)));
}

cli::json::object Chaos::to_json() const {
  const Totals log = totals();
  cli::json::object attempts;
  for (const auto& [attempt, rounds] : log.by_attempts) attempts[std::to_string(attempt)] = rounds;
  cli::json::array gaps;
  for (const GapShown& gap : longest_gaps()) {
    gaps.push_back(cli::json::object{{"seconds", gap.seconds},
                                     {"coordinator_out_seconds", gap.out_seconds},
                                     {"until_round", gap.round},
                                     {"attempt", gap.attempt}});
  }
  return {{"seed", options_.seed},
          {"sites", options_.sites},
          {"aggregators", options_.aggregators},
          {"tiers", options_.tiers},
          {"params", options_.params},
          {"codec", options_.codec},
          {"default_settings", options_.defaults},
          {"seconds", figures_.seconds},
          {"rounds", figures_.rounds},
          {"runs", auditors_.size()},
          {"rounds_checked", log.rounds},
          {"kills", to_object(disturber_->kills())},
          {"stops", to_object(disturber_->stops())},
          {"power_cuts", to_object(disturber_->power_cuts())},
          {"disk_faults", to_object(disturber_->disk_faults())},
          {"network_faults", to_object(disturber_->network_faults())},
          {"ended_of_themselves", disturber_->ended_of_themselves()},
          {"workers_walked_out", workers_->walked_out()},
          {"gaps", std::move(gaps)},
          {"rounds_by_attempts", std::move(attempts)},
          {"counted", to_object(log.counted)},
          {"late", log.late},
          {"refused", log.refused},
          {"between_passes", log.between_passes},
          {"healed_seconds", figures_.healed_s}};
}

std::string Chaos::beliefs() const {
  std::string text;
  for (const auto& [name, node] : disturber_->nodes()) {
    const bool answers = node.state == Disturber::State::kUp || node.state == Disturber::State::kStarting;
    const Result<value> status =
        answers ? federation_->status_of(name) : Result<value>(Error{Code::kUnavailable, "not asked"});
    text += fmt::format("{} ({}): {}\n", name, state_name(node.state),
                        status.ok() ? cli::json::serialize(*status) : status.error().to_string());
  }
  if (disturber_->nodes().at("coordinator").state == Disturber::State::kUp) {
    const auto listed = federation_->admin().get("/v1/nodes");
    const value nodes = listed.ok() ? *listed : value();
    for (const value& node : cli::array_member(nodes, "nodes")) {
      text += fmt::format("the coordinator of {}: connected {}, parent {}, lease {}\n", cli::text_member(node, "name"),
                          cli::bool_member(node, "connected"), cli::text_member(node, "parent", "none"),
                          cli::count_member(node, "lease_epoch"));
    }
  }
  return text;
}

std::string Chaos::account() const {
  if (!federation_) return "";
  std::string text;
  if (disturber_) {
    text += fmt::format("\nthe last faults:\n{}\n\nwhat each role believes:\n{}",
                        fmt::join(disturber_->last_actions(), "\n"), beliefs());
  }
  for (const auto& [name, role] : federation_->roles()) {
    const std::string& path = federation_->log_of(name);
    text += fmt::format("\n==> {}\n{}\n", path, cli::tail_of(path, kLogLines));
  }
  return text;
}

}  // namespace fluvial::chaos
