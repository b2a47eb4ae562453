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
    case FaultKind::kStopAndKill: return "stop-kill";
    case FaultKind::kPowerCut: return "power-cut";
    case FaultKind::kDisk: return "disk";
    case FaultKind::kNetwork: return "network";
  }
  return "unknown";
}

bool ends_process(FaultKind kind) {
  return kind == FaultKind::kKill || kind == FaultKind::kStopAndKill || kind == FaultKind::kPowerCut;
}

FaultSource::FaultSource(std::uint64_t seed, const std::map<std::string, std::string>& roles, int pace,
                         std::vector<FaultKind> kinds)
    : rng_(seed), pace_(pace), kinds_(std::move(kinds)) {
  for (const auto& [name, role] : roles) by_role_[role].push_back(name);
  FLUVIAL_CHECK(!by_role_.empty() && !kinds_.empty(), "somebody to disturb, and something to do");
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
  fault.kind = kinds_[rng_.below(kinds_.size())];
  fault.detail = rng_.next();
  const auto sites = by_role_.find("site");
  const bool is_site = sites != by_role_.end() && std::ranges::find(sites->second, fault.node) != sites->second.end();
  if (fault.kind == FaultKind::kNetwork && is_site) fault.kind = FaultKind::kKill;
  if (fault.kind != FaultKind::kKill && fault.kind != FaultKind::kPowerCut) fault.stopped = draw(50ms, 4'000ms);
  if (ends_process(fault.kind)) fault.down = draw(0ms, 3'000ms);
  out_until_[fault.node] = fault.end();
  return fault;
}

}  // namespace fluvial::chaos
