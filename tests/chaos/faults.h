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

enum class FaultKind {
  kKill,
  kStop,
  kStopAndKill,
  kPowerCut,  // killed, and what was not fsynced is lost or torn
  kDisk,      // its disk fails for a while, in one of three ways
  kNetwork,   // the way to this parent is cut, hears nothing, is not heard, or refuses, for a while
};
std::string_view fault_name(FaultKind kind);
bool ends_process(FaultKind kind);

struct Fault {
  Milliseconds at{0};  // since the beginning
  std::string node;
  FaultKind kind = FaultKind::kKill;
  Milliseconds stopped{0};   // how long: SIGSTOP before SIGCONT or SIGKILL, or a fault of disk or network
  Milliseconds down{0};      // after SIGKILL, until it is started again
  std::uint64_t detail = 0;  // chooses what is left open above
  Milliseconds end() const { return at + stopped + down; }
};

class FaultSource {
 public:
  // Nodes by name, with their role. `pace`: the times below are multiplied by it. Each fault is one of `kinds`; a kind
  // that is there twice is twice as likely. A site has no network of its own here: it is killed instead.
  FaultSource(std::uint64_t seed, const std::map<std::string, std::string>& roles, int pace,
              std::vector<FaultKind> kinds);

  // The next one, 0.5 to 2 s after the one before, of a node that is not disturbed then.
  Fault next();

 private:
  std::string draw_node();
  Milliseconds draw(Milliseconds least, Milliseconds most);

  Rng rng_;
  int pace_;
  std::vector<FaultKind> kinds_;
  std::map<std::string, std::vector<std::string>> by_role_;
  std::map<std::string, Milliseconds> out_until_;
  Milliseconds now_{0};
};

}  // namespace fluvial::chaos
