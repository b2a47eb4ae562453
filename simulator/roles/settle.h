// A federation in a world: what `fluvial simulate` runs, as simulator/run wants it.
#pragma once

#include <functional>
#include <memory>

#include "simulator/roles/lessons.h"
#include "simulator/roles/tamper.h"
#include "simulator/run/run.h"

namespace fluvial::simulator {

// Makes a Tamper for each world; only the binary which proves that the checks can fail makes a derived one.
using MakeTamper = std::function<std::unique_ptr<Tamper>()>;
Settle settle(MakeTamper make_tamper = [] { return std::make_unique<Tamper>(); });
// The same, and sites train what `lessons` gives them.
Settle settle(Lessons& lessons);

}  // namespace fluvial::simulator
