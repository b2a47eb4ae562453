#include "core/transfer/head.h"

#include <set>
#include <utility>

#include "core/aggregate/scale.h"
#include "core/wire/mapping.h"

namespace fluvial::transfer {

Terms make_terms(const round::Plan& plan, std::uint64_t value_count, std::uint64_t integer_count,
                 const round::ModelRef& base, int scale_bits, std::shared_ptr<const kernels::Codec> codec,
                 std::shared_ptr<const round::Schema> schema,
                 std::shared_ptr<const std::vector<std::int64_t>> base_integers,
                 const std::optional<round::Lateness>& late, const std::optional<round::Pass>& pass) {
  Terms terms;
  terms.layout = {pass ? pass->value_count : value_count, plan.chunk_values};
  if (pass) terms.from = pass->made_from();
  terms.plain_values = plain_values(value_count, pass);
  terms.integer_count = integer_count;
  terms.codec = std::move(codec);
  terms.codec_name = plan.codec;
  terms.base = base.digest;
  terms.base_version = base.version;
  if (late) terms.late = std::make_shared<const round::Lateness>(*late);
  terms.value_abs_max = plan.value_abs_max;
  terms.norm_max = plan.update_norm_max;
  terms.schema = std::move(schema);
  terms.base_integers = std::move(base_integers);
  terms.scale_bits = scale_bits;
  return terms;
}

Status check_base(const Terms& terms) {
  if (terms.integer_count == 0) return {};
  if (terms.schema && terms.schema->integer_count() == terms.integer_count && terms.base_integers &&
      terms.base_integers->size() == terms.integer_count) {
    return {};
  }
  return Error{Code::kResourceExhausted, "the base model, against which its integers are held, is not here yet"};
}

namespace {

Error of_another(const round::MadeFrom& is, const round::MadeFrom& open, const std::string& whose) {
  if (is.pass == open.pass) return {Code::kStale, whose + " is from another mean than this attempt's"};
  return {Code::kStale,
          whose + " is of " + round::pass_name(is.pass) + ", and " + round::pass_name(open.pass) + " is open"};
}

}  // namespace

Status check_pass(const UpdateHead& head, const round::MadeFrom& open) {
  if (head.from == open) return {};
  return of_another(head.from, open, "the update of site " + std::to_string(head.site.value()));
}

Status check_pass(const PartialHead& head, const round::MadeFrom& open) {
  if (head.pass != open.pass) return of_another({head.pass, {}}, open, "the partial");
  for (const auto& [site, entry] : head.what.contributors.entries()) {
    if (entry.from == open) continue;
    return of_another(entry.from, open, "the contribution of site " + std::to_string(site.value()));
  }
  return {};
}

Status check_room(const wire::Opening& opening) {
  std::uint64_t weight_sum = 0;
  for (const round::Participant& participant : opening.participants) weight_sum += participant.weight_max;
  if (aggregate::has_room(opening.plan.value_abs_max, opening.scale_bits, weight_sum)) return {};
  return Error{Code::kInvalidArgument, "scale 2^" + std::to_string(opening.scale_bits) +
                                           " has no room for weights of " + std::to_string(weight_sum) + " together"};
}

namespace {

// Only a parent that takes a kind is sent it.
Result<DigestKind> digest_kind_from_proto(int kind) {
  if (kind >= 0 && static_cast<std::uint64_t>(kind) < kDigestKinds) return static_cast<DigestKind>(kind);
  return Error{Code::kInvalidArgument, "a digest of unknown kind " + std::to_string(kind)};
}

}  // namespace

Result<UpdateHead> head_from_proto(const v1::UpdateBegin& begin, NodeId child, Role role) {
  const v1::UpdateKey& key = begin.key();
  if (role != Role::kSite || key.site() != child.value()) {
    return Error{Code::kPermissionDenied, "an update in the name of site " + std::to_string(key.site())};
  }
  UpdateHead head;
  head.run = RunId(key.run());
  if (begin.into() != 0 && (key.round() == 0 || begin.into() < key.round())) {
    return Error{Code::kInvalidArgument,
                 "an update of round " + std::to_string(key.round()) + " for round " + std::to_string(begin.into())};
  }
  head.round = RoundId(begin.into() == 0 ? key.round() : begin.into());
  head.base_version = ModelVersion(key.round() == 0 ? 0 : key.round() - 1);
  head.site = child;
  head.incarnation = Incarnation(key.incarnation());
  head.submission = key.submission();
  head.weight = begin.weight();
  head.lease = Epoch(begin.lease_epoch());
  FLUVIAL_ASSIGN(head.metrics, wire::metrics_from_proto(begin.metrics()));
  head.codec_name = begin.codec();
  FLUVIAL_ASSIGN(head.from, wire::made_from_proto(begin.pass(), begin.mean_sha256()));
  head.value_count = begin.value_count();
  head.chunk_count = begin.chunk_count();
  head.integer_count = begin.integer_count();
  FLUVIAL_ASSIGN(head.base, wire::digest_from_proto(begin.base_sha256()));
  head.probe = begin.probe();
  head.first_chunk = begin.first_chunk();
  FLUVIAL_ASSIGN(head.digest_kind, digest_kind_from_proto(begin.digest()));
  return head;
}

Result<PartialHead> head_from_proto(const v1::PartialBegin& begin, NodeId child, Role role) {
  if (role != Role::kAggregator) return Error{Code::kPermissionDenied, "a site may not send a partial aggregate"};
  PartialHead head;
  head.child = child;
  head.run = RunId(begin.run());
  head.round = RoundId(begin.round());
  head.attempt = AttemptId(begin.attempt());
  head.epoch = Epoch(begin.epoch());
  head.sequence = begin.sequence();
  head.pass = begin.pass();
  FLUVIAL_ASSIGN(head.what.contributors, wire::from_proto(begin.contributors()));
  FLUVIAL_ASSIGN(head.what.refusals, wire::from_proto(begin.refusals()));
  FLUVIAL_ASSIGN(head.what.missing, wire::from_proto(begin.missing()));
  head.incarnation = Incarnation(begin.incarnation());
  head.chunk_count = begin.chunk_count();
  if (begin.scale_bits() > 62) return Error{Code::kInvalidArgument, "scale beyond 62 bits"};
  head.scale_bits = static_cast<int>(begin.scale_bits());
  if (head.chunk_count > 0) head.what.scale_bits = head.scale_bits;
  head.first_chunk = begin.first_chunk();
  FLUVIAL_ASSIGN(head.digest_kind, digest_kind_from_proto(begin.digest()));
  return head;
}

namespace {
std::vector<SiteId> named_by(const PartialHead& head) {
  std::vector<SiteId> named = head.what.missing;
  for (const round::Refusal& refusal : head.what.refusals) named.push_back(refusal.site);
  for (const auto& [site, entry] : head.what.contributors.entries()) named.push_back(site);
  return named;
}
v1::Envelope receipt_of(RunId run, RoundId round, std::uint32_t pass, const Status& status) {
  v1::Envelope message;
  v1::Receipt& receipt = *message.mutable_receipt();
  receipt.set_run(run.value());
  receipt.set_round(round.value());
  receipt.set_pass(pass);
  receipt.set_code(wire::status_code_to_proto(status));
  if (!status.ok()) receipt.set_message(status.error().message);
  return message;
}

}  // namespace

Status check_below(const PartialHead& head, const std::function<bool(SiteId site)>& is_below) {
  for (const SiteId site : named_by(head)) {
    if (!is_below(site)) {
      return Error{Code::kPermissionDenied,
                   "site " + std::to_string(site.value()) + " is not below node " + std::to_string(head.child.value())};
    }
  }
  return {};
}

std::vector<SiteId> without(const PartialHead& head, const round::Gather& gather,
                            const std::function<bool(SiteId site)>& is_below) {
  std::set<SiteId> sites;
  for (const SiteId site : named_by(head)) {
    if (!is_below(site)) sites.insert(site);
  }
  for (const SiteId site : gather.without(head.what.contributors)) sites.insert(site);
  return {sites.begin(), sites.end()};
}

v1::Envelope update_receipt(RunId run, RoundId round, SiteId site, const Status& status, std::uint32_t pass) {
  v1::Envelope message = receipt_of(run, round, pass, status);
  message.mutable_receipt()->set_site(site.value());
  return message;
}

v1::Envelope partial_receipt(RunId run, RoundId round, std::uint64_t sequence, const Status& status,
                             const std::vector<SiteId>& without, std::uint32_t pass) {
  v1::Envelope message = receipt_of(run, round, pass, status);
  message.mutable_receipt()->set_sequence(sequence);
  wire::to_proto(without, message.mutable_receipt()->mutable_without());
  return message;
}

}  // namespace fluvial::transfer
