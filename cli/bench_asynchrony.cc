// fluvial bench asynchrony: what windows and late updates gain and cost where some sites are slow, in virtual time.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>

#include "cli/bench.h"
#include "cli/format.h"
#include "cli/json.h"
#include "cli/local_run.h"
#include "cli/table.h"
#include "simulator/study/asynchrony.h"

namespace fluvial::cli {
namespace {

using simulator::BiasFigures;
using simulator::TrainingFigures;

struct AsynchronyOptions {
  simulator::StudyFederation federation;
  std::uint64_t training_s = 10;
  std::uint64_t minutes = 30;
  std::uint64_t first_seed = 1;
  std::uint64_t seeds = 5;
  double closed = 0.9;
  std::string json;
};

template <typename Figures>
struct Measured {
  simulator::Mode mode;
  std::vector<Figures> seeds;
};
using Training = Measured<TrainingFigures>;
using Bias = Measured<BiasFigures>;

template <typename Figures, typename Field>
simulator::Spread spread(const std::vector<Figures>& seeds, Field field) {
  std::vector<double> values;
  for (const Figures& figures : seeds) values.push_back(static_cast<double>(figures.*field));
  return simulator::spread_of(std::move(values));
}

std::string shown(double value, int digits) {
  const std::string text = fmt::format("{:.{}f}", value, digits);
  return text.find_first_not_of("-0.") == std::string::npos ? fmt::format("{:.{}f}", 0.0, digits) : text;
}

// "0.36 (0.29 to 0.41)": the median over the seeds, and what lies around it. Of one seed: its value.
std::string shown(const simulator::Spread& spread, int digits) {
  const std::string median = shown(spread.median, digits);
  if (spread.least == spread.greatest) return median;
  return fmt::format("{} ({} to {})", median, shown(spread.least, digits), shown(spread.greatest, digits));
}

std::string part(const simulator::Spread& spread) { return format_percent(spread.median); }

std::string reached(const std::vector<TrainingFigures>& seeds) {
  std::vector<double> times;
  for (const TrainingFigures& figures : seeds) {
    if (figures.reached_s) times.push_back(*figures.reached_s);
  }
  if (times.empty()) return "never";
  const std::string text = shown(simulator::spread_of(times), 0);
  return times.size() == seeds.size() ? text : fmt::format("{}, {} of {} seeds", text, times.size(), seeds.size());
}

std::string reached_commits(const std::vector<TrainingFigures>& seeds) {
  std::vector<double> commits;
  for (const TrainingFigures& figures : seeds) {
    if (figures.reached_commits) commits.push_back(static_cast<double>(*figures.reached_commits));
  }
  return commits.empty() ? "-" : fmt::format("{:.0f}", simulator::spread_of(commits).median);
}

// How many times as fast as the mode that waits for all, seed by seed.
std::string faster(const std::vector<TrainingFigures>& seeds, const std::vector<TrainingFigures>& patient) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < seeds.size(); ++i) {
    if (seeds[i].reached_s && patient[i].reached_s) ratios.push_back(*patient[i].reached_s / *seeds[i].reached_s);
  }
  return ratios.empty() ? "-" : fmt::format("{:.1f}", simulator::spread_of(ratios).median);
}

const std::vector<TrainingFigures>& patient_of(const std::vector<Training>& all) {
  const auto found = std::ranges::find_if(all, [](const Training& one) { return one.mode.waits_for_all; });
  return (found == all.end() ? all.front() : *found).seeds;
}

void print(const Io& io, const AsynchronyOptions& options, const std::vector<Training>& measured) {
  io.print(fmt::format("Softmax regression until {} of the way from the first loss to the least is behind\n",
                       format_percent(options.closed)));
  Table table({{"MODE"},
               {"SECONDS", Align::kRight},
               {"TIMES AS FAST", Align::kRight},
               {"COMMITS", Align::kRight, 2},
               {"COMMITS IN ALL", Align::kRight, 3},
               {"STALENESS", Align::kRight, 4},
               {"OF SLOW SITES", Align::kRight, 5},
               {"LOSS AT THE END", Align::kRight, 6},
               {"ITS LOSS AT SLOW SITES", Align::kRight, 7}});
  for (const auto& [mode, seeds] : measured) {
    table.add({mode.name, reached(seeds), faster(seeds, patient_of(measured)), reached_commits(seeds),
               fmt::format("{:.0f}", spread(seeds, &TrainingFigures::commits).median),
               fmt::format("{:.2f}", spread(seeds, &TrainingFigures::staleness).median),
               part(spread(seeds, &TrainingFigures::slow_part)), shown(spread(seeds, &TrainingFigures::end_loss), 3),
               shown(spread(seeds, &TrainingFigures::end_loss_slow), 3)});
  }
  io.print(table.render(io.terminal()));
  const std::vector<TrainingFigures>& seeds = measured.front().seeds;
  io.print(fmt::format("the least loss of any model: {}; that model's at slow sites: {}\n",
                       shown(spread(seeds, &TrainingFigures::least_loss), 3),
                       shown(spread(seeds, &TrainingFigures::least_loss_slow), 3)));
}

