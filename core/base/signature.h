// A digital signature, as the wire and the journal hold it; made and checked in core/identity/signature.h.
#pragma once

#include <array>
#include <cstddef>

namespace fluvial {

using Signature = std::array<std::byte, 64>;

}  // namespace fluvial
