// fluvial simulate: the logic of every role in virtual time, from seeds.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "cli/advise.h"
#include "cli/command.h"
#include "cli/format.h"
#include "cli/json.h"
#include "cli/local_run.h"
#include "cli/simulate_capacity.h"
#include "core/config/settings.h"
#include "simulator/roles/settle.h"
#include "simulator/run/seeds.h"

namespace fluvial::cli {
namespace {

struct SimulateOptions {
  std::string scenario;
  std::uint64_t first_seed = 1;
  std::uint64_t seeds = 1;
  std::uint64_t threads = 1;
  std::uint64_t failures = 1;
  std::uint64_t lines = 80;
  std::uint64_t again = 0;
  bool twice = false;
  bool log = false;
  bool capacity = false;
  CapacityOptions planner;
  AdviceOptions advice;
  std::string json;
};

json::object to_json(const simulator::SeedsResult& result) {
  json::array violations;
  for (const simulator::SeedResult& failure : result.failures) {
    for (const simulator::Violation& violation : failure.violations) {
      violations.push_back(
          json::object{{"seed", violation.seed}, {"invariant", violation.invariant}, {"detail", violation.detail}});
    }
  }
  return {{"seeds", result.seeds},
          {"again", result.again},
          {"events", result.events},
          {"violations", std::move(violations)},
          {"rounds_committed", result.rounds_committed},
          {"trace_hash", result.trace_hash}};
}

void print_log(const Io& io, const std::vector<std::string>& lines, std::size_t lines_max) {
  const std::size_t from = lines.size() - std::min(lines.size(), lines_max);
  for (std::size_t i = from; i < lines.size(); ++i) io.print(lines[i] + "\n");
}

void print_failure(const Io& io, const SimulateOptions& options, const simulator::SeedResult& failure) {
  const Terminal terminal = io.terminal();
  io.print(terminal.bold(fmt::format("\nseed {} of {}", failure.seed, options.scenario)) +
           fmt::format(": event {}, {:.3f} s, {} rounds committed\n", failure.events, failure.virtual_s,
                       failure.rounds_committed));
  print_log(io, failure.log, options.lines);
  for (const simulator::Violation& violation : failure.violations) {
    io.print(terminal.red(violation.invariant) + ": " + violation.detail + "\n");
  }
  io.print(fmt::format("again: fluvial simulate {} --first-seed {} --seeds 1 --log\n", options.scenario, failure.seed));
}

simulator::SeedsProgress progress_on(const Io& io, const SimulateOptions& options) {
  if (!Terminal::of(io.err).is_interactive() || options.seeds < 2) return {};
  const auto shown = std::make_shared<std::chrono::steady_clock::time_point>();
  return [&io, &options, shown](std::uint64_t done, std::uint64_t failed) {
    const auto now = std::chrono::steady_clock::now();
    if (done < options.seeds && now < *shown + std::chrono::milliseconds(200)) return;
    *shown = now;
    io.note(
        fmt::format("\r{} of {} seeds, {} failed{}", done, options.seeds, failed, done == options.seeds ? "\n" : ""));
  };
}

int run_simulation(const Io& io, const SimulateOptions& options) {
  if (options.scenario.empty()) {
    return fail(io, "simulate", {Code::kInvalidArgument, "SCENARIO.toml is required, or --advise PLAN.toml"}, kUsage);
  }
  const auto file = simulator::ScenarioFile::load(options.scenario);
  if (!file.ok()) return fail(io, "simulate", file.error(), kUsage);
  const simulator::Settle settle = simulator::settle();
  const simulator::SeedsOptions how{.first_seed = options.first_seed,
                                    .seeds = options.seeds,
                                    .threads = static_cast<unsigned>(options.threads),
                                    .twice = options.twice ? options.seeds : options.again,
                                    .failures_max = options.failures,
                                    .lines_max = options.lines};
  if (options.capacity) {
    CapacityOptions planner = options.planner;
    planner.seed = options.first_seed;
    planner.json = options.json;
    return run_capacity(io, *file, settle, planner);
  }
  const auto begun = std::chrono::steady_clock::now();
  const auto result = simulator::run_seeds(*file, settle, how, progress_on(io, options));
  if (!result.ok()) return fail(io, "simulate", result.error(), kUsage);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  if (options.log && result->failures.empty()) {
    const auto told = simulator::run_seed(*file, options.first_seed + options.seeds - 1, settle, options.lines);
    if (told.ok()) print_log(io, told->log, options.lines);
  }
  for (const simulator::SeedResult& failure : result->failures) print_failure(io, options, failure);
  io.print(fmt::format("{}: {} seeds{}, {} events, {} rounds committed, {} failed, {}; trace {}\n", file->name(),
                       result->seeds, result->again > 0 ? fmt::format(", {} of them twice", result->again) : "",
                       result->events, result->rounds_committed, result->failures.size(), format_seconds(seconds),
                       result->trace_hash));
  if (!options.json.empty()) {
    const Status written = write_text_file(options.json, pretty(to_json(*result)));
    if (!written.ok()) return fail(io, "simulate", written.error());
  }
  return result->failures.empty() ? kDone : kFailed;
}

void declare_advice(CLI::App& simulate, AdviceOptions& advice) {
  simulate
      .add_option("--advise", advice.plan,
                  "in place of a scenario: what a round of this plan takes over given lines, by codec and number of "
                  "local steps, and which choice follows (docs/operations/choose.md)")
      ->type_name("PLAN.toml");
  const auto with = [&simulate](const char* flag, std::string& value, const char* type, const char* help) {
    return simulate.add_option(flag, value, std::string("with --advise: ") + help)
        ->type_name(type)
        ->capture_default_str();
  };
  const CLI::Validator a_rate = checked("a rate such as 50mbit, 1gbit or 6MB (a second)", [](const std::string& text) {
    const auto rate = parse_rate(text);
    return rate.ok() ? Status() : Status(rate.error());
  });
  const CLI::Validator a_time = checked("a duration such as 40ms or 1.2s", [](const std::string& text) {
    const auto time = config::parse_milliseconds(text);
    return time.ok() ? Status() : Status(time.error());
  });
  simulate.add_option("--sites", advice.sites, "with --advise: how many sites")
      ->type_name("N")
      ->check(whole_number(1, 1'000'000))
      ->capture_default_str();
  simulate
      .add_option("--values", advice.values, "with --advise: the model's parameters (default: of the plan's model)")
      ->type_name("N")
      ->check(whole_number(1));
  with("--up", advice.up, "RATE", "a site's line upwards: 50mbit, 1gbit, 6MB a second")->check(a_rate);
  with("--down", advice.down, "RATE", "a site's line downwards")->check(a_rate);
  with("--rtt", advice.rtt, "TIME", "there and back: 40ms")->check(a_time);
  with("--step", advice.step, "TIME", "one training step at a site: 1.2s")->check(a_time);
}

}  // namespace

void add_simulate_command(CLI::App& app, Commands& commands) {
  const auto options = std::make_shared<SimulateOptions>();
  CLI::App* simulate =
      app.add_subcommand("simulate", "the logic of every role in virtual time, from seeds: looks for what breaks it");
  simulate->add_option("scenario", options->scenario, "a scenario (docs/operations/simulate.md)")
      ->type_name("SCENARIO.toml");
  const auto number = [simulate](const std::string& flag, std::uint64_t& value, const std::string& help,
                                 std::uint64_t least, std::uint64_t most) {
    simulate->add_option(flag, value, help)->type_name("N")->check(whole_number(least, most))->capture_default_str();
  };
  constexpr std::uint64_t kMany = std::uint64_t{1} << 62;
  number("--first-seed", options->first_seed, "the first seed", 0, kMany);
  number("--seeds", options->seeds, "how many, one after the other", 1, kMany);
  number("--threads", options->threads, "seeds at the same time", 1, 1024);
  number("--failures", options->failures, "stop after this many failed seeds", 1, kMany);
  number("--log-lines", options->lines, "of the log around a failure", 0, 1'000'000);
  number("--again", options->again, "run the first N seeds twice: each must agree with itself", 0, kMany);
  simulate->add_flag("--twice", options->twice, "each seed twice");
  simulate->add_flag("--log", options->log, "print the last events of the last seed");
  simulate->add_flag("--capacity", options->capacity,
                     "one seed as a capacity planner: round times, bytes a tier, stragglers");
  simulate
      ->add_option("--calibrate", options->planner.calibrate,
                   "with --capacity: JSON files of `fluvial bench tree`, which say what work costs")
      ->type_name("FILE");
  simulate
      ->add_option(
          "--against", options->planner.against,
          "with --capacity: the JSON of one run of this tree, model and codec; says how far off the prediction is")
      ->type_name("FILE");
  simulate->add_option("--json", options->json, "write the result to this file")->type_name("FILE");
  declare_advice(*simulate, options->advice);
  simulate->footer(
      "Examples:\n  fluvial simulate tests/simulator/scenarios/everything.toml --first-seed 1 --seeds 100\n"
      "  fluvial simulate --advise plan.toml --sites 32 --up 50mbit --down 200mbit --rtt 40ms --step 1.2s");
  simulate->callback([&commands, options] {
    commands.chosen = [&commands, options] {
      if (options->advice.plan.empty()) return run_simulation(commands.io, *options);
      options->advice.json = options->json;
      return run_advise(commands.io, options->advice, commands.files);
    };
  });
}

}  // namespace fluvial::cli