void print(const Io& io, const std::vector<Bias>& measured) {
  io.print("\nA quadratic: distances of the model, averaged over the last half of the time\n");
  Table table({{"MODE"},
               {"TO THE OPTIMUM", Align::kRight},
               {"TO THE MEAN BY RATES", Align::kRight, 3},
               {"TO THE MEAN BY WHAT COUNTED", Align::kRight, 4},
               {"PULL", Align::kRight},
               {"OF SLOW SITES", Align::kRight, 2}});
  for (const auto& [mode, seeds] : measured) {
    table.add({mode.name, shown(spread(seeds, &BiasFigures::to_optimum), 3),
               shown(spread(seeds, &BiasFigures::to_rates), 3), shown(spread(seeds, &BiasFigures::to_shares), 3),
               shown(spread(seeds, &BiasFigures::pull), 2), part(spread(seeds, &BiasFigures::slow_part))});
  }
  io.print(table.render(io.terminal()));
  io.print(fmt::format("optimum and mean by rates are {} apart; pull 0: at the optimum, 1: as far as rates predict\n",
                       shown(spread(measured.front().seeds, &BiasFigures::apart), 3)));
}

json::value or_null(const std::optional<double>& value) { return value ? json::value(*value) : json::value(); }

json::object to_json(const TrainingFigures& figures) {
  json::object object{{"seed", figures.seed},
                      {"reached_seconds", or_null(figures.reached_s)},
                      {"reached_commits", nullptr},
                      {"commits", figures.commits},
                      {"staleness", figures.staleness},
                      {"slow_part", figures.slow_part},
                      {"end_loss", figures.end_loss},
                      {"end_loss_slow", figures.end_loss_slow},
                      {"least_loss", figures.least_loss},
                      {"least_loss_slow", figures.least_loss_slow}};
  if (figures.reached_commits) object["reached_commits"] = *figures.reached_commits;
  return object;
}

json::object to_json(const BiasFigures& figures) {
  return {{"seed", figures.seed},           {"to_optimum", figures.to_optimum}, {"to_rates", figures.to_rates},
          {"to_shares", figures.to_shares}, {"apart", figures.apart},           {"pull", figures.pull},
          {"commits", figures.commits},     {"staleness", figures.staleness},   {"slow_part", figures.slow_part}};
}

template <typename Figures>
json::array to_json(const std::vector<Measured<Figures>>& measured) {
  json::array modes;
  for (const auto& [mode, figures] : measured) {
    json::array plan(mode.plan.begin(), mode.plan.end());
    json::array seeds;
    for (const Figures& one : figures) seeds.push_back(to_json(one));
    modes.push_back(json::object{{"mode", mode.name}, {"plan", std::move(plan)}, {"seeds", std::move(seeds)}});
  }
  return modes;
}

json::object to_json(const AsynchronyOptions& options, const std::vector<Training>& training,
                     const std::vector<Bias>& bias) {
  const simulator::StudyFederation& federation = options.federation;
  return {{"sites", federation.sites},
          {"aggregators", federation.aggregators},
          {"slow_one_in", federation.speeds.slow_one_in},
          {"slow_factor", federation.speeds.slow_factor},
          {"training_seconds", options.training_s},
          {"minutes", options.minutes},
          {"closed", options.closed},
          {"plan", json::array(federation.plan.begin(), federation.plan.end())},
          {"training", to_json(training)},
          {"bias", to_json(bias)}};
}

// Every mode and seed, by what measures one.
template <typename Figures, typename Measure>
Result<std::vector<Measured<Figures>>> measure_all(const Io& io, const AsynchronyOptions& options,
                                                   std::string_view what, Measure measure) {
  std::vector<Measured<Figures>> all;
  for (simulator::Mode& mode : simulator::modes_of(options.federation)) {
    if (Terminal::of(io.err).is_interactive()) io.note(fmt::format("{}: {}\n", what, mode.name));
    Measured<Figures>& measured = all.emplace_back(std::move(mode));
    for (std::uint64_t i = 0; i < options.seeds; ++i) {
      FLUVIAL_ASSIGN(const Figures figures, measure(measured.mode, options.first_seed + i));
      measured.seeds.push_back(figures);
    }
  }
  return all;
}

