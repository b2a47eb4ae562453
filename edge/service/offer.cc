#include "edge/service/offer.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "kernels/codec.h"

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
  offer.pass = opening.pass;
  offer.epoch = opening.epoch;
  return offer;
}

std::optional<Error> lacks_passes(const Offer& offer) {
  if (offer.pass) return std::nullopt;
  const Result<kernels::CodecSpec> spec = kernels::parse_codec(offer.plan.codec);
  if (!spec.ok()) return std::nullopt;  // encoding says why
  const Result<std::unique_ptr<kernels::Codec>> codec = kernels::make_codec(*spec);
  if (!codec.ok() || !(*codec)->hands_down()) return std::nullopt;
  return Error{Code::kFailedPrecondition,
               "codec " + offer.plan.codec +
                   " needs what rounds hand down, of which its parent, of an earlier version, says nothing"};
}

std::optional<std::uint64_t> cohort_of(const v1::Signed& opening) {
  v1::OpeningStatement statement;
  if (!statement.ParseFromString(opening.body())) return std::nullopt;
  return static_cast<std::uint64_t>(statement.sites_size());
}

}  // namespace fluvial::edge
