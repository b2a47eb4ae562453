// Who gives way at an HTTP port or socket that is full. Its places are shared by those who come: by address over TCP,
// by user over a Unix socket. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "core/base/clock.h"
#include "core/net/address.h"

namespace fluvial::net {

struct HttpPlace {
  AddressKey whose;                      // or the number of a user
  std::optional<TimePoint> still_since;  // asks nothing, or takes no answer, since then; none: it is being answered
};

// Which of `places`, the oldest first, makes room for a newcomer; none: the newcomer is refused.
//
// Whoever has two more than the newcomer's address gives one up: of those who have most the connection that is still
// the longest, or the newest one when all are being answered. Else only a connection that is still goes, of the
// newcomer's own address or of one that has more.
std::optional<std::size_t> who_gives_way(const std::vector<HttpPlace>& places, const AddressKey& newcomer);

}  // namespace fluvial::net
