// What every parent does alike for the open round: it admits what its children bring, stages it, has it added to the
// sum, answers for it, and tells each child what of an opening or a commit concerns it. When, and whether, its owner's
// machine decides: the coordinator's or an aggregator's (RoundOwner).
#pragma once

#include <set>
#include <vector>

#include "core/base/clock.h"
#include "core/round/gather.h"
#include "core/round/pace.h"
#include "core/round/span.h"
#include "core/round/told.h"
#include "core/telemetry/node_metrics.h"
#include "core/telemetry/round_metrics.h"
#include "core/transfer/inflow.h"
#include "core/tree/children.h"
#include "core/tree/round_gauges.h"
#include "core/tree/sum.h"
#include "core/wire/record_mapping.h"

namespace fluvial::tree {

using round::ArrivalId;

// Who decides about the open round. What is asked without a round is asked of the open one alone.
class RoundOwner {
 public:
  virtual ~RoundOwner() = default;
  virtual bool is_current(RunId run, RoundId round) const = 0;
  // What was made for this round may come in: for the open one, or for one shortly before it: with late updates an
  // update, with windows a partial, too.
  virtual bool takes(RunId run, RoundId round, bool is_update) const = 0;
  virtual round::MadeFrom made_from() const = 0;  // what fits the open pass of a round with several
  virtual const round::Gather& gather() const = 0;
  virtual AttemptId open_attempt() const = 0;   // 0: no round is in progress
  virtual bool is_here(SiteId site) const = 0;  // connected, however deep
  virtual void heard(SiteId site) = 0;          // something of its own has come, whether it is of use or not
  virtual Status may_take(const transfer::UpdateHead& head) const = 0;
  virtual Status may_take(const transfer::PartialHead& head) const = 0;
  virtual Result<transfer::Terms> terms(bool brings_integers) = 0;
  // What an update of this site counts for that is admitted now.
  virtual std::uint32_t share(SiteId site) const = 0;
  // Of these, who counts for another share than it should, as far as this node knows.
  virtual std::vector<SiteId> miscounted(const round::ContributorSet& contributors) const = 0;

  // Who is below which child; 0: nobody knows.
  virtual NodeId via(SiteId site) const = 0;
  virtual NodeId way_to(const round::Participant& participant) const = 0;  // by the lease that counts
  virtual bool may_bring(NodeId child, SiteId site) const = 0;

  // For its machine.
  virtual void staged(ArrivalId arrival, const round::Arrival& what) = 0;
  virtual void taken(ArrivalId arrival, const round::ContributorSet& with_probes) = 0;
  virtual void take_failed(ArrivalId arrival, NodeId child, const Error& error) = 0;
  virtual void will_not_be_in(const round::Refusal& refusal) = 0;
  virtual void has_declined(AttemptId attempt, const round::Refusal& refusal) = 0;

  // As in transfer::Receiver: an aggregator knows the keys of its own sites alone, and believes nothing of the others.
  virtual bool knows_authors() = 0;
  virtual void are_accused(NodeId by, const std::vector<round::Refusal>& conflicts) = 0;
};

// On the node's strand.
class ParentSide final : public transfer::Receiver {
 public:
  ParentSide(Runtime& runtime, RoundOwner& owner, Children& children);

  // ---- what comes from below
  Result<transfer::Terms> admit(const transfer::UpdateHead& head) override;
  Result<transfer::Terms> admit(const transfer::PartialHead& head) override;
  bool still_takes(const transfer::UpdateHead& head) override {
    return owner_.takes(head.run, head.own_round(), /*is_update=*/true);
  }
  std::vector<SiteId> without(const transfer::PartialHead& head) override;
  void arrived(transfer::StagedArrival arrival) override;
  void refused(RunId run, RoundId round, const round::MadeFrom& from, const round::Refusal& refusal) override;
  void accused(RunId run, RoundId round, NodeId by, const std::vector<round::Refusal>& conflicts) override;
  bool knows_authors() override;
  void declined(NodeId child, const round::Decline& decline);

  // ---- what the machine decides
  void take(ArrivalId arrival, std::optional<ModelVersion> admitted_on = {});
  void release(ArrivalId arrival);
  void drop(ArrivalId arrival, const Error& error);  // its child is told why, and whom a partial must do without

  // ---- the round
  void begin();  // another one: nobody has been told of it
  // Anew, without what was staged.
  void begin_sum(RunId run, RoundId round, transfer::SumShape shape, std::uint32_t pass = 0);
  // Anew: what is staged is for this round, and what was cut off, while it may enter it.
  void go_over(RunId run, RoundId round, transfer::SumShape shape, std::uint32_t staleness_max);
  void reset_sum(RunId run, transfer::SumShape shape);  // queued; what was staged stays
  void end();                                           // of what came for it nothing is wanted any more

  // ---- what goes down
  // To those of the children whom it concerns, with what is left of the time.
  void send_openings(wire::Opening whole, Duration soft_left, Duration hard_left, const std::set<NodeId>& children);
  void send_openings(wire::Opening whole, Duration soft_left, Duration hard_left);  // to all of them
  void send_commits(const wire::Commit& whole);
  void tell_all(const v1::Envelope& message);
  std::vector<NodeId> told_of(const std::vector<SiteId>& sites) const { return told_.children_of(sites); }

  Lane& lane() { return sum_.lane(); }
  const Sum& sum() const { return sum_; }
  round::SpanLog& spans() { return spans_; }  // this node's

 private:
  void on_taken(ArrivalId id, TimePoint begun, const transfer::StagedArrival& arrival,
                const Result<round::ContributorSet>& added);
  void admit_with_share(transfer::StagedArrival* arrival) const;
  void admit_on_newest(transfer::StagedArrival* arrival) const;
  void count_bytes(const transfer::StagedArrival& arrival) const;
  void measure() const;
  TimePoint now() const { return runtime_.clock.now(); }

  Runtime& runtime_;
  RoundOwner& owner_;
  Children& children_;
  telemetry::RoundMetrics counts_;
  telemetry::EdgeBytes bytes_;
  RoundGauges gauges_;
  Sum sum_;
  round::Told told_;
  round::Stopwatch watch_;
  TimePoint begun_;  // the round
  RunId sized_for_;
  std::uint64_t longest_ = 0;  // pass of that run so far, in values
  telemetry::Measuring measuring_;
  round::SpanLog spans_;
};

}  // namespace fluvial::tree