int run_asynchrony(const Io& io, AsynchronyOptions options) {
  simulator::StudyFederation& federation = options.federation;
  federation.training = std::chrono::seconds(options.training_s);
  federation.lasts = std::chrono::minutes(options.minutes);
  const Status plans = simulator::check_plans(federation);
  if (!plans.ok()) return fail(io, "bench asynchrony: --plan", plans.error(), kUsage);
  const auto training =
      measure_all<TrainingFigures>(io, options, "training", [&](const simulator::Mode& mode, std::uint64_t seed) {
        return simulator::measure_training(federation, mode, seed, options.closed);
      });
  if (!training.ok()) return fail(io, "bench asynchrony", training.error());
  print(io, options, *training);
  const auto bias = measure_all<BiasFigures>(io, options, "bias", [&](const auto& mode, std::uint64_t seed) {
    return simulator::measure_bias(federation, mode, seed);
  });
  if (!bias.ok()) return fail(io, "bench asynchrony", bias.error());
  print(io, *bias);
  if (options.json.empty()) return kDone;
  const Status written = write_text_file(options.json, pretty(to_json(options, *training, *bias)));
  return written.ok() ? kDone : fail(io, "bench asynchrony", written.error());
}

constexpr const char* kAsynchronyFooter =
    "Each mode is the same federation with other keys in its plan: rounds that close without who is late, rounds that\n"
    "wait for all, rounds with late = \"next\", windows with half of the sites as their goal, windows with one.\n"
    "The coordinator, the aggregators and the sites are the shipped code in virtual time, the training is real, and\n"
    "nothing fails. The same options give the same figures. Behind each median stand the least and the greatest of "
    "all\n"
    "seeds. What the columns mean: docs/benchmarks-asynchrony.md.\n\n"
    "Examples:\n"
    "  fluvial bench asynchrony                                     one site in ten is five times slower\n"
    "  fluvial bench asynchrony --slow-one-in 2 --slow-factor 3     half of the sites are three times slower\n"
    "  fluvial bench asynchrony --seeds 1 --minutes 20              a first look\n"
    "  fluvial bench asynchrony --plan 'staleness_power = 0'        a plan's key, in every mode";

void declare_federation(CLI::App& asynchrony, simulator::StudyFederation& federation) {
  const auto number = [&](const char* flag, std::uint64_t& value, const char* help, std::uint64_t least,
                          std::uint64_t most) {
    asynchrony.add_option(flag, value, help)->type_name("N")->check(whole_number(least, most))->capture_default_str();
  };
  number("--sites", federation.sites, "sites", 2, 1'000);
  number("--aggregators", federation.aggregators, "regional aggregators among whom they are divided; 0: none", 0, 100);
  number("--slow-one-in", federation.speeds.slow_one_in, "one site in so many is slow", 2, 1'000);
  asynchrony.add_option("--slow-factor", federation.speeds.slow_factor, "how many times as long it trains")
      ->type_name("FACTOR")
      ->check(CLI::Range(1.0, 100.0))
      ->capture_default_str();
  asynchrony
      .add_option(
          "--plan", federation.plan,
          "a key of every mode's plan, in place of the mode's own; keys of `async.` are for windows alone. May be "
          "repeated")
      ->type_name("'KEY = VALUE'")
      ->allow_extra_args(false);
}

}  // namespace

void add_bench_asynchrony_command(CLI::App& bench, Commands& commands) {
  const auto options = std::make_shared<AsynchronyOptions>();
  CLI::App* asynchrony = bench.add_subcommand(
      "asynchrony",
      "real training with slow sites, in virtual time: rounds and windows to the same loss, and their bias");
  const auto number = [asynchrony](const char* flag, std::uint64_t& value, const char* help, std::uint64_t least,
                                   std::uint64_t most) {
    asynchrony->add_option(flag, value, help)->type_name("N")->check(whole_number(least, most))->capture_default_str();
  };
  declare_federation(*asynchrony, options->federation);
  number("--training-s", options->training_s, "seconds that a fast site trains for an update, on average", 1, 3'600);
  number("--minutes", options->minutes, "how long each run lasts, in virtual time", 1, 10'000);
  number("--first-seed", options->first_seed, "the first seed, of data and times", 0, 1'000'000'000);
  number("--seeds", options->seeds, "how many seeds", 1, 1'000);
  asynchrony
      ->add_option("--closed", options->closed,
                   "the target: this part of the way from the first loss to the least of any model")
      ->type_name("PART")
      ->check(CLI::Range(0.01, 1.0))
      ->capture_default_str();
  asynchrony->add_option("--json", options->json, "write the figures of every seed to this file")->type_name("FILE");
  asynchrony->footer(kAsynchronyFooter);
  asynchrony->callback([&commands, options] {
    commands.chosen = [&commands, options] { return run_asynchrony(commands.io, *options); };
  });
}

}  // namespace fluvial::cli
