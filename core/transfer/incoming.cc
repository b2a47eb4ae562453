#include "core/transfer/incoming.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/aggregate/scale.h"
#include "core/round/integers.h"
#include "core/round/pass.h"
#include "core/wire/mapping.h"
#include "kernels/fixed.h"

namespace fluvial::transfer {
namespace {

std::uint64_t chunk_count_of(const PartialHead& head, const Terms& terms) {
  return head.what.contributors.empty() ? 0 : terms.layout.chunk_count();
}

// The round's scale has room for all participants. If it has none for this weight, that is the sender's or the parent's
// mistake, and no fault of the update itself.
Status check_room(const Terms& terms, std::uint64_t weight) {
  if (aggregate::has_room(terms.value_abs_max, terms.scale_bits, weight)) return {};
  return Error{Code::kFailedPrecondition,
               "a weight of " + std::to_string(weight) + " has no room at scale 2^" + std::to_string(terms.scale_bits)};
}

// An old update is not at fault for coming too late: it is not dropped, and waits.
Status check_from(const UpdateHead& head, const Terms& terms) {
  if (head.base_version == terms.base_version) {
    if (head.base == terms.base) return {};
    return Error{Code::kInvalidArgument,
                 "update of site " + std::to_string(head.site.value()) + ": trained from another model"};
  }
  const round::ModelRef base{{}, terms.base_version, terms.base, 0};
  const Digest* const from = round::base_of(base, terms.late.get(), head.base_version);
  if (from == nullptr || *from != head.base) {
    return Error{Code::kStale, "site " + std::to_string(head.site.value()) + " trained from model version " +
                                   std::to_string(head.base_version.value()) + ", from which none may enter"};
  }
  round::ContributorSet one;
  FLUVIAL_TRY(one.add({.site = head.site,
                       .lease = head.lease,
                       .weight = head.weight,
                       .metrics = {},
                       .incarnation = head.incarnation,
                       .times = {},
                       .base = head.base_version,
                       .admitted = terms.base_version}));
  return round::check_versions(one, terms.base_version, terms.late.get());
}

Status check_shape(const UpdateHead& head, const Terms& terms) {
  const auto mismatch = [&](const std::string& what) {
    return Error{Code::kInvalidArgument, "update of site " + std::to_string(head.site.value()) + ": " + what};
  };
  if (head.codec_name != terms.codec_name)
    return mismatch("codec '" + wire::printable(head.codec_name) + "', expected " + terms.codec_name);
  if (head.value_count != terms.layout.value_count || head.chunk_count != terms.layout.chunk_count() ||
      head.integer_count != terms.integer_count) {
    return mismatch("another number of values, chunks or integers than the model has");
  }
  FLUVIAL_TRY(check_from(head, terms));
  if (!head.has_probe() && head.probe != 1.0f) return mismatch("the probe is not 1");
  FLUVIAL_TRY(check_base(terms));
  return check_room(terms, head.weight);
}

std::span<const std::uint32_t> factors_of(const Terms& terms) {
  return terms.late ? std::span<const std::uint32_t>(terms.late->factors) : std::span<const std::uint32_t>();
}

Status check_shape(const PartialHead& head, const Terms& terms) {
  if (head.chunk_count != chunk_count_of(head, terms) || head.scale_bits != terms.scale_bits) {
    return Error{Code::kInvalidArgument, "a partial of another shape or scale"};
  }
  if (head.chunk_count > 0) FLUVIAL_TRY(check_base(terms));
  FLUVIAL_TRY(check_room(terms, head.what.contributors.total_weight()));
  FLUVIAL_TRY(round::check_versions(head.what.contributors, terms.base_version, terms.late.get()));
  return round::check_probe(head.what.contributors, terms.scale_bits, factors_of(terms));
}

// A parent of an earlier version says no versions: what it brings is fresh.
PartialHead with_versions(PartialHead head, const Terms& terms) {
  if (terms.late) head.what.contributors.admitted_fresh(terms.base_version);
  return head;
}

// The chunks received so far were checked against the bounds of the first head's contributors.
Status check_same_sum(const PartialHead& before, const PartialHead& head) {
  const auto same = [](const auto& a, const auto& b) {
    return a.first == b.first && a.second.weight == b.second.weight && a.second.digest == b.second.digest &&
           a.second.incarnation == b.second.incarnation && a.second.submission == b.second.submission &&
           a.second.base == b.second.base && a.second.admitted == b.second.admitted &&
           a.second.share == b.second.share && a.second.from == b.second.from;
  };
  if (before.scale_bits == head.scale_bits &&
      std::ranges::equal(before.what.contributors.entries(), head.what.contributors.entries(), same)) {
    return {};
  }
  return Error{Code::kInvalidArgument, "a partial that goes on with other contributors or another scale than it began"};
}

Status check_first(std::uint64_t first_chunk) {
  if (first_chunk == 0) return {};
  return Error{Code::kUnavailable, "it goes on from chunk " + std::to_string(first_chunk) +
                                       ", but what was before is not here: begin anew"};
}

std::vector<std::int64_t> integers_of(ByteSpan bytes) {
  std::vector<std::int64_t> integers(bytes.size() / sizeof(std::int64_t));
  for (std::size_t i = 0; i < integers.size(); ++i) {
    integers[i] = static_cast<std::int64_t>(load_le<std::uint64_t>(bytes.data() + i * sizeof(std::int64_t)));
  }
  return integers;
}

}  // namespace

Incoming::Incoming(Terms terms, std::uint64_t chunk_count, std::uint64_t bytes_max, DigestKind digest_kind,
                   const Staging& staging)
    : terms_(std::move(terms)),
      chunk_count_(chunk_count),
      staged_(*staging.budget, *staging.files, staging.folder, bytes_max),
      digest_(digest_kind, chunk_count) {}

Result<Incoming> Incoming::begin(UpdateHead head, Terms terms, const Staging& staging) {
  FLUVIAL_TRY(check_shape(head, terms));
  FLUVIAL_TRY(check_first(head.first_chunk));
  const std::uint64_t chunk_count = terms.layout.chunk_count();
  const std::uint64_t bytes_max = terms.codec->encoded_bytes_max(terms.layout.chunk_values) * chunk_count;
  Incoming incoming(std::move(terms), chunk_count, bytes_max, head.digest_kind, staging);
  incoming.update_ = std::move(head);
  return incoming;
}

Result<Incoming> Incoming::begin(PartialHead head, Terms terms, const Staging& staging) {
  head = with_versions(std::move(head), terms);
  FLUVIAL_TRY(check_shape(head, terms));
  FLUVIAL_TRY(check_first(head.first_chunk));
  const std::uint64_t chunk_count = chunk_count_of(head, terms);
  const std::uint64_t bytes_max = kernels::packed_bytes_max(terms.layout.chunk_values) * chunk_count;
  Incoming incoming(std::move(terms), chunk_count, bytes_max, head.digest_kind, staging);
  incoming.partial_ = std::move(head);
  return incoming;
}

wire::Received Incoming::received() const {
  return update_ ? wire::Received{update_->incarnation, update_->submission, next_index_}
                 : wire::Received{partial_->incarnation, partial_->sequence, next_index_};
}

// The same round, or a later one which the same update may enter, or with windows the same sum.
bool Incoming::is_for(RunId run, RoundId round) const {
  const bool goes_over = terms_.late && (update_ || terms_.late->drift_max > 0);
  return run == this->run() && (round == this->round() || (goes_over && round > this->round()));
}

bool Incoming::continues(const UpdateHead& head) const {
  return update_ && is_for(head.run, head.round) && update_->site == head.site && update_->from == head.from &&
         update_->base_version == head.base_version && head.digest_kind == digest_.kind() &&
         received() == wire::Received{head.incarnation, head.submission, head.first_chunk};
}

bool Incoming::continues(const PartialHead& head) const {
  return partial_ && is_for(head.run, head.round) && partial_->child == head.child && partial_->pass == head.pass &&
         head.digest_kind == digest_.kind() &&
         received() == wire::Received{head.incarnation, head.sequence, head.first_chunk};
}

Status Incoming::resume(UpdateHead head, const Terms& terms) {
  FLUVIAL_CHECK(continues(head), "a head that goes on from elsewhere");
  FLUVIAL_TRY(check_shape(head, terms));
  update_ = std::move(head);
  go_on_under(terms);
  return {};
}

Status Incoming::resume(PartialHead head, const Terms& terms) {
  FLUVIAL_CHECK(continues(head), "a head that goes on from elsewhere");
  head = with_versions(std::move(head), terms);
  FLUVIAL_TRY(check_shape(head, terms));
  FLUVIAL_TRY(check_same_sum(*partial_, head));
  partial_ = std::move(head);
  go_on_under(terms);
  return {};
}

// The open round may be a later one than it was cut off in.
void Incoming::go_on_under(const Terms& terms) {
  terms_.base = terms.base;
  terms_.base_version = terms.base_version;
  terms_.base_integers = terms.base_integers;
  terms_.late = terms.late;
  terms_.from = terms.from;
}

Status Incoming::chunk(std::uint64_t index, Buffer bytes) {
  if (index != next_index_ || index >= chunk_count_) {
    return Error{Code::kInvalidArgument, "chunk " + std::to_string(index) + ", expected " +
                                             std::to_string(next_index_) + " of " + std::to_string(chunk_count_)};
  }
  FLUVIAL_TRY(verify_chunk(bytes.span()));
  FLUVIAL_TRY(staged_.append(std::move(bytes)));
  ++next_index_;
  return {};
}

// The scale leaves room for all participants at value_abs_max. Sums within their contributors' share of that room
// cannot overflow, whatever they are added to.
Status Incoming::verify_packed(ByteSpan bytes, std::size_t count) {
  FLUVIAL_TRY(kernels::check_packed_chunk(bytes, count));
  Values<std::int64_t> memory(count);
  const std::span<std::int64_t> sums = memory.span();
  std::ranges::fill(sums, 0);
  FLUVIAL_TRY(kernels::merge_chunk(bytes, sums));
  const round::ContributorSet& contributors = partial_->what.contributors;
  double weight = 0;
  for (const auto& [site, entry] : contributors.entries()) {
    const std::optional<round::Share> share = round::share_of(entry, factors_of(terms_));
    if (share) weight += std::ldexp(static_cast<double>(share->weight), -share->down_bits);
  }
  const double bound = std::ldexp(weight * terms_.value_abs_max, terms_.scale_bits) +
                       static_cast<double>(contributors.size());  // each was rounded once
  const auto beyond = std::ranges::find_if(
      sums, [bound](std::int64_t sum) { return std::fabs(static_cast<double>(sum)) > bound * (1 + 0x1.0p-40); });
  if (beyond == sums.end()) return {};
  const auto at = terms_.layout.first_value(next_index_) + static_cast<std::uint64_t>(beyond - sums.begin());
  return Error{Code::kDataLoss, "the sum of value " + std::to_string(at) + " is " + std::to_string(*beyond) +
                                    ", more than its contributors can give"};
}

// What travels in a pass of a round with several is no tensor's.
std::string Incoming::name_of_value(std::uint64_t coordinate) const {
  const std::string number = "value " + std::to_string(coordinate);
  if (!terms_.schema) return number;
  if (terms_.layout.value_count == terms_.schema->value_count()) return round::value_name(*terms_.schema, coordinate);
  return number + " of " + round::pass_name(terms_.from.pass);
}

Status Incoming::verify_chunk(ByteSpan bytes) {
  digest_.side_by_side(next_index_, bytes);
  digest_.in_order(bytes);
  const std::size_t count = terms_.layout.size(next_index_);
  if (partial_) return verify_packed(bytes, count);
  const std::uint64_t first = terms_.layout.first_value(next_index_);
  FLUVIAL_ASSIGN(const kernels::ScreenReport report, terms_.codec->screen_chunk(bytes, count, first));
  norm_squared_ += report.norm_squared;
  if (static_cast<double>(report.max_abs) <= terms_.value_abs_max) return {};
  std::vector<float> values(count);
  FLUVIAL_TRY(terms_.codec->decode_chunk(bytes, values));
  std::size_t i = 0;
  while (i + 1 < count && std::fabs(static_cast<double>(values[i])) <= terms_.value_abs_max) ++i;
  return Error{Code::kDataLoss, name_of_value(first + i) + " is " + std::to_string(values[i]) +
                                    ", beyond the plan's value_abs_max of " + std::to_string(terms_.value_abs_max)};
}

Status Incoming::verify_end(const std::string& sha256, ByteSpan trailer) {
  if (next_index_ != chunk_count_) {
    // A sender that was told of a refusal ends in this way (frame.md), even if the refusal was of an earlier transfer
    // of the same update. It still has the chunks that it left out, and an update that is only short is not dropped.
    return Error{update_ ? Code::kUnavailable : Code::kDataLoss,
                 "ended after " + std::to_string(next_index_) + " of " + std::to_string(chunk_count_) + " chunks"};
  }
  const std::size_t expected = integer_bytes() + (update_ && update_->has_probe() ? round::kProbeBytes : 0);
  if (trailer.size() != expected) return Error{Code::kDataLoss, "another number of integers than the model has"};
  if (update_ && update_->has_probe() && !std::ranges::equal(trailer.last(round::kProbeBytes), round::probe_bytes())) {
    return Error{Code::kDataLoss, "update of site " + std::to_string(update_->site.value()) + ": the probe is not 1"};
  }
  if (wire::digest_to_proto(digest_.finish(trailer)) != sha256)
    return Error{Code::kDataLoss, "the digest does not match"};
  if (update_ && terms_.norm_max > 0 && std::sqrt(norm_squared_) > terms_.norm_max) {
    return Error{Code::kDataLoss, "the update's norm is " + std::to_string(std::sqrt(norm_squared_)) +
                                      ", beyond the plan's update_norm_max of " + std::to_string(terms_.norm_max)};
  }
  return {};
}

Status Incoming::verify_integers(std::span<const std::int64_t> integers) const {
  if (integers.empty()) return {};
  const Status within = round::check_integers(*terms_.schema, *terms_.base_integers, integers);
  if (within.ok()) return {};
  const std::string whose = update_ ? "update of site " + std::to_string(update_->site.value())
                                    : "partial of node " + std::to_string(partial_->child.value());
  return Error{within.error().code, whose + ": " + within.error().message};
}

std::size_t Incoming::integer_bytes() const {
  return update_ || chunk_count_ > 0 ? terms_.integer_count * sizeof(std::int64_t) : 0;
}

Result<StagedArrival> Incoming::end(const std::string& sha256, ByteSpan trailer,
                                    const std::optional<Signature>& signature) {
  FLUVIAL_TRY(verify_end(sha256, trailer));
  StagedArrival arrival;
  arrival.integers = integers_of(trailer.first(integer_bytes()));
  FLUVIAL_TRY(verify_integers(arrival.integers));
  if (chunk_count_ > 0) arrival.chunks.emplace(std::move(staged_));
  if (partial_) {
    arrival.kind = PartialArrival{partial_->sequence};
    arrival.child = partial_->child;
    arrival.run = partial_->run;
    arrival.round = partial_->round;
    arrival.from = terms_.from;
    arrival.what = std::move(partial_->what);
    return arrival;
  }
  UpdateArrival& update = arrival.kind.emplace<UpdateArrival>();
  update.site = update_->site;
  update.codec = terms_.codec;
  update.probe = round::probe_bytes();
  if (update_->has_probe()) std::ranges::copy(trailer.last(round::kProbeBytes), update.probe.begin());
  arrival.child = update_->site;
  arrival.run = update_->run;
  arrival.round = update_->round;
  arrival.from = update_->from;
  const Result<Digest> digest = wire::digest_from_proto(sha256);
  FLUVIAL_CHECK(digest.ok(), "a digest that matched");
  const Status one = arrival.what.contributors.add({update_->site,
                                                    update_->lease,
                                                    update_->weight,
                                                    *digest,
                                                    0,
                                                    std::move(update_->metrics),
                                                    update_->incarnation,
                                                    update_->submission,
                                                    {},
                                                    signature,
                                                    terms_.late ? update_->base_version : ModelVersion(),
                                                    terms_.late ? terms_.base_version : ModelVersion(),
                                                    round::kWholeFactor,
                                                    update_->from});
  FLUVIAL_CHECK(one.ok(), "an admitted weight");
  return arrival;
}

v1::Envelope receipt(const StagedArrival& arrival, const Status& status, const std::vector<SiteId>& without) {
  if (const auto* update = arrival.update()) {
    return update_receipt(arrival.run, arrival.round, update->site, status, arrival.from.pass);
  }
  const std::uint64_t sequence = std::get<PartialArrival>(arrival.kind).sequence;
  return partial_receipt(arrival.run, arrival.round, sequence, status, without, arrival.from.pass);
}

}  // namespace fluvial::transfer
