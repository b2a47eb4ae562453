#include "simulator/run/run.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "simulator/world/weather.h"

namespace fluvial::simulator {
namespace {

// After the faults have stopped, rounds must be committed in time.
class Progress {
 public:
  void look(World& world, const Weather& weather, const Inhabitants& inhabitants) {
    const LimitsScenario& limits = world.scenario().limits;
    if (settled_ || !weather.is_over() || limits.progress_rounds == 0) return;
    const TimePoint now = world.scheduler().now();
    if (!since_) {
      since_ = now;
      rounds_before_ = inhabitants.rounds_committed();
    }
    if (inhabitants.rounds_committed() >= rounds_before_ + limits.progress_rounds || inhabitants.is_done()) {
      settled_ = true;
    } else if (now > *since_ + limits.progress_within) {
      settled_ = true;
      if (!inhabitants.may_progress()) return;
      world.violate("progress",
                    std::to_string(inhabitants.rounds_committed() - rounds_before_) + " rounds in " +
                        std::to_string(std::chrono::duration_cast<std::chrono::seconds>(now - *since_).count()) +
                        " s after the faults stopped; expected " + std::to_string(limits.progress_rounds));
    }
  }
  bool settled() const { return settled_; }

 private:
  bool settled_ = false;
  std::optional<TimePoint> since_;
  std::uint64_t rounds_before_ = 0;
};

std::vector<TierTraffic> traffic_of(const World& world, const Network& network) {
  std::map<std::pair<std::uint32_t, Role>, TierTraffic> tiers;
  for (const Host& host : world.hosts()) {
    if (host.role == Role::kCoordinator) continue;
    TierTraffic& tier = tiers[{host.tier, host.role}];
    tier.tier = host.tier;
    tier.role = host.role;
    ++tier.hosts;
    tier.up_bytes += network.traffic(host.id).up_bytes;
    tier.down_bytes += network.traffic(host.id).down_bytes;
  }
  std::vector<TierTraffic> list;
  for (const auto& [key, tier] : tiers) list.push_back(tier);
  return list;
}

}  // namespace

Result<SeedResult> run_seed(const ScenarioFile& file, std::uint64_t seed, const Settle& settle, std::size_t lines_max) {
  FLUVIAL_ASSIGN(const Scenario scenario, file.draw(seed));
  World world(scenario, seed, lines_max);
  const std::unique_ptr<Inhabitants> inhabitants = settle(world);
  Weather weather(world);
  Progress progress;
  const TimePoint end = world.scheduler().now() + scenario.limits.virtual_time;
  world.start_all();
  weather.begin();
  // A run that has shown progress after the faults is over; another one ends at its limits.
  while (world.violations().empty() && !progress.settled() && !inhabitants->is_done() &&
         world.scheduler().executed() < scenario.limits.events && world.step(end)) {
    inhabitants->check();
    progress.look(world, weather, *inhabitants);
  }
  if (world.violations().empty()) inhabitants->check_end();
  SeedResult result;
  result.seed = seed;
  result.events = world.scheduler().executed();
  result.rounds_committed = inhabitants->rounds_committed();
  result.virtual_s = std::chrono::duration<double>(world.scheduler().now().time_since_epoch()).count();
  result.trace_hash = world.trace().hash();
  result.violations = world.violations();
  result.rounds = inhabitants->rounds();
  result.tiers = traffic_of(world, world.network());
  result.log.assign(world.trace().lines().begin(), world.trace().lines().end());
  return result;
}

}  // namespace fluvial::simulator
