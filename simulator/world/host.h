// The machines of a world, by number: 0 is the coordinator's, then the aggregators', then the sites'.
#pragma once

#include <cstdint>
#include <string>

#include "core/base/ids.h"

namespace fluvial::simulator {

using HostId = Id<struct HostTag, std::uint32_t>;  // dense from 0

inline constexpr HostId kRoot{0};

struct Host {
  HostId id;
  Role role = Role::kSite;
  std::string name;                // "coordinator", "aggregator-1", "site-17"
  std::string region;              // "r0/r1": below the root, a label for each tier
  std::uint32_t region_index = 0;  // hosts with the same one are partitioned together
  HostId home;                     // its parent by the layout; itself at the root
  std::uint32_t tier = 0;          // 0: the coordinator; sites are on the last tier of their branch
};

}  // namespace fluvial::simulator
