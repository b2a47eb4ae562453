// A child's announcement before it sends, and where it resumes after a cut: the other end of inflow.h. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/round/gather.h"
#include "core/store/site_store.h"
#include "core/wire/record_mapping.h"

namespace fluvial::transfer {

// How many of the first chunks need not be sent, because the parent says that it has them. 0 when its chunks are of
// another transfer, or it claims more than there are.
std::uint64_t first_chunk(const std::optional<wire::Received>& received, Incarnation incarnation, std::uint64_t number,
                          std::uint64_t chunk_count);

// A site's submission, durable or still being encoded, sent from `first_chunk` on; its integers and its probe travel in
// the trailer. `into`: the open round, where that is a later one than its own.
v1::Envelope update_begin(const store::PendingInfo& info, SiteId site, Epoch lease, std::uint64_t first_chunk,
                          RoundId into = {});

// A partial of the round that `opening` opened. `chunk_count` is 0 without contributors.
v1::Envelope partial_begin(const wire::Opening& opening, Incarnation incarnation, std::uint64_t sequence,
                           const round::Arrival& what, std::uint64_t chunk_count, std::uint64_t first_chunk,
                           DigestKind digest_kind = DigestKind::kStream);

}  // namespace fluvial::transfer
