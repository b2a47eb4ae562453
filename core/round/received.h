// How far a transfer came that was cut off.
#pragma once

#include <cstdint>

#include "core/base/ids.h"

namespace fluvial::round {

// A parent has the first `chunks` chunks of a child's transfer: the child may go on from there.
struct Received {
  Incarnation incarnation;   // of the child, when it made what it sends
  std::uint64_t number = 0;  // an update's submission, or a partial's sequence
  std::uint64_t chunks = 0;
  bool operator==(const Received&) const = default;
};

}  // namespace fluvial::round
