// The invariant of each site's work, to the last bit: each trained value and integer is in a committed sum, or in what
// the site holds (its submission, its residual), or was dropped for a reason that the journal or the plan gives. Every
// transition of the site's store is made again with the reference's arithmetic:
//
//   encoding   p = (base - local) + residual, in fp32; integers and weight are those that were trained. With dgc the
//              moment u = m u + (base - local) is added in the place of base - local; counted it forgets what was sent,
//              late it stays as it was made, refused as it was before; it is dropped and inherited with the residual.
//              With onebit_adam what it was lent before is given back and what it is lent now is added, each in fp32:
//              k M, of the momentum that a signed opening names. What was lent goes as the moment does; counted, all of
//              it is used up
//   counted    residual = p - decode(what was sent), in fp32       only if the journal holds it with its digest
//   late       residual = p, times the factor of late.md           only if the journal neither holds nor refuses it
//   refused    residual as it was, p is dropped                    only if the journal refuses it
//   folding    residual = (base - local) + residual                with onebit_adam without what was lent
//   a pass     what it sends of p, by the state or the mean that a signed opening names, and what it would leave:
//   within
//              the bounds of factors.h. Counted, residual = what it would leave, to the last bit. One for each mean,
//              and each from the mean of a later attempt than the one before
//   bounds     residual dropped                                    only beyond the plan's norm or age
//   beginning  residual = that of the run that is continued        in one step with the end of all that was before
//   entering   residual = p                                        another history, which does not hold the round;
//              nothing is left of a run                            that it does not hold
//
// The state is read from the site's store after each of its transitions and each of its starts. If a crash cut off a
// transition, both outcomes are right, and the store says which it was.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/store/site_store.h"
#include "simulator/checks/report.h"
#include "simulator/checks/rounds.h"
#include "simulator/checks/truth.h"

namespace fluvial::simulator {

// The result of a site's workers in a round.
struct Trained {
  RoundId round;
  std::vector<float> update;  // base - local, in fp32
  std::vector<std::int64_t> integers;
  std::uint64_t weight = 0;
  bool lost = false;  // of an earlier history: it goes into the residual, and its round is not recorded
  round::Plan plan = {};
  std::optional<Digest> warm_start = {};  // the codec's state that its opening names, where rounds hand one down
};
// Of the plan; 0: none.
struct CarriedBounds {
  double norm_max = 0;
  std::uint64_t age_max_rounds = 0;
  float late_factor = 1;  // of what is left of an update that is late
};

class SiteChecks {
 public:
  SiteChecks(Report report, Truth& truth, const RoundChecks& rounds)
      : report_(std::move(report)), truth_(truth), rounds_(rounds) {}

  // Before the store is asked: the training is about to become a submission, or to go into the residual. A `wicked`
  // site's books are not checked.
  void encoding(SiteId site, RunId run, Trained trained, CarriedBounds bounds, bool wicked);
  // The training is not in the store, and the disk works: this is right only if it breaks the plan's bounds by itself.
  void not_encoded(SiteId site, RunId run, double value_abs_max, const Error& why);
  // A clone may hold an update that is older than what the coordinator counted of its other self, and once that round
  // is pruned it is told that its own counted (core/store/journal_retention.h).
  void resolving(SiteId site, RunId run, RoundId round, const Digest& digest, round::Outcome outcome,
                 CarriedBounds bounds, bool may_be_overtaken);
  // A run begins: the residual of the newest run that it continues goes into it, all earlier residuals are forgotten.
  void beginning(SiteId site, RunId run, const std::vector<RunId>& continues);
  void folder_lost(SiteId site);  // and with it all that it held
  // The site's store is in this history; entering(): it is about to enter another, which shares `common` with it.
  void in_history(SiteId site, round::HistoryId history) { histories_[site] = history; }
  // `bounds`: those of the residual that its submission would leave.
  void entering(SiteId site, round::HistoryId history, const round::Common& common, CarriedBounds bounds);
  // After each start, and when a transition has ended or failed: compares the store's content with what it must be.
  void settled(SiteId site, store::SiteStore& store);

 private:
  using Values = std::vector<float>;  // empty: zeros
  struct Later {                      // what a submission sends in a later pass
    round::MadeFrom from;
    Digest digest{};
    std::uint64_t submission = 0;
    Values left;  // of p, when it is counted
    std::vector<std::int64_t> integers;
  };
  struct Pending {
    RoundId round;
    Digest digest{};
    Values p;
    std::vector<std::int64_t> integers;
    std::uint64_t weight = 0;
    Values moment = {};  // of dgc, as p was made with; of onebit_adam what was lent
    bool is_onebit = false;
    std::uint32_t passes = 1;
    std::optional<Later> later = {};
  };
  struct Residual {
    Values values;
    std::uint64_t age_rounds = 0;
    Values moment = {};
  };
  struct Resolving {
    RoundId round;
    Digest digest{};
    round::Outcome outcome = round::Outcome::kPending;
  };
  struct Book {
    Residual residual;  // as last read
    std::optional<Pending> pending;
    std::optional<Trained> trained;      // about to go in
    std::optional<Resolving> resolving;  // about to happen
    CarriedBounds bounds;
  };
  struct Seen {  // in the store
    std::optional<Pending> pending;
    Residual residual;
    std::optional<store::LastOutcome> last;
  };
  std::optional<Seen> look(SiteId site, RunId run, store::SiteStore& store);
  // Makes the encoded chunks known. False: the disk fails.
  bool learn(SiteId site, RunId run, const store::PendingUpdate& update, const std::vector<std::int64_t>& integers);
  void follow_beginning(SiteId site, store::SiteStore& store);
  void follow_entering(SiteId site, store::SiteStore& store);
  static bool folded(const Book& book, const Seen& seen);
  void follow(const std::string& name, SiteId site, RunId run, Book& book, const Seen& seen);
  void resolved(SiteId site, RunId run, Book& book);
  // What its training and what it carries make: p and the moment. `lent`: of onebit_adam, as of now.
  static Pending made(const Book& book, Values lent = {});
  Values lent(const std::string& name, const Book& book);
  void check_sent(const std::string& name, SiteId site, RunId run, const Book& book, const Pending& seen);
  void encoded(const std::string& name, SiteId site, RunId run, Book& book, const Pending& seen);
  // ---- sites_passes.cc
  std::optional<std::optional<Later>> look_at_pass(SiteId site, RunId run, const store::PendingInfo& first,
                                                   store::SiteStore& store);  // none: the disk fails
  void check_first_pass(const std::string& name, SiteId site, RunId run, const Book& book, const Pending& seen);
  void follow_pass(const std::string& name, SiteId site, RunId run, Book& book, const Seen& seen);
  void check_pass(const std::string& name, SiteId site, RunId run, const Pending& pending,
                  const std::optional<Later>& before);
  void compare(const std::string& name, Book& book, const Seen& seen);
  void wrong(const std::string& name, const std::string& what, const Values& is, const Values& expected);

  Report report_;
  Truth& truth_;
  const RoundChecks& rounds_;
  std::map<std::pair<SiteId, RunId>, Book> books_;
  std::set<SiteId> wicked_;  // even when their books are closed: two machines with one identity have a book each
  std::map<SiteId, std::pair<RunId, std::vector<RunId>>> beginning_;
  std::map<SiteId, round::HistoryId> histories_;
  struct Entering {
    round::HistoryId history;
    round::Common common;
  };
  std::map<SiteId, Entering> entering_;
};

}  // namespace fluvial::simulator
