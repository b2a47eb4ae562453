// The open round as its parent says it, as the site's machine takes it.
#pragma once

#include <optional>

#include "core/wire/record_mapping.h"
#include "edge/logic/site_machine.h"

namespace fluvial::edge {

// None: site `self` takes no part.
std::optional<Offer> offer_of(wire::Opening opening, SiteId self);

}  // namespace fluvial::edge
