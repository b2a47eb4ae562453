// What is new when a node is admitted: the audit log has an entry of that, and none of each lease that a flapping
// session asks for. Pure; not thread safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "coordinator/logic/entry_meter.h"
#include "core/base/bytes.h"
#include "core/base/clock.h"
#include "core/base/ids.h"

namespace fluvial::coordinator {

// Of one node: whoever changes its process and address all the time, on purpose or in a loop of crashes, makes 28
// entries on the first day and 24 on each day after it.
inline constexpr EntryMeter::Bound kAdmissionsWritten{.at_once = 4, .each = std::chrono::hours(1)};

class Admissions {
 public:
  struct Came {
    Digest key{};
    std::uint64_t process = 0;  // as holders.h has it; 0: it draws none
    std::string network;        // what addresses are told apart by
  };
  // The node was admitted. What is new about it, for people; none: nothing is, or the node had its entries.
  std::optional<std::string> admitted(NodeId node, const Came& came, TimePoint now);
  void forget(NodeId node);  // what admitted() said is not in the log: the next time is the first again

 private:
  struct Known {
    Came last;
    EntryMeter meter{kAdmissionsWritten};
  };
  std::map<NodeId, Known> known_;  // no more than the federation has nodes
};

}  // namespace fluvial::coordinator
