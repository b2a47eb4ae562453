// What the checks find: a name of the invariant (README.md lists them) and what was seen, one line.
#pragma once

#include <functional>
#include <string>

namespace fluvial::simulator {

using Report = std::function<void(std::string invariant, std::string detail)>;

}  // namespace fluvial::simulator
