#include "simulator/study/asynchrony.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <span>

#include "core/base/check.h"
#include "core/round/lateness.h"
#include "simulator/roles/settle.h"
#include "simulator/study/quadratic.h"
#include "simulator/study/softmax.h"

namespace fluvial::simulator {
namespace {

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

std::string ms(Duration duration) { return std::to_string(static_cast<std::uint64_t>(seconds(duration) * 1000)); }

PlanLines deadlines(Duration soft_min, Duration soft, Duration hard) {
  return {"deadlines.soft_min_ms = " + ms(soft_min), "deadlines.soft_ms = " + ms(soft),
          "deadlines.hard_ms = " + ms(hard)};
}

PlanLines operator+(PlanLines lines, const PlanLines& more) {
  lines.insert(lines.end(), more.begin(), more.end());
  return lines;
}

std::string key_of(const std::string& line) {
  const std::string key = line.substr(0, line.find('='));
  return key.substr(0, key.find_last_not_of(' ') + 1);
}

std::string plan_of(const StudyFederation& federation, const Mode& mode) {
  const PlanLines common = {"rounds = 1000000000", "participants.min = " + std::to_string(federation.sites)};
  std::map<std::string, std::string> lines;
  for (const std::string& line : common + mode.plan) lines[key_of(line)] = line;
  for (const std::string& line : federation.plan) {
    if (mode.has_windows || !line.starts_with("async.")) lines[key_of(line)] = line;
  }
  std::string text = "[plan]\n";
  for (const auto& [key, line] : lines) text += line + "\n";
  return text;
}

// The sites are enrolled, nothing fails, and lines take little of the time.
std::string scenario_of(const StudyFederation& federation, const Mode& mode) {
  const std::uint64_t tiers = federation.aggregators == 0 ? 0 : 1;
  const std::uint64_t below = tiers == 0 ? federation.sites : federation.sites / federation.aggregators;
  const std::uint64_t at_root = tiers == 0 ? 0 : federation.sites % federation.aggregators;
  std::string text = "name = \"asynchrony\"\n[tree]\ndepth = " + std::to_string(tiers) +
                     "\naggregators = " + std::to_string(std::max<std::uint64_t>(federation.aggregators, 1)) +
                     "\nsites = " + std::to_string(below) + "\nsites_at_root = " + std::to_string(at_root);
  text += "\n[sites]\ntrain_min_ms = " + ms(federation.training * 4 / 5) +
          "\ntrain_max_ms = " + ms(federation.training * 6 / 5) + "\nweight_min = 1000\nweight_max = 1000\n";
  text += "[links.site]\ndelay_ms = 20\n[links.aggregator]\ndelay_ms = 20\n[links.coordinator]\ndelay_ms = 5\n";
  return text + "[faults]\nuntil_ms = 0\n" + plan_of(federation, mode);
}

Result<Scenario> draw(const StudyFederation& federation, const Mode& mode, std::uint64_t seed) {
  FLUVIAL_ASSIGN(const ScenarioFile file, ScenarioFile::parse(scenario_of(federation, mode), mode.name));
  return file.draw(seed);
}

// The commits from `from` on; the last one at least.
std::span<const Commit> since(const std::vector<Commit>& commits, TimePoint from) {
  auto first = std::ranges::lower_bound(commits, from, {}, &Commit::at);
  if (first == commits.end()) --first;
  return {first, commits.end()};
}

// What was counted from `from` on.
struct Counts {
  std::vector<double> parts;  // by site: its updates' parts of the windows' means, damped by their age
  double updates = 0;
  double of_slow = 0;
  double staleness = 0;  // in total

  double mean_staleness() const { return updates > 0 ? staleness / updates : 0; }
  double slow_part() const { return updates > 0 ? of_slow / updates : 0; }
};

Counts count(const Course& course, const round::Plan& plan, std::size_t sites, TimePoint from) {
  const std::vector<std::uint32_t> factors = round::staleness_factors(round::kStalenessMost, plan.staleness_power);
  Counts counts{.parts = std::vector<double>(sites, 0.0)};
  for (const Commit& commit : since(course.commits(), from)) {
    double total = 0;
    for (const Counted& update : commit.updates) total += round::is_fair(plan) ? 1 : static_cast<double>(update.weight);
    for (const Counted& update : commit.updates) {
      const double factor = static_cast<double>(factors.at(update.staleness)) / round::kWholeFactor;
      const double share = static_cast<double>(update.share) / round::kWholeFactor;
      counts.parts[update.site] += static_cast<double>(update.weight) * share / total * factor;
      counts.staleness += static_cast<double>(update.staleness);
      counts.of_slow += course.speeds().is_slow(update.site) ? 1 : 0;
      ++counts.updates;
    }
  }
  return counts;
}

double distance(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum);
}

std::vector<double> mean_place(const std::vector<Commit>& commits, TimePoint from) {
  const std::span<const Commit> last = since(commits, from);
  std::vector<double> mean(Quadratic::place(last.front().model).size(), 0.0);
  for (const Commit& commit : last) {
    const std::span<const float> place = Quadratic::place(commit.model);
    for (std::size_t i = 0; i < mean.size(); ++i) {
      mean[i] += static_cast<double>(place[i]) / static_cast<double>(last.size());
    }
  }
  return mean;
}

}  // namespace

