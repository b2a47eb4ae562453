// Who is disturbed when and how: a function of the seed and the nodes alone. Pure.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/rng.h"

namespace fluvial::chaos {

using Milliseconds = std::chrono::milliseconds;

enum class FaultKind { kKill, kStop, kStopAndKill };
std::string_view fault_name(FaultKind kind);

struct Fault {
  Milliseconds at{0};  // since the beginning
  std::string node;
  FaultKind kind = FaultKind::kKill;
  Milliseconds stopped{0};  // SIGSTOP for so long, then SIGCONT or SIGKILL
  Milliseconds down{0};     // after SIGKILL, until it is started again
  Milliseconds end() const { return at + stopped + down; }
};

class FaultSource {
 public:
  // Nodes by name, with their role. `pace`: so many times the times below.
  FaultSource(std::uint64_t seed, const std::map<std::string, std::string>& roles, int pace);

  // The next one, 0.5 to 2 s after the one before, of a node that is not disturbed then.
  Fault next();

 private:
  std::string draw_node();
  Milliseconds draw(Milliseconds least, Milliseconds most);

  Rng rng_;
  int pace_;
  std::map<std::string, std::vector<std::string>> by_role_;
  std::map<std::string, Milliseconds> out_until_;
  Milliseconds now_{0};
};

}  // namespace fluvial::chaos
