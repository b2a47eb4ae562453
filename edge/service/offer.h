// The open round as its parent says it, as the site's machine takes it.
#pragma once

#include <optional>

#include "core/wire/record_mapping.h"
#include "edge/logic/site_machine.h"

namespace fluvial::edge {

// None: site `self` takes no part.
std::optional<Offer> offer_of(wire::Opening opening, SiteId self);

// Why a site can take no part: the codec needs what rounds hand down and the opening says none, so it came by a parent
// that does not know them.
std::optional<Error> lacks_passes(const Offer& offer);

// How many sites the round asks, as an opening says that the coordinator has signed; its signature was checked.
std::optional<std::uint64_t> cohort_of(const v1::Signed& opening);

}  // namespace fluvial::edge
