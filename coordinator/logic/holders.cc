#include "coordinator/logic/holders.h"

#include <algorithm>

namespace fluvial::coordinator {
namespace {

constexpr int kReturnsMin = 2;          // a single one may have been under way when its process was replaced
constexpr std::size_t kOthersKept = 8;  // a thief may draw a number each time; the owner's own stays among them

}  // namespace

bool Holders::shows_two(const Seen& seen, TimePoint now) {
  return seen.returns >= kReturnsMin && now - seen.returned_at < kHoldersRemembered;
}

bool Holders::came(NodeId node, std::uint64_t process, TimePoint now) {
  const auto [entry, fresh] = seen_.try_emplace(node, Seen{process, {}, false, 0, now});
  Seen& seen = entry->second;
  if (fresh) return false;
  if (now - seen.returned_at >= kHoldersRemembered) seen.returns = 0;
  const bool before = shows_two(seen, now);
  if (process != seen.process) {
    seen.returned = std::erase(seen.others, process) > 0;
    seen.others.insert(seen.others.begin(), seen.process);
    if (seen.others.size() > kOthersKept) seen.others.pop_back();
    seen.process = process;
  } else if (seen.returns == 0) {
    seen.returned = false;  // the other was long ago
  }
  if (seen.returned) {
    ++seen.returns;
    seen.returned_at = now;
  }
  return !before && shows_two(seen, now);
}

void Holders::forget(NodeId node) { seen_.erase(node); }

bool Holders::are_two(NodeId node, TimePoint now) const {
  const auto found = seen_.find(node);
  return found != seen_.end() && shows_two(found->second, now);
}

std::vector<NodeId> Holders::held_twice(TimePoint now) const {
  std::vector<NodeId> nodes;
  for (const auto& [node, seen] : seen_) {
    if (shows_two(seen, now)) nodes.push_back(node);
  }
  return nodes;
}

}  // namespace fluvial::coordinator
