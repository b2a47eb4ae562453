// Two machines with one identity: a copied folder, or a stolen key. Each process draws a number and shows it when it
// comes for a lease. A process that was replaced by another of its member and comes again all the same is a second
// machine: a restart never brings an old number back. Pure; not thread safe.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "core/base/clock.h"
#include "core/base/ids.h"

namespace fluvial::coordinator {

inline constexpr Duration kHoldersRemembered = std::chrono::hours(1);  // since they took turns last

class Holders {
 public:
  // The member's process came for a lease. Whether it shows from now on that there are two of them, as it did not
  // before. `process` 0: of a version that draws none; all of those look alike.
  bool came(NodeId node, std::uint64_t process, TimePoint now);
  void forget(NodeId node);  // it was revoked, or has enrolled anew: only one of them has the new key

  bool are_two(NodeId node, TimePoint now) const;
  std::vector<NodeId> held_twice(TimePoint now) const;

 private:
  struct Seen {
    std::uint64_t process = 0;          // that came last
    std::vector<std::uint64_t> others;  // that came before it, the newest first
    bool returned = false;              // it is such a one itself
    int returns = 0;                    // requests of those that returned
    TimePoint returned_at;
  };
  static bool shows_two(const Seen& seen, TimePoint now);
  std::map<NodeId, Seen> seen_;
};

}  // namespace fluvial::coordinator
