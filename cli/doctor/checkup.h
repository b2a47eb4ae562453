// Checks side by side, none of which is waited for longer than all of them may take.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/doctor/finding.h"
#include "core/base/clock.h"

namespace fluvial::cli::doctor {

struct Check {
  std::string name;
  std::function<Findings()> run;  // on a thread of its own
};

struct Checked {
  std::string name;
  Findings findings;
};

struct Checkup {
  std::vector<Checked> checks;  // in the order in which they were given
  bool all_ended = true;        // false: some still run, on threads that nobody can end
};

// `waiting` hears now and then, on this thread, which checks have not ended.
Checkup check_all(std::vector<Check> checks, Duration limit,
                  const std::function<void(const std::vector<std::string>& names)>& waiting);

}  // namespace fluvial::cli::doctor
