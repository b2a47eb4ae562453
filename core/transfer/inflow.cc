#include "core/transfer/inflow.h"

#include <set>
#include <utility>

#include "core/wire/mapping.h"

namespace fluvial::transfer {

Status admit_partial(const PartialHead& head, const RoundBook& book, const std::function<bool(SiteId)>& is_below,
                     const std::function<Status()>& admit, const std::function<void(const round::Refusal&)>& refuse) {
  FLUVIAL_TRY(check_below(head, is_below));
  const std::vector<round::Refusal> conflicts = book.conflicts(head);
  for (const round::Refusal& conflict : conflicts) refuse(conflict);
  FLUVIAL_TRY(admit());
  if (!conflicts.empty()) return conflicts.front().error;
  return {};
}

std::optional<Brought::Signed> Brought::signed_of(const round::Contribution& contribution) const {
  if (contribution.admitted == ModelVersion()) return Signed{round, base};
  const round::ModelRef open{run, ModelVersion(round.value() - 1), base, 0};
  const Digest* const from = round::base_of(open, late.get(), contribution.base);
  if (from == nullptr) return std::nullopt;
  return Signed{RoundId(contribution.base.value() + 1), *from};
}

Status Inflow::admit(RoundBook& book, Receiver& receiver) {
  std::optional<Incoming> kept = update_ ? book.take(*update_) : book.take(*partial_);
  if (kept) incoming_.emplace(std::move(*kept));
  if (update_) FLUVIAL_TRY(book.admit(*update_));
  FLUVIAL_ASSIGN(terms_, update_ ? receiver.admit(*update_) : receiver.admit(*partial_));
  base_ = terms_->base;
  round_ = RoundId(terms_->base_version.value() + 1);
  late_ = terms_->late;
  return {};
}

Status Inflow::start(const Staging& staging) {
  step_ = Step::kStart;
  if (incoming_) {
    FLUVIAL_TRY(update_ ? incoming_->resume(*update_, *terms_) : incoming_->resume(*partial_, *terms_));
  } else {
    Result<Incoming> begun = update_ ? Incoming::begin(*update_, std::move(*terms_), staging)
                                     : Incoming::begin(*partial_, std::move(*terms_), staging);
    if (!begun.ok()) return begun.error();
    incoming_.emplace(std::move(*begun));
  }
  terms_.reset();
  step_ = Step::kReceive;
  return {};
}

Status Inflow::chunk(std::uint64_t index, Buffer bytes) {
  return incoming_ ? incoming_->chunk(index, std::move(bytes)) : Status{};
}

Status Inflow::end(const v1::UpdateEnd& end, ByteSpan trailer, const FindForged& find_forged) {
  if (incoming_) {
    std::optional<Signature> signature;
    if (!end.signature().empty()) {
      FLUVIAL_ASSIGN(signature, wire::signature_from_proto(end.signature()));
    }
    Result<StagedArrival> whole = incoming_->end(end.sha256(), trailer, signature);
    if (!whole.ok()) return whole.error();
    forged_ = find_forged({whole->run, round_, base_, whole->what.contributors, late_});
    if (!forged_.empty()) return forged_.front().error;
    incoming_.reset();
    arrival_.emplace(std::move(*whole));
  } else if (const Result<Digest> digest = wire::digest_from_proto(end.sha256()); digest.ok()) {
    told_digest_ = *digest;
  }
  return {};
}

Status Inflow::hand_over(RoundBook& book, Receiver& receiver) {
  if (arrival_) {
    FLUVIAL_TRY(book.complete(*arrival_));
    receiver.arrived(*std::exchange(arrival_, std::nullopt));
  } else if (update_ && told_digest_) {  // refused before: the trailer may still contradict a complete submission
    FLUVIAL_TRY(book.compare(update_->run, update_->round, update_->site, update_->incarnation, update_->submission,
                             *told_digest_));
  }
  return {};
}

// The sites that a refused partial must do without. The owner is told of each site that is out because of the refusal.
std::vector<SiteId> Inflow::report(const Error& error, RoundBook& book, Receiver& receiver) {
  const bool said_before = step_ == Step::kAdmit || step_ == Step::kStart;
  if (update_) {
    const bool tell = step_ == Step::kAdmit   ? error.code == Code::kInvalidArgument
                      : step_ == Step::kStart ? error.code != Code::kUnavailable
                                              : true;
    const RoundId own = update_->own_round() == update_->round ? RoundId() : update_->own_round();
    if (tell) receiver.refused(update_->run, update_->round, {update_->site, error, own});
    return {};
  }
  const std::vector<SiteId> fenced = receiver.without(*partial_);
  std::set<SiteId> without(fenced.begin(), fenced.end());
  if (error.code == Code::kConflict) {
    for (const round::Refusal& conflict : book.conflicts(*partial_)) {
      if (!said_before) receiver.refused(partial_->run, partial_->round, conflict);
      without.insert(conflict.site);
    }
  }
  for (const round::Refusal& forged : forged_) without.insert(forged.site);
  return {without.begin(), without.end()};
}

v1::Envelope Inflow::refuse(const Error& error, RoundBook& book, Receiver& receiver) {
  incoming_.reset();  // frees the staged chunks
  arrival_.reset();
  terms_.reset();
  const std::vector<SiteId> without = report(error, book, receiver);
  step_ = Step::kRefused;
  if (update_) return update_receipt(update_->run, update_->round, update_->site, error);
  return partial_receipt(partial_->run, partial_->round, partial_->sequence, error, without);
}

std::optional<Incoming> Inflow::cut_off() { return std::exchange(incoming_, std::nullopt); }

}  // namespace fluvial::transfer
