// A child's announcement before it sends an update or a partial, and the demands of the open round on it. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/ids.h"
#include "core/base/result.h"
#include "core/digest/submission_digest.h"
#include "core/round/gather.h"
#include "core/round/lateness.h"
#include "core/round/pass.h"
#include "core/round/plan.h"
#include "core/round/schema.h"
#include "core/wire/record_mapping.h"
#include "fluvial/v1/wire.pb.h"
#include "kernels/codec.h"

namespace fluvial::transfer {

// What the open round demands of an update or a partial.
struct Terms {
  kernels::ChunkLayout layout;
  std::size_t integer_count = 0;
  std::shared_ptr<const kernels::Codec> codec;  // of updates
  std::string codec_name;
  Digest base{};
  double value_abs_max = 0;
  double norm_max = 0;                                             // 0: no bound
  std::shared_ptr<const round::Schema> schema;                     // to name a tensor; may be null without integers
  std::shared_ptr<const std::vector<std::int64_t>> base_integers;  // of the base model; null until it is here
  int scale_bits = 0;
  ModelVersion base_version;
  std::shared_ptr<const round::Lateness> late;  // null: no update of an earlier round
  round::MadeFrom from;                         // which pass is open, of a round with several
  std::uint64_t plain_values = 0;               // plain_values()
};

// What an update is without a codec, to compare what travels with: the model's values, and in a pass before the last
// nothing.
inline std::uint64_t plain_values(std::uint64_t value_count, const std::optional<round::Pass>& pass) {
  return pass && !pass->is_last() ? 0 : value_count;
}
// From the round's plan, its model's shape and its record.
Terms make_terms(const round::Plan& plan, std::uint64_t value_count, std::uint64_t integer_count,
                 const round::ModelRef& base, int scale_bits, std::shared_ptr<const kernels::Codec> codec,
                 std::shared_ptr<const round::Schema> schema,
                 std::shared_ptr<const std::vector<std::int64_t>> base_integers,
                 const std::optional<round::Lateness>& late = {}, const std::optional<round::Pass>& pass = {});
// kResourceExhausted (try again) while the model has integers and the base model, against which they are checked, is
// not here yet.
Status check_base(const Terms& terms);
// kInvalidArgument when the opening's scale leaves no room for its participants: their sum could overflow int64.
Status check_room(const wire::Opening& opening);

struct UpdateHead {
  RunId run;
  RoundId round;              // that it enters
  ModelVersion base_version;  // by the round that it is of
  SiteId site;
  Incarnation incarnation;
  std::uint64_t submission = 0;
  std::uint64_t weight = 0;
  Epoch lease;
  round::Metrics metrics;
  // The site's description of the update's bytes.
  std::string codec_name;
  round::MadeFrom from;
  std::uint64_t value_count = 0;  // of what travels in its pass
  std::uint64_t chunk_count = 0;
  std::uint64_t integer_count = 0;
  Digest base{};
  RoundId own_round() const { return RoundId(base_version.value() + 1); }
  float probe = 0;  // 0: it is in the trailer
  bool has_probe() const { return probe == 0; }
  std::uint64_t first_chunk = 0;  // the chunks before it were sent in an earlier session
  DigestKind digest_kind = DigestKind::kStream;
};

struct PartialHead {
  NodeId child;
  RunId run;
  RoundId round;
  AttemptId attempt;
  Epoch epoch;
  std::uint64_t sequence = 0;
  std::uint32_t pass = 0;
  round::Arrival what;
  Incarnation incarnation;  // of the sender
  std::uint64_t chunk_count = 0;
  int scale_bits = 0;
  std::uint64_t first_chunk = 0;
  DigestKind digest_kind = DigestKind::kStream;
};

// Reads a head from the wire. An error is a breach of the protocol and ends the session. kPermissionDenied: the child
// speaks in another's name, or in a role that it does not have.
Result<UpdateHead> head_from_proto(const v1::UpdateBegin& begin, NodeId child, Role role);
Result<PartialHead> head_from_proto(const v1::PartialBegin& begin, NodeId child, Role role);

// kStale: it is of another pass than the open one, or from another attempt's mean. It is not at fault, and is not
// dropped.
Status check_pass(const UpdateHead& head, const round::MadeFrom& open);
Status check_pass(const PartialHead& head, const round::MadeFrom& open);

// kPermissionDenied when the partial names a site (as contributor, refused or missing) that is not below its sender.
Status check_below(const PartialHead& head, const std::function<bool(SiteId site)>& is_below);

// The sites that the partial must leave out to be admitted: those that are not below its sender, and contributors that
// `gather` would not admit. In order.
std::vector<SiteId> without(const PartialHead& head, const round::Gather& gather,
                            const std::function<bool(SiteId site)>& is_below);

// The parent's answer.
v1::Envelope update_receipt(RunId run, RoundId round, SiteId site, const Status& status, std::uint32_t pass = 0);
v1::Envelope partial_receipt(RunId run, RoundId round, std::uint64_t sequence, const Status& status,
                             const std::vector<SiteId>& without, std::uint32_t pass = 0);

}  // namespace fluvial::transfer
