// One seed: a world with its weather, its inhabitants, and the result.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "simulator/scenario/scenario_file.h"
#include "simulator/world/world.h"

namespace fluvial::simulator {

// A committed round, as the coordinator's host saw it.
struct RoundReport {
  std::uint64_t round = 0;
  TimePoint opened{};  // its first attempt was recorded; virtual time
  TimePoint committed{};
  std::uint64_t participants = 0;
  std::uint64_t contributors = 0;
};

// The inhabitants of a world. The runner knows no role: simulator/roles and simulator/checks provide this.
class Inhabitants {
 public:
  virtual ~Inhabitants() = default;
  // After every event. Violations go to World::violate(); the run ends with the first.
  virtual void check() = 0;
  // When the run ends without a violation: checks what must hold in the end.
  virtual void check_end() {}
  virtual std::uint64_t rounds_committed() const = 0;
  virtual std::vector<RoundReport> rounds() const { return {}; }
  // Nothing more will happen that matters: the run is complete.
  virtual bool is_done() const { return false; }
  // Whether progress can be demanded: not when too few sites may still take part (revoked, quarantined). Asked when the
  // faults have ended.
  virtual bool may_progress() const { return true; }
};
// Installs processes in the world; the runner starts them.
using Settle = std::function<std::unique_ptr<Inhabitants>(World& world)>;

// The traffic between one tier and its parents, all hosts of the tier together.
struct TierTraffic {
  std::uint32_t tier = 0;
  Role role = Role::kSite;
  std::uint64_t hosts = 0;
  std::uint64_t up_bytes = 0;
  std::uint64_t down_bytes = 0;
};

struct SeedResult {
  std::uint64_t seed = 0;
  std::uint64_t events = 0;
  std::uint64_t rounds_committed = 0;
  double virtual_s = 0;
  std::string trace_hash;
  std::vector<Violation> violations;
  std::vector<RoundReport> rounds;
  std::vector<TierTraffic> tiers;  // from the coordinator's children down; (tier, role) each
  std::vector<std::string> log;    // the last events in words, when lines_max asked for them
};

// kInvalidArgument when the scenario draws no valid plan for this seed.
Result<SeedResult> run_seed(const ScenarioFile& file, std::uint64_t seed, const Settle& settle, std::size_t lines_max);

}  // namespace fluvial::simulator
