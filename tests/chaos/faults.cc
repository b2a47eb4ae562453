#include "tests/chaos/faults.h"

#include <algorithm>
#include <array>

#include "core/base/check.h"

namespace fluvial::chaos {
namespace {

using namespace std::chrono_literals;

// Of five faults, if each role has a node that is not disturbed just now.
constexpr std::array<std::string_view, 5> kRoles = {"coordinator", "aggregator", "aggregator", "site", "site"};

}  // namespace

std::string_view fault_name(FaultKind kind) {
  switch (kind) {
    case FaultKind::kKill: return "kill";
    case FaultKind::kStop: return "stop";
    case FaultKind::kStopAndKill: return "stop, then kill";
  }
  return "unknown";
}

FaultSource::FaultSource(std::uint64_t seed, const std::map<std::string, std::string>& roles, int pace)
    : rng_(seed), pace_(pace) {
  for (const auto& [name, role] : roles) by_role_[role].push_back(name);
  FLUVIAL_CHECK(!roles.empty(), "somebody to disturb");
}

Milliseconds FaultSource::draw(Milliseconds least, Milliseconds most) {
  return pace_ * (least + Milliseconds(rng_.below(static_cast<std::uint64_t>((most - least).count()) + 1)));
}

std::string FaultSource::draw_node() {
  const auto is_free = [this](const std::string& name) { return out_until_[name] <= now_; };
  for (;;) {
    const auto role = by_role_.find(std::string(kRoles[rng_.below(kRoles.size())]));
    std::vector<std::string> free;
    if (role != by_role_.end()) std::ranges::copy_if(role->second, std::back_inserter(free), is_free);
    if (!free.empty()) return free[rng_.below(free.size())];
    now_ += 10ms;  // everybody of that role is out: a little later, perhaps of another
  }
}

Fault FaultSource::next() {
  now_ += draw(500ms, 2'000ms);
  Fault fault;
  fault.node = draw_node();
  fault.at = now_;
  const std::uint64_t of_ten = rng_.below(10);
  fault.kind = of_ten < 6 ? FaultKind::kKill : of_ten < 8 ? FaultKind::kStop : FaultKind::kStopAndKill;
  if (fault.kind != FaultKind::kKill) fault.stopped = draw(50ms, 4'000ms);
  if (fault.kind != FaultKind::kStop) fault.down = draw(0ms, 3'000ms);
  out_until_[fault.node] = fault.end();
  return fault;
}

}  // namespace fluvial::chaos
