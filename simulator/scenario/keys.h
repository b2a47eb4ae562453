// The one declaration of every number in a scenario: its key, unit, bounds, meaning and field. Inside this room only;
// [plan] is core/config's, `name` is read beside it.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "simulator/scenario/scenario.h"

namespace fluvial::simulator {

// kFault: a rate that a seed may switch off (faults.off). kFlag: true or false, as 1 or 0.
enum class NumberKind { kReal, kWhole, kFault, kFlag };

struct ScenarioKey {
  std::string key;
  std::string unit;
  double low = 0;
  double high = 0;
  NumberKind kind = NumberKind::kReal;
  std::string help;
  std::function<void(Scenario&, double)> set;
  std::function<double(const Scenario&)> get;
};

const std::vector<ScenarioKey>& scenario_keys();

}  // namespace fluvial::simulator
