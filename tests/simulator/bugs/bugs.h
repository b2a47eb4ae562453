// Deliberate bugs, one at a time: what the simulator's checks must see. Test-only, never shipped.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "simulator/roles/tamper.h"

namespace fluvial::simulator {

struct Bug {
  std::string name;
  std::string invariant;  // that must catch it, before any other does
  std::string what;       // for people
};
const std::vector<Bug>& bugs();
// Null for a name that is none.
std::unique_ptr<Tamper> make_bug(const std::string& name);

}  // namespace fluvial::simulator
