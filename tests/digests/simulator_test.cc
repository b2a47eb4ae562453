// Recorded digests of what the simulator's coordinator commits.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/store/model_store.h"
#include "simulator/roles/settle.h"
#include "tests/digests/table.h"

namespace fluvial::digests {
namespace {

constexpr std::uint64_t kRounds = 6;  // simulated-world.toml

// What is on the coordinator's disk in the end.
Result<Digests> committed(simulator::World& world) {
  const simulator::Disk::Inspection looking(world.disk(simulator::kRoot));
  FLUVIAL_ASSIGN(const store::ModelStore models,
                 store::ModelStore::open(world.disk(simulator::kRoot).files(), "models"));
  Digests digests;
  for (std::uint64_t round = 1; round <= kRounds; ++round) {
    FLUVIAL_ASSIGN(const store::Model model, store::read_model(world.disk(simulator::kRoot).files(),
                                                               models.path_of({RunId(1), ModelVersion(round)})));
    digests.model = to_hex(store::model_digest(model.bytes.span()));
    digests.models.push_back(cut(digests.model));
  }
  return digests;
}

// Those who live in the world, and a look at it when they are done.
class Watched final : public simulator::Inhabitants {
 public:
  Watched(simulator::World& world, Result<Digests>& digests)
      : world_(world), digests_(digests), inhabitants_(simulator::settle()(world)) {}
  void check() override { inhabitants_->check(); }
  void check_end() override {
    inhabitants_->check_end();
    digests_ = committed(world_);
  }
  std::uint64_t rounds_committed() const override { return inhabitants_->rounds_committed(); }
  std::vector<simulator::RoundReport> rounds() const override { return inhabitants_->rounds(); }
  bool is_done() const override { return inhabitants_->is_done(); }
  bool may_progress() const override { return inhabitants_->may_progress(); }

 private:
  simulator::World& world_;
  Result<Digests>& digests_;
  std::unique_ptr<Inhabitants> inhabitants_;
};

Status check_whole(const simulator::SeedResult& result) {
  if (!result.violations.empty()) {
    return Error{Code::kDataLoss, result.violations.front().invariant + ": " + result.violations.front().detail};
  }
  if (result.rounds.size() != kRounds) {
    return Error{Code::kFailedPrecondition, fmt::format("{} rounds of {}", result.rounds.size(), kRounds)};
  }
  for (const simulator::RoundReport& round : result.rounds) {
    if (round.contributors == 5) continue;
    return Error{Code::kFailedPrecondition, fmt::format("{} sites in round {}", round.contributors, round.round)};
  }
  return {};
}

Result<Digests> simulate(const Entry& entry) {
  std::string scenario = "base = \"simulated-world.toml\"\nname = \"" + entry.name + "\"\n";
  for (const char* table : {"tree.", "plan."}) {
    for (const config::TomlEntry& setting : entry.settings) {
      if (setting.key.starts_with(table)) scenario += setting_to_toml(setting);
    }
  }
  FLUVIAL_ASSIGN(const simulator::ScenarioFile file,
                 simulator::ScenarioFile::parse(scenario, std::string(FLUVIAL_DIGESTS_FOLDER) + "/entry.toml"));
  Result<Digests> digests = Error{Code::kInternal, "the run did not end"};
  const auto settle = [&digests](simulator::World& world) { return std::make_unique<Watched>(world, digests); };
  FLUVIAL_ASSIGN(const simulator::SeedResult result, simulator::run_seed(file, entry.number("seed"), settle, 0));
  FLUVIAL_TRY(check_whole(result));
  return digests;
}

TEST(Digests, AreThoseOfTheSimulator) {
  check_table(std::string(FLUVIAL_DIGESTS_FOLDER) + "/simulated.toml", "simulated", true, simulate);
}

}  // namespace
}  // namespace fluvial::digests
