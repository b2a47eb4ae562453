// Invariants of a run's rounds, whatever the coordinator's process went through: attempts and epochs only grow, a round
// is never reopened as another, nothing is told before it is durable, and each round is committed at most once, with
// the sum and the model that follow from its contributors.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "core/store/journal.h"
#include "core/store/rows.h"
#include "simulator/checks/factors.h"
#include "simulator/checks/onebit.h"
#include "simulator/checks/optimizer.h"
#include "simulator/checks/report.h"
#include "simulator/checks/truth.h"

namespace fluvial::simulator {

struct FlatSum {
  std::span<const std::int64_t> values;
  std::span<const std::int64_t> integers;
  int scale_bits = 0;
};
struct FlatModel {
  std::span<const float> values;
  std::span<const std::int64_t> integers;
};
// Whose sum it is: of a node, for a pass of an attempt.
struct SumOf {
  NodeId node;
  RunId run;
  RoundId round;
  Epoch epoch;
  AttemptId attempt;
  std::uint32_t pass = 0;
};
// A vector that travels down, under its name.
struct NamedBytes {
  ByteSpan bytes;
  Digest digest{};
};
// The mean of a pass that was handed down.
struct KnownMean {
  RoundId round;
  Epoch epoch;
  AttemptId attempt;
  std::uint32_t pass = 0;
  std::vector<float> values;
};

class RoundChecks {
 public:
  RoundChecks(Report report, Truth& truth) : report_(std::move(report)), truth_(truth) {}

  // No updates are reported, so no sum is compared with them.
  void keep_no_books() { keeps_books_ = false; }
  // Once for each run, with the model that it starts from.
  void run_started(const store::RunRow& row, const FlatModel& initial);
  // The run durably continues from the last model of the run that it names. One call is enough, perhaps when the
  // journal shows it after a crash.
  void run_continued(const store::RunRow& row);
  // A person was told this status: it must hold after every restart.
  void told(RunId run, round::RunStatus status) { now_.told[run] = status; }

  // ---- the coordinator's journal
  void journal_opened(store::CoordinatorJournal& journal);  // after each start: nothing known is lost or changed
  void term_began(Epoch term);
  void lease_granted(const store::LeaseRow& lease);
  void attempt_decided(const round::AttemptRecord& attempt);  // before the journal is asked
  void attempt_recorded(const round::AttemptRecord& attempt);
  // Before the journal is asked: the model, the sum that it was made from, and the codec's state from now on.
  void committing(const store::CommitRow& row, const FlatSum& sum, const FlatModel& model,
                  const std::optional<NamedBytes>& codec_state = {});
  void not_committed(RunId run);                // the journal has said so, and needs no restart to know
  void committed(const store::CommitRow& row);  // it is durable

  // The coordinator's folder is copied; the last copy is put back, and a new history begins in it. Later commits are
  // rightly lost, and stay known as those of the history before.
  void backed_up();
  void restored(round::HistoryId history, store::CoordinatorJournal& journal);
  Epoch greatest_epoch() const { return greatest_; }
  void refused_as_ahead(NodeId node, const Error& why);  // a member that claims to know more than the journal

  void quarantined(SiteId site) { now_.quarantined.insert(site); }  // durably, and the machine has been told
  void revoked(SiteId site) { revoked_.insert(site); }              // durably
  void enrolled(SiteId site) { revoked_.erase(site); }              // anew
  // The site's updates may be refused whatever they hold: it lies, or its update was damaged on its way.
  void excuse(SiteId site) { liars_.insert(site); }
  void excuse(RunId run, RoundId round, SiteId site) { damaged_.insert({run, round, site}); }

  // ---- what is sent and summed
  // The coordinator adds these to its sum: `participants` are under the leases that its machine knows. A contribution
  // that is in stays in when its site moves later, even when a later attempt's record shows the move.
  void taking(RunId run, const round::ContributorSet& contributors,
              const std::vector<round::Participant>& participants);
  void opening_sent(RunId run, RoundId round, AttemptId attempt, Epoch epoch,
                    const std::optional<round::Pass>& pass);        // by the coordinator
  void commit_sent(RunId run, RoundId round, const Digest& model);  // by the coordinator
  // A site has trained for this round: the coordinator opened it once, perhaps in an earlier history, with this plan.
  void worked_for(SiteId site, RunId run, RoundId round, const round::Plan& plan);
  void sum_sealed(const SumOf& of, const round::ContributorSet& contributors, const FlatSum& sum);
  // A pass is over, and not the last: the coordinator is about to hand down the mean of what its sum holds.
  void pass_over(const SumOf& of, const round::ContributorSet& contributors, const FlatSum& sum,
                 const NamedBytes& mean);
  // The coordinator has taken the run up; its sites will begin with this state of the codec, empty: as before the first
  // round.
  void state_loaded(RunId run, const NamedBytes& state);

