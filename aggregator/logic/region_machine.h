// One round at an aggregator: add what the children send to one sum, close, send the sum up, and do so again for what
// arrives later. A pure step machine, like the coordinator's: events and a time in, effects out.
//
// Each partial adds to the ones before it; their contributor sets are disjoint. While a partial is on its way the sum
// must not change, so new arrivals stay staged. After a reconnect the node sends again what the parent does not hold.
//
// Windows (docs/design/windows.md) are rounds that go over into the next: what is staged, summed or on its way stays,
// and is sent up as soon as nothing else of this node is on its way.
//
// Arrivals that are in the sum stay staged until the parent has accepted it. When a site must leave the sum (the parent
// has it by another way, or its lease has changed), the sum is made again from the staged arrivals without that site.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/clock.h"
#include "core/round/attendance.h"
#include "core/round/gather.h"
#include "core/round/lateness.h"
#include "core/round/pass.h"
#include "core/round/plan.h"
#include "core/round/record.h"

namespace fluvial::aggregator {

using round::ArrivalId;

// What a round is about: the same in each of its openings. If a parent's opening of the open round differs, the parent
// begins another round, and nothing that is held here fits into it.
struct Subject {
  round::Plan plan;
  round::ModelRef base;
  std::uint64_t value_count = 0;
  std::uint64_t integer_count = 0;
  std::optional<round::Lateness> late = {};
  std::optional<round::Pass> pass = {};  // each of a round's passes is a round to this node (docs/design/phases.md)
  bool operator==(const Subject&) const = default;
};

// The parent's opening of a round; it is repeated to a child that (re)connected or has a new site below it.
struct Opening {
  RunId run;
  RoundId round;
  AttemptId attempt;
  Epoch epoch;
  std::vector<round::Participant> participants;  // those below this node
  std::set<SiteId> counted;                      // those of them that the parent's side holds
  std::set<SiteId> gone;                         // once below this node in this round, elsewhere now
  int scale_bits = 0;
  TimePoint deadline;         // of this tier: then it closes with what it has
  bool same_session = false;  // as the opening before: a partial on its way is still on its way
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
  std::optional<ModelVersion> admitted_on = {};  // admitted anew, on this model: it came for a round before
};
struct Release {  // it need no longer be kept
  ArrivalId arrival;
};
struct Drop {  // the same; its sender is told why it is not taken, and which sites a partial must do without
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
  // Part of the arrival may be in the sum, so the sum is made again without it. Its sites are out for this attempt.
  Effects take_failed(ArrivalId arrival, const Error& error, TimePoint now);
  Effects refused(const round::Refusal& refusal, TimePoint now);
  // The site itself declines `attempt`; 0: the open one. A decline of any other attempt does nothing, because the open
  // attempt asks the site anew.
  Effects declined(AttemptId attempt, const round::Refusal& refusal, TimePoint now);
  // Whom the coordinator refuses from now on, all of them: nobody waits for these, in this round or a later one.
  Effects denied(std::set<SiteId> sites, TimePoint now);
  Effects tick(TimePoint now);
  void heard(SiteId site);                  // something of its own has come
  void has_workers(SiteId site, bool any);  // as it reports
  // The parent's answer to a partial; `without` names the sites that a partial must do without to be accepted.
  Effects receipt(std::uint64_t sequence, const Status& status, const std::vector<SiteId>& without, TimePoint now);
  // With late updates: the open round is over, and these are in. The other updates that are here wait for the next one,
  // as do those that come until it opens; partials are made anew.
  Effects committed(const round::ContributorSet& counted);
  Effects closed();  // committed, or the run ended: nothing of this round is needed any more

  Status admit(SiteId site, Epoch lease, std::uint64_t weight) const;
  // `round`: that the partial was made for; with windows perhaps one before the open one.
  Status admit(RoundId round, AttemptId attempt, Epoch epoch, const round::ContributorSet& partial) const;
  // Whether what is for this round may come in: it is open, or one shortly before it was (docs/design/late.md).
  bool takes(RunId run, RoundId round, bool is_update) const;
  // Of these, who counts for another share than the openings named that this node has heard. What it has not heard is
  // the root's to judge.
  std::vector<SiteId> miscounted(const round::ContributorSet& contributors) const;
  // Whether this opening is of a round after the open one into which what is here goes over: updates, and with windows
  // sums.
  bool goes_over(const Opening& opening) const;

  bool is_open() const { return open_.has_value(); }
  const Opening& opening() const { return *open_; }
  const round::Gather& gather() const { return gather_; }

 private:
  enum class Stage { kQueued, kTaking, kTaken };
  struct Staged {
    round::ContributorSet contributors;
    Stage stage = Stage::kQueued;
    bool is_update = false;
  };
  bool has_windows() const { return open_ && round::rolls(open_->subject.late); }
  void go_over(const Opening& opening, Effects& out);
  void carry_over(const Opening& opening, Effects& out);
  void drop_partials(Effects& out);
  bool give_up_sent();
  Status check_goes_over(const round::Arrival& what) const;
  Status check_shares(const round::ContributorSet& contributors) const;
  void note_shares();
  void drop_reports(Effects& out, bool (*is_dropped)(Code));
  void reconcile(Effects& out);
  void accepted(Effects& out);
  void refuse_held(const Error& error, Effects& out);
  void recall();
  void settle(TimePoint now, Effects& out);
  void take_queued(Effects& out);
  void report(const round::Refusal& refusal);
  void refuse_denied();
  void reseal(Effects& out);
  void try_close(TimePoint now, Effects& out);
  void send(Effects& out);
  bool is_taking() const;

  std::optional<Opening> open_;
  round::Gather gather_;
  round::Attendance attendance_;
  std::map<ArrivalId, Staged> staged_;
  std::set<SiteId> above_;  // counted by the parent's side already, through this node or another
  std::set<SiteId> void_;   // sites that have to leave the sum
  std::set<SiteId> denied_;
  bool spoilt_ = false;  // the sum cannot be used until it has been made again
  std::vector<round::Refusal> unreported_;
  std::optional<SendPartial> sent_;  // on its way: its contributors are what the gather holds
  RoundId sent_round_;               // that it was sent in, the last time
  RoundId sealed_in_;                // that its sum was closed in
  std::optional<TimePoint> send_again_;
  bool turned_away_ = false;    // what is on its way came at a bad moment: it goes again with the next opening
  std::uint64_t sequence_ = 0;  // of the sum as last sealed; it stays when the sum is sent again after a reconnect
  bool reported_ = false;       // the parent has heard of this attempt
  bool is_over_ = false;        // committed: what is here waits for the next round
  // Of a run with windows: what each window named, by the model that it began with.
  std::map<std::pair<RunId, ModelVersion>, std::map<SiteId, std::uint32_t>> shares_;
};

}  // namespace fluvial::aggregator
