// Which stream of chance a contribution's roundings are drawn from, and what randk sends: the plan's seed, the round
// and the site's name decide, so that the same experiment gives the same bits in another federation.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/base/name_key.h"
#include "kernels/codec.h"

namespace fluvial::kernels {

inline StreamKey stream_key(std::uint64_t plan_seed, std::uint64_t round, std::string_view site_name) {
  return {.run = plan_seed, .round = round, .site = static_cast<std::uint32_t>(name_key(site_name))};
}

}  // namespace fluvial::kernels