  // ---- queries
  // Of runs with several passes, in any history: null for what nobody made.
  const KnownMean* mean_of(RunId run, const Digest& digest) const;
  const std::vector<float>* warm_start_of(const Digest& state) const;
  const std::optional<Factors>* factors_of(RunId run) const;
  const store::CommitRow* commit_of(RunId run, RoundId round) const;
  // In the given history, the present one or an earlier one.
  const store::CommitRow* commit_of(round::HistoryId history, RunId run, RoundId round) const;
  // Also one that is being recorded: who reads the journal finds it a moment before the coordinator's strand hears that
  // it is there.
  const store::CommitRow* in_journal(round::HistoryId history, RunId run, RoundId round) const;
  // Whether the round, or a later one that the update may enter, holds it.
  bool holds(round::HistoryId history, RunId run, RoundId round, SiteId site, const Digest& digest) const;
  // Whether a round counted something that the site made for a later round than this one.
  bool counts_newer(round::HistoryId history, RunId run, RoundId round, SiteId site) const;
  // Whether the commit refuses the site's update as one that can never be used.
  bool refuses(round::HistoryId history, RunId run, RoundId round, SiteId site) const;
  // None that the site made for this round can count any more: no round that it may enter is still to be committed, or
  // something of this round or a later one was counted, or refused so that the site dropped it.
  bool is_decided(round::HistoryId history, RunId run, RoundId round, SiteId site) const;
  // The bound of the run's plan that a decoded update breaks; empty when it is within all bounds.
  std::string beyond_bounds(RunId run, const KnownUpdate& update) const;
  void run_ended(RunId run) { now_.ended.insert(run); }
  std::uint64_t committed_count() const { return committed_count_; }
  const std::string& trace() const { return trace_; }

 private:
  struct Run {
    store::RunRow row;
    std::optional<round::AttemptRecord> attempt;
    std::map<RoundId, store::CommitRow> commits;
    std::optional<store::CommitRow> in_doubt;  // asked for, not answered
    OptimizerState state;                      // of the last commit, with its model's values
    OptimizerState state_in_doubt;
    std::vector<std::int64_t> integers;  // of that model
    std::vector<std::int64_t> integers_in_doubt;
    std::optional<Factors> factors;         // of a codec with several passes
    std::optional<Onebit> onebit;           // of 1-bit Adam
    std::vector<round::PassRecord> passes;  // of the last attempt, those that are over
    std::optional<round::VectorRef> warm;   // the codec's state of the last commit
    std::optional<round::VectorRef> warm_in_doubt;
    std::optional<std::vector<float>> inherited;  // Q of the run that it continues, settled
    Digest master{};                              // of the last committed model
    Digest trained{};                             // of the one that sites train from
  };
  struct Line {  // what a history holds, or held when it was given up
    std::map<RunId, Run> runs;
    std::set<RunId> ended;
    std::map<RunId, round::RunStatus> told;
    std::set<SiteId> quarantined;
  };
  const Line* line_of(round::HistoryId history) const;
  void check_room(const Run& run, const round::AttemptRecord& attempt, const std::string& which);
  void check_model(Run& run, const round::CommitRecord& commit, const FlatSum& sum, const FlatModel& model,
                   const std::optional<NamedBytes>& codec_state);
  static std::string beyond_types(const Run& run, const KnownUpdate& update);
  void check_refusals(const round::CommitRecord& commit);
  void check_lateness(const Run& run, const round::CommitRecord& commit);
  bool was_decided(RunId run, RoundId own, SiteId site);  // by a commit before: what the site made for it, or later
  std::vector<RoundId> may_be_of(const round::CommitRecord& commit);  // of which rounds the updates in it may be
  RoundId last_to_enter(round::HistoryId history, RunId run, RoundId round) const;  // that an update of `round` may
  bool is_sound(const round::CommitRecord& commit, SiteId site, const KnownUpdate& update);
  void check_contributors(const Run& run, const round::CommitRecord& commit);
  // ---- rounds_passes.cc
  void check_made_from(const SumOf& of, const round::ContributorSet& contributors, const std::string& where);
  void check_within(const round::ContributorSet& later, const round::ContributorSet& earlier, const std::string& which);
  void check_pass_opened(const Run& run, const std::string& which, const std::optional<round::Pass>& pass);
  void check_passes(const Run& run, const round::CommitRecord& commit);
  void check_warm_start(Run& run, const round::CommitRecord& commit, const std::vector<float>& mean,
                        const std::optional<NamedBytes>& state);
  void check_momentum(Run& run, const round::CommitRecord& commit, std::optional<Onebit::Momentum> made,
                      const std::optional<NamedBytes>& state);
  void go_on(Run& run, const Run& before);
  std::vector<float> mean_update(const Run& run, const round::CommitRecord& commit, std::vector<float> mean) const;
  void settle(Run& run, const store::CommitRow& row);
  bool say(bool holds, std::string_view invariant, std::string detail);
  Run* find(RunId run);

  Report report_;
  Truth& truth_;
  bool keeps_books_ = true;
  Line now_;
  std::optional<Line> backup_;
  std::map<round::HistoryId, Line> before_;
  round::HistoryId history_;
  std::set<SiteId> revoked_;
  std::set<SiteId> liars_;
  std::set<std::tuple<RunId, RoundId, SiteId>> damaged_;
  Epoch greatest_;
  Epoch term_;  // the coordinator's present one
  std::map<NodeId, store::LeaseRow> leases_;
  std::map<RunId, RoundId> opened_;                      // the greatest ever
  std::map<std::pair<RunId, Digest>, KnownMean> means_;  // two runs may come to the same one
  std::map<Digest, std::vector<float>> warm_starts_;     // by their state; of 1-bit Adam the momenta
  std::uint64_t committed_count_ = 0;
  std::string trace_;
};

}  // namespace fluvial::simulator
