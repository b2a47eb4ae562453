#include "core/net/http_places.h"

#include <algorithm>
#include <map>

namespace fluvial::net {

std::optional<std::size_t> who_gives_way(const std::vector<HttpPlace>& places, const AddressKey& newcomer) {
  std::map<AddressKey, std::size_t> counts;
  std::size_t most = 0;
  for (const HttpPlace& place : places) most = std::max(most, ++counts[place.whose]);
  const std::size_t own = counts[newcomer];
  const bool has_too_many = most >= own + 2;
  std::optional<std::size_t> stillest;
  std::optional<std::size_t> newest;
  for (std::size_t i = 0; i < places.size(); ++i) {
    const std::size_t count = counts[places[i].whose];
    const bool may_go = has_too_many ? count == most : count > own || places[i].whose == newcomer;
    if (!may_go) continue;
    if (has_too_many) newest = i;
    if (!places[i].still_since || (stillest && *places[i].still_since >= *places[*stillest].still_since)) continue;
    stillest = i;
  }
  return stillest ? stillest : newest;
}

}  // namespace fluvial::net
