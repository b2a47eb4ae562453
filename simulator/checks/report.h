// A check's finding: the name of the invariant (README.md lists them) and what was seen, in one line.
#pragma once

#include <functional>
#include <string>

namespace fluvial::simulator {

using Report = std::function<void(std::string invariant, std::string detail)>;

}  // namespace fluvial::simulator
