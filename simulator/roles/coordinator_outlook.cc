// Whether the open round can close without a person.
#include <algorithm>
#include <vector>

#include "core/aggregate/scale.h"
#include "simulator/roles/coordinator.h"

namespace fluvial::simulator {

bool CoordinatorRole::may_close() const {
  // A run that has paused itself without a quorum goes on with the round that it paused in.
  if (machine() == nullptr || machine()->attempt().round <= machine()->last_committed()) return true;
  const std::vector<round::Participant>& all = machine()->attempt().participants;
  const auto left = std::ranges::count_if(all, [this](const auto& one) {
    const coordinator::NodeEntry& node = book().nodes().at(one.site);
    return machine()->gather().held().contains(one.site) || (!node.revoked_at && !node.quarantined_at);
  });
  const std::uint64_t may_count = static_cast<std::uint64_t>(left) + substitutes_left();
  return may_count >= std::max<std::uint64_t>(machine()->plan().quorum, 1);
}

// Of those who do not take part, the lightest first, as far as the sum has room for them.
std::size_t CoordinatorRole::substitutes_left() const {
  const round::AttemptRecord& attempt = machine()->attempt();
  std::map<SiteId, std::uint64_t> others;
  for (const Host& host : cast_.world().hosts()) {
    if (!cast_.may_take_part(host)) continue;
    const auto node = book().nodes().find(cast_.identity(host.id).node);
    if (node == book().nodes().end() || node->second.revoked_at || node->second.quarantined_at) continue;
    others[node->first] = node->second.weight_max;
  }
  std::uint64_t sum = 0;
  for (const round::Participant& one : attempt.participants) {
    sum += one.weight_max;
    others.erase(one.site);
  }
  std::vector<std::uint64_t> weights;
  for (const auto& [id, weight] : others) weights.push_back(weight);
  std::ranges::sort(weights);
  const auto full = std::ranges::find_if(weights, [&](std::uint64_t weight) {
    return !aggregate::has_room(machine()->plan().value_abs_max, attempt.scale_bits, sum += weight);
  });
  return static_cast<std::size_t>(full - weights.begin());
}

}  // namespace fluvial::simulator
