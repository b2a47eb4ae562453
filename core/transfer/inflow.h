// One child's update or partial on its way in, from its beginning to the owner of the round. core/tree calls the steps
// from its strands and its pool. Steps that block say so.
//
//   admit() -> start() -> chunk() ... -> end() -> hand_over()
//     `-> refuse(), after an error of any step; the rest is skipped
//     `-> cut_off(), when the session ends in the middle
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/transfer/round_book.h"

namespace fluvial::transfer {

// The owner of the round: the coordinator or an aggregator. On the node's strand.
class Receiver {
 public:
  virtual ~Receiver() = default;
  // Both say kStale by check_pass(), before they look at the sites: those are of the open pass.
  virtual Result<Terms> admit(const UpdateHead& head) = 0;
  virtual Result<Terms> admit(const PartialHead& head) = 0;  // by admit_partial()
  // Whether what is left of it is still wanted: the round that it could enter last may be over.
  virtual bool still_takes(const UpdateHead& /*head*/) { return true; }
  // The sites that a refused partial must leave out to be admitted.
  virtual std::vector<SiteId> without(const PartialHead& head) = 0;
  virtual void arrived(StagedArrival arrival) = 0;
  // An update that is invalid, of this pass of the round.
  virtual void refused(RunId run, RoundId round, const round::MadeFrom& from, const round::Refusal& refusal) = 0;
  // By a partial of this child: it brings sites with other content than they sent here (kConflict, with both). Nobody
  // has looked yet whether the sites signed these.
  virtual void accused(RunId run, RoundId round, NodeId by, const std::vector<round::Refusal>& conflicts) = 0;
  // Whether FindForged looks at what partials bring. An aggregator's knows the keys of its own sites alone.
  virtual bool knows_authors() = 0;
};

// For Receiver::admit(). kPermissionDenied when the partial names a site that is not below its sender. Sites that it
// brings with other content than they sent before are accused, whatever `admit` says. The partial itself is refused for
// this (kConflict) only if `admit` finds nothing else wrong with it.
using Accuse = std::function<void(const std::vector<round::Refusal>& conflicts)>;
Status admit_partial(const PartialHead& head, const RoundBook& book, const std::function<bool(SiteId)>& is_below,
                     const std::function<Status()>& admit, const Accuse& accuse);

// What a child has brought, whole, before it may be added to the sum.
struct Brought {
  RunId run;
  RoundId round;  // that was open when it began to come
  Digest base{};  // that the round starts from
  const round::ContributorSet& contributors;
  std::shared_ptr<const round::Lateness> late = {};  // of the round; null: none of them is of an earlier one

  // What its site signed of it beside itself: the round that it is of, and the digest of its base; none: there is no
  // such base.
  struct Signed {
    RoundId round;
    Digest base{};
  };
  std::optional<Signed> signed_of(const round::Contribution& contribution) const;
};

// Which of the contributions are not as their sites signed them, and why. Blocking, anywhere.
using FindForged = std::function<std::vector<round::Refusal>(const Brought&)>;

class Inflow {
 public:
  explicit Inflow(UpdateHead head) : update_(std::move(head)) {}
  explicit Inflow(PartialHead head) : partial_(std::move(head)) {}

  // On the node's strand, as the book is. Goes on from a transfer that was cut off, when the head says so and the book
  // has it.
  Status admit(RoundBook& book, Receiver& receiver);
  // After admit(): how many of its chunks an earlier session brought.
  std::uint64_t kept_chunks() const { return incoming_ ? incoming_->received().chunks : 0; }
  Status start(const Staging& staging);
  // Before each chunk, on the strand. Else a sender that takes its time would hold its place in the budget for ever.
  Status may_go_on(Receiver& receiver) const;
  Status chunk(std::uint64_t index, Buffer bytes);  // blocking, anywhere; skipped after a refusal
  // Blocking, anywhere. kUnauthenticated: a contribution is not its site's own.
  Status end(const v1::UpdateEnd& end, ByteSpan trailer, const FindForged& find_forged);
  Status hand_over(RoundBook& book, Receiver& receiver);  // on the strand, after end()
  // On the strand. Returns what to tell the child.
  v1::Envelope refuse(const Error& error, RoundBook& book, Receiver& receiver);
  bool is_refused() const { return step_ == Step::kRefused; }
  std::optional<Incoming> cut_off();  // when the session ends in the middle

  const std::optional<UpdateHead>& update() const { return update_; }
  const std::optional<PartialHead>& partial() const { return partial_; }
  const std::optional<Terms>& terms() const { return terms_; }  // between admit() and start()

 private:
  std::vector<round::Refusal> contradictions(const RoundBook& book) const;
  void report_update(const Error& error, Receiver& receiver) const;
  std::vector<SiteId> report_partial(const Error& error, const RoundBook& book, Receiver& receiver) const;

  enum class Step { kAdmit, kStart, kReceive, kRefused };
  Step step_ = Step::kAdmit;
  std::optional<UpdateHead> update_;    // one of
  std::optional<PartialHead> partial_;  // the two
  std::optional<Terms> terms_;
  std::optional<Incoming> incoming_;  // from start() on; before it, what an earlier session left
  std::optional<StagedArrival> arrival_;
  RoundId round_;  // the open one, when it began
  Digest base_{};  // that one's
  std::shared_ptr<const round::Lateness> late_;
  std::vector<round::Refusal> forged_;  // contributions of the partial
  // What the site says in the trailer of its update, whether that was refused before or not.
  std::optional<round::Contribution> told_;
  std::vector<round::Refusal> conflicts_;  // that hand_over() found
};

}  // namespace fluvial::transfer
