#include "core/transfer/outgoing.h"

#include "core/wire/mapping.h"

namespace fluvial::transfer {

std::uint64_t first_chunk(const std::optional<wire::Received>& received, Incarnation incarnation, std::uint64_t number,
                          std::uint64_t chunk_count) {
  if (!received || received->incarnation != incarnation || received->number != number) return 0;
  return received->chunks <= chunk_count ? received->chunks : 0;
}

v1::Envelope update_begin(const store::PendingInfo& info, SiteId site, Epoch lease, std::uint64_t first_chunk,
                          RoundId into) {
  v1::Envelope message;
  v1::UpdateBegin& begin = *message.mutable_update_begin();
  begin.mutable_key()->set_run(info.start.run.value());
  begin.mutable_key()->set_round(info.start.round.value());
  begin.mutable_key()->set_site(site.value());
  begin.mutable_key()->set_incarnation(info.incarnation.value());
  begin.mutable_key()->set_submission(info.submission);
  begin.set_weight(info.start.weight);
  begin.set_codec(info.start.codec);
  begin.set_pass(info.start.from.pass);
  if (info.start.from.pass > 0) begin.set_mean_sha256(wire::digest_to_proto(info.start.from.mean));
  begin.set_value_count(info.start.sent_values == 0 ? info.start.value_count : info.start.sent_values);
  begin.set_chunk_count(info.start.chunk_count);
  begin.set_integer_count(info.start.integer_count);
  begin.set_base_sha256(wire::digest_to_proto(info.start.base));
  begin.set_lease_epoch(lease.value());
  begin.set_probe(info.has_probe() ? 0.0F : 1.0F);  // 1: encoded by an earlier version, whose parents bring the probe
  begin.set_first_chunk(first_chunk);
  begin.set_digest(static_cast<v1::Digest>(info.start.digest_kind));
  if (into > info.start.round) begin.set_into(into.value());
  wire::metrics_to_proto(info.start.metrics, begin.mutable_metrics());
  return message;
}

v1::Envelope partial_begin(const wire::Opening& opening, Incarnation incarnation, std::uint64_t sequence,
                           const round::Arrival& what, std::uint64_t chunk_count, std::uint64_t first_chunk,
                           DigestKind digest_kind) {
  v1::Envelope message;
  v1::PartialBegin& begin = *message.mutable_partial_begin();
  begin.set_run(opening.run.value());
  begin.set_round(opening.round.value());
  begin.set_attempt(opening.attempt.value());
  begin.set_epoch(opening.epoch.value());
  begin.set_sequence(sequence);
  begin.set_incarnation(incarnation.value());
  begin.set_scale_bits(static_cast<std::uint32_t>(opening.scale_bits));
  begin.set_chunk_count(chunk_count);
  begin.set_first_chunk(first_chunk);
  begin.set_digest(static_cast<v1::Digest>(digest_kind));
  if (opening.pass) begin.set_pass(opening.pass->index);
  wire::to_proto(what.contributors, begin.mutable_contributors());
  wire::to_proto(what.refusals, begin.mutable_refusals());
  wire::to_proto(what.missing, begin.mutable_missing());
  return message;
}

}  // namespace fluvial::transfer
