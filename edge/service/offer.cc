#include "edge/service/offer.h"

#include <algorithm>
#include <utility>

namespace fluvial::edge {

std::optional<Offer> offer_of(wire::Opening opening, SiteId self) {
  const auto own = std::ranges::find(opening.participants, self, &round::Participant::site);
  if (own == opening.participants.end()) return std::nullopt;
  Offer offer;
  offer.run = opening.run;
  offer.round = opening.round;
  offer.attempt = opening.attempt;
  offer.plan = std::move(opening.plan);
  offer.base = opening.base;
  offer.lease = own->lease;
  offer.weight_max = own->weight_max;
  offer.counted = std::ranges::find(opening.counted, self) != opening.counted.end();
  offer.received = opening.received;
  offer.late = std::move(opening.late);
  offer.continues = std::move(opening.continues);
  return offer;
}

std::optional<std::uint64_t> cohort_of(const v1::Signed& opening) {
  v1::OpeningStatement statement;
  if (!statement.ParseFromString(opening.body())) return std::nullopt;
  return static_cast<std::uint64_t>(statement.sites_size());
}

}  // namespace fluvial::edge
