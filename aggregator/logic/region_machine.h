// One round at an aggregator: take what comes from below into one sum, close, send the sum up, and again for what comes
// after. A pure step machine, as the coordinator's: events and a time in, effects out.
//
// Each partial adds to the ones before it; their contributor sets are disjoint. While one is on its way the sum must
// not change, so what arrives meanwhile stays staged. What the parent does not hold after a reconnect goes up again.
//
// What is in the sum stays staged as well, until the parent has accepted it: when a site must leave the sum (the parent
// has it by another way, or its lease is another now), the sum is made again from what is staged without that site.
#pragma once

#include <map>
#include <optional>
#include <variant>
#include <vector>

#include "core/base/clock.h"
#include "core/round/gather.h"
#include "core/round/plan.h"
#include "core/round/record.h"

namespace fluvial::aggregator {

using round::ArrivalId;

// What a round is about: the same in each of its openings. A parent that says something else of a round that is open
// here begins another, and nothing of what is here fits into it.
struct Subject {
  round::Plan plan;
  round::ModelRef base;
  std::uint64_t value_count = 0;
  std::uint64_t integer_count = 0;
  bool operator==(const Subject&) const = default;
};

// What the parent says when it opens a round, or says again to a child that (re)connected or has a new site below it.
struct Opening {
  RunId run;
  RoundId round;
  AttemptId attempt;
  Epoch epoch;
  std::vector<round::Participant> participants;  // those below this node
  std::set<SiteId> counted;                      // of those, whom the parent's side holds
  std::set<SiteId> gone;                         // once below this node in this round, elsewhere now
  int scale_bits = 0;
  TimePoint deadline;         // this tier's: close then with what is there
  bool same_session = false;  // as the opening before it: a partial on its way is still on its way
  Subject subject = {};
};

// ---- effects, in this order and one after the other where they touch the sum ----------------------------------------
struct ResetSum {
  int scale_bits;
};
struct OpenRound {};  // tell every child that has participants below it
struct SetTimer {
  TimePoint at;
};
struct Take {  // add it to the sum, then taken(); it stays staged
  ArrivalId arrival;
};
struct Release {  // it need not be kept any longer
  ArrivalId arrival;
};
struct Drop {  // the same, and its sender is told why it is not taken, and whom a partial must do without
  ArrivalId arrival;
  Error error;
};
struct SendPartial {  // the sum as it stands; receipt() or a new Opening answers
  std::uint64_t sequence = 0;
  round::ContributorSet contributors;
  std::vector<round::Refusal> refusals;
  std::vector<SiteId> missing;
};
using Effect = std::variant<ResetSum, OpenRound, SetTimer, Take, Release, Drop, SendPartial>;
using Effects = std::vector<Effect>;

class RegionMachine {
 public:
  Effects opened(Opening opening, TimePoint now);
  Effects arrived(ArrivalId arrival, const round::Arrival& what, TimePoint now);
  Effects taken(ArrivalId arrival, const round::ContributorSet& with_probes, TimePoint now);
  // A part of it may be in the sum, which is made again without it. Its sites are not in, for this attempt.
  Effects take_failed(ArrivalId arrival, const Error& error, TimePoint now);
  Effects refused(const round::Refusal& refusal, TimePoint now);
  // The site's own word, of `attempt`. 0: of whichever is open; of another than the open one: nothing, for the open one
  // asks the site anew.
  Effects declined(AttemptId attempt, const round::Refusal& refusal, TimePoint now);
  Effects tick(TimePoint now);
  // The parent's answer to a partial; `without` names whom it must do without to be taken.
  Effects receipt(std::uint64_t sequence, const Status& status, const std::vector<SiteId>& without, TimePoint now);
  Effects closed();  // committed, or the run ended: nothing of this round is wanted any more

  Status admit(SiteId site, Epoch lease, std::uint64_t weight) const;
  Status admit(AttemptId attempt, Epoch epoch, const round::ContributorSet& partial) const;

  bool is_open() const { return open_.has_value(); }
  const Opening& opening() const { return *open_; }
  const round::Gather& gather() const { return gather_; }

 private:
  enum class Stage { kQueued, kTaking, kTaken };
  struct Staged {
    round::ContributorSet contributors;
    Stage stage = Stage::kQueued;
  };
  void drop_reports(Effects& out);
  void reconcile(Effects& out);
  void accepted(Effects& out);
  void refuse_held(const Error& error, Effects& out);
  void recall();
  void settle(TimePoint now, Effects& out);
  void take_queued(Effects& out);
  void report(const round::Refusal& refusal);
  void reseal(Effects& out);
  void try_close(TimePoint now, Effects& out);
  void send(Effects& out);
  bool is_taking() const;

  std::optional<Opening> open_;
  round::Gather gather_;
  std::map<ArrivalId, Staged> staged_;
  std::set<SiteId> above_;  // whom the parent's side holds, or brings by another way
  std::set<SiteId> void_;   // who has to leave the sum
  bool spoilt_ = false;     // the sum cannot be used until it has been made again
  std::vector<round::Refusal> unreported_;
  std::optional<SendPartial> sent_;  // on its way: its contributors are what the gather holds
  std::optional<TimePoint> send_again_;
  std::uint64_t sequence_ = 0;  // of the sum as sealed last; the same when it is sent again after a reconnect
  bool reported_ = false;       // the parent has heard of this attempt
};

}  // namespace fluvial::aggregator