std::vector<Mode> modes_of(const StudyFederation& federation) {
  const Duration training = federation.training;
  const double slow = std::max(1.0, federation.speeds.slow_factor);
  const auto half = std::to_string(std::max<std::uint64_t>(1, federation.sites / 2));
  const auto longest = std::chrono::duration_cast<Duration>(training * slow * 3);
  // What a plan has that says nothing of deadlines, where a training takes ten seconds.
  const PlanLines usual = deadlines(training / 2, training * 3, training * 6);
  const PlanLines rounds = usual + PlanLines{"participants.quorum = " + half};
  const PlanLines patient = deadlines(training / 2, longest, 2 * longest);
  const auto rounds_late = static_cast<std::uint64_t>(std::min<double>(round::kStalenessMost, std::ceil(slow)));
  const PlanLines windows =
      usual + PlanLines{"mode = \"async\"", "staleness_max = " + std::to_string(round::kStalenessMost)};
  return {
      {"rounds", false, false, rounds},
      {"rounds, all awaited", false, true,
       patient + PlanLines{"deadlines.adaptive = false", "participants.quorum = " + std::to_string(federation.sites)}},
      {"late is next", false, false,
       rounds + PlanLines{"late = \"next\"", "staleness_max = " + std::to_string(rounds_late)}},
      {"windows, goal " + half, true, false, windows + PlanLines{"async.goal = " + half}},
      {"windows, goal " + half + ", fair", true, false,
       windows + PlanLines{"async.goal = " + half, "async.fairness = \"rate\""}},
      {"windows, goal 1", true, false, windows + PlanLines{"async.goal = 1", "optimizer.learning_rate = 0.6"}},
  };
}

Status check_plans(const StudyFederation& federation) {
  for (const Mode& mode : modes_of(federation)) FLUVIAL_TRY(draw(federation, mode, 1));
  return {};
}

Status train(const StudyFederation& federation, const Mode& mode, std::uint64_t seed, Course& course) {
  FLUVIAL_ASSIGN(const Scenario scenario, draw(federation, mode, seed));
  World world(scenario, seed, 0);
  const std::unique_ptr<Inhabitants> inhabitants = settle(course)(world);
  const TimePoint end = world.scheduler().now() + federation.lasts;
  world.start_all();
  while (world.violations().empty() && world.step(end)) inhabitants->check();
  if (!world.violations().empty()) {
    const Violation& violation = world.violations().front();
    return Error{Code::kInternal,
                 mode.name + ", seed " + std::to_string(seed) + ": " + violation.invariant + ": " + violation.detail};
  }
  if (course.commits().empty()) {
    return Error{Code::kFailedPrecondition, mode.name + ": no commit in " + ms(federation.lasts) + " ms"};
  }
  return {};
}

Result<TrainingFigures> measure_training(const StudyFederation& federation, const Mode& mode, std::uint64_t seed,
                                         double closed) {
  FLUVIAL_ASSIGN(const Scenario scenario, draw(federation, mode, seed));
  Softmax course(seed, federation.sites, federation.speeds);
  FLUVIAL_TRY(train(federation, mode, seed, course));
  TrainingFigures figures{.seed = seed, .commits = course.commits().size()};
  figures.least_loss = course.loss(course.best_model());
  figures.least_loss_slow = course.loss_of_slow(course.best_model());
  const double first = course.loss(course.initial_model());
  const double target = first - closed * (first - figures.least_loss);
  for (std::size_t i = 0; i < course.commits().size() && !figures.reached_s; ++i) {
    const Commit& commit = course.commits()[i];
    if (course.loss(commit.model) > target) continue;
    figures.reached_s = seconds(commit.at.time_since_epoch());
    figures.reached_commits = i + 1;
  }
  const std::span<const Commit> last = since(course.commits(), TimePoint() + federation.lasts * 3 / 4);
  for (const Commit& commit : last) {
    figures.end_loss += course.loss(commit.model) / static_cast<double>(last.size());
    figures.end_loss_slow += course.loss_of_slow(commit.model) / static_cast<double>(last.size());
  }
  const Counts counts = count(course, scenario.plan, federation.sites, TimePoint());
  figures.staleness = counts.mean_staleness();
  figures.slow_part = counts.slow_part();
  return figures;
}

Result<BiasFigures> measure_bias(const StudyFederation& federation, const Mode& mode, std::uint64_t seed) {
  FLUVIAL_ASSIGN(const Scenario scenario, draw(federation, mode, seed));
  Quadratic course(seed, federation.sites, federation.speeds);
  FLUVIAL_TRY(train(federation, mode, seed, course));
  const TimePoint half = TimePoint() + federation.lasts / 2;
  const Counts counts = count(course, scenario.plan, federation.sites, half);
  std::vector<double> weights;
  std::vector<double> rates;
  for (std::size_t site = 0; site < federation.sites; ++site) {
    weights.push_back(course.weight(site));
    rates.push_back(course.weight(site) / course.slowness(site));
  }
  const std::vector<double> optimum = course.mean_of_centres(weights);
  const std::vector<double> by_rates = course.mean_of_centres(rates);
  const std::vector<double> model = mean_place(course.commits(), half);
  BiasFigures figures{.seed = seed, .commits = course.commits().size()};
  figures.to_optimum = distance(model, optimum);
  figures.to_rates = distance(model, by_rates);
  figures.to_shares = distance(model, course.mean_of_centres(counts.parts));
  figures.apart = distance(optimum, by_rates);
  double along = 0;
  for (std::size_t i = 0; i < model.size(); ++i) along += (model[i] - optimum[i]) * (by_rates[i] - optimum[i]);
  figures.pull = figures.apart > 0 ? along / (figures.apart * figures.apart) : 0;
  figures.staleness = counts.mean_staleness();
  figures.slow_part = counts.slow_part();
  return figures;
}

Spread spread_of(std::vector<double> values) {
  FLUVIAL_CHECK(!values.empty(), "a spread of no values");
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  const double median = values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
  return {median, values.front(), values.back()};
}

}  // namespace fluvial::simulator
