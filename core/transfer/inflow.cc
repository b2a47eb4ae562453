#include "core/transfer/inflow.h"

#include <algorithm>
#include <set>
#include <utility>

#include "core/wire/mapping.h"

namespace fluvial::transfer {
namespace {

// What the trailer says of an update that was refused before. None: nothing that could be held against its site.
std::optional<round::Contribution> told(const UpdateHead& head, const v1::UpdateEnd& end) {
  const Result<Digest> digest = wire::digest_from_proto(end.sha256());
  if (!digest.ok()) return std::nullopt;
  round::Contribution said{head.site, head.lease, head.weight, *digest, 0, {}, head.incarnation, head.submission};
  const Result<Signature> signature = wire::signature_from_proto(end.signature());
  if (signature.ok()) said.signature = *signature;
  said.base = head.base_version;
  said.admitted = std::max(head.base_version, ModelVersion(1));  // 0 would say that it is of the open round
  said.from = head.from;
  return said;
}

}  // namespace

Status admit_partial(const PartialHead& head, const RoundBook& book, const std::function<bool(SiteId)>& is_below,
                     const std::function<Status()>& admit, const Accuse& accuse) {
  FLUVIAL_TRY(check_below(head, is_below));
  const std::vector<round::Refusal> conflicts = book.conflicts(head);
  if (!conflicts.empty()) accuse(conflicts);
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

Status Inflow::may_go_on(Receiver& receiver) const {
  if (!incoming_ || !update_ || receiver.still_takes(*update_)) return {};
  return Error{Code::kStale,
               "no round takes an update of round " + std::to_string(update_->own_round().value()) + " any more"};
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
    if (update_) {
      told_ = *whole->what.contributors.find(update_->site);
      told_->metrics.clear();  // no part of what the site signs
    }
    incoming_.reset();
    arrival_.emplace(std::move(*whole));
  } else if (update_) {
    told_ = told(*update_, end);
  }
  return {};
}

Status Inflow::hand_over(RoundBook& book, Receiver& receiver) {
  conflicts_ = contradictions(book);
  if (!conflicts_.empty()) return conflicts_.front().error;
  if (arrival_) {
    if (update_ || receiver.knows_authors()) book.complete(*arrival_);
    receiver.arrived(*std::exchange(arrival_, std::nullopt));
  }
  return {};
}

// Of an update that was refused before, too: the trailer may still contradict a complete submission.
std::vector<round::Refusal> Inflow::contradictions(const RoundBook& book) const {
  if (partial_) return arrival_ ? book.conflicts(*partial_) : std::vector<round::Refusal>();
  if (!told_) return {};
  std::optional<round::Refusal> conflict = book.compare(update_->run, update_->round, *told_);
  return conflict ? std::vector{std::move(*conflict)} : std::vector<round::Refusal>();
}

// The owner is told of a site that is out because of the refusal.
void Inflow::report_update(const Error& error, Receiver& receiver) const {
  const bool tell = step_ == Step::kAdmit   ? error.code == Code::kInvalidArgument
                    : step_ == Step::kStart ? error.code != Code::kUnavailable
                                            : true;
  if (!tell) return;
  round::Refusal refusal{update_->site, error, update_->own_round()};
  if (refusal.own == update_->round) refusal.own = RoundId();
  if (!conflicts_.empty()) refusal.proof = conflicts_.front().proof;
  receiver.refused(update_->run, update_->round, update_->from, refusal);
}

// The sites that a refused partial must do without.
std::vector<SiteId> Inflow::report_partial(const Error& error, const RoundBook& book, Receiver& receiver) const {
  const std::vector<SiteId> fenced = receiver.without(*partial_);
  std::set<SiteId> without(fenced.begin(), fenced.end());
  if (error.code == Code::kConflict) {
    for (const round::Refusal& conflict : book.conflicts(*partial_)) without.insert(conflict.site);
  }
  for (const round::Refusal& conflict : conflicts_) without.insert(conflict.site);
  for (const round::Refusal& forged : forged_) without.insert(forged.site);
  if (!conflicts_.empty()) receiver.accused(partial_->run, partial_->round, partial_->child, conflicts_);
  return {without.begin(), without.end()};
}

v1::Envelope Inflow::refuse(const Error& error, RoundBook& book, Receiver& receiver) {
  incoming_.reset();  // frees the staged chunks
  arrival_.reset();
  terms_.reset();
  std::vector<SiteId> without;
  if (update_) {
    report_update(error, receiver);
  } else {
    without = report_partial(error, book, receiver);
  }
  step_ = Step::kRefused;
  if (update_) return update_receipt(update_->run, update_->round, update_->site, error, update_->from.pass);
  return partial_receipt(partial_->run, partial_->round, partial_->sequence, error, without, partial_->pass);
}

std::optional<Incoming> Inflow::cut_off() { return std::exchange(incoming_, std::nullopt); }

}  // namespace fluvial::transfer
