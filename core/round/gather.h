// One round at one inner node: who is awaited, what has come, what the sum holds. The coordinator and every aggregator
// gather by the same rules. Pure: no clock, no sum, no session; the caller carries out what follows.
//
// A site's way:  awaited -> taking (verified, being added to the sum) -> held (in the sum)
//                awaited -> refused (it will not be in)
//                awaited -> missing (its parent closed without it; it may still come)
//                any     -> above (the parent of this node holds it)
// A site that moves to another parent gets a newer lease; what came under the old one is fenced.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "core/round/contribution.h"

namespace fluvial::round {

using ArrivalId = Id<struct ArrivalTag>;  // the caller's name for a verified update or partial that it holds staged

// What one child brings: one update, or a partial aggregate with the sites that will not be in.
struct Arrival {
  ContributorSet contributors;
  std::vector<Refusal> refusals;
  std::vector<SiteId> missing;
  std::optional<int> scale_bits = {};  // of a partial's sum; none: it is made when it is added
};

class Gather {
 public:
  Gather() = default;
  explicit Gather(const std::vector<Participant>& participants);

  // May it come in? kFailedPrecondition: no participant, or refused before; kStale: another lease; kInvalidArgument:
  // weight 0 or above the registered maximum; kAlreadyExists: counted already.
  Status admit(SiteId site, Epoch lease, std::uint64_t weight) const;
  Status admit(const ContributorSet& contributors) const;  // each of them; the first error
  // What was decided of each site before this round: of that nothing comes in again. kAlreadyExists.
  void know(Marks marks) { marks_ = std::move(marks); }
  Status check_mark(SiteId site, RoundId own) const;
  // Whom a partial with these contributors has to do without to be admitted.
  std::vector<SiteId> without(const ContributorSet& contributors) const;

  void begin_take(const ContributorSet& contributors);   // admitted; they are being added to the sum
  void finish_take(const ContributorSet& contributors);  // they are in the sum; with the sum's probes
  void abandon_take(const ContributorSet& contributors, const Error& error);  // they are not, and will not be

  void refuse(const Refusal& refusal);                  // unless it is in already
  void mark_missing(const std::vector<SiteId>& sites);  // of those, who is awaited
  void await(SiteId site);                              // if it is missing: it comes after all
  void mark_above(const std::set<SiteId>& sites);       // the parent holds exactly these: others of "above" are awaited
  void move_held_above();                               // the parent took the sum
  void forget_held();                                   // the sum was lost: those taking or held are awaited again
  // Those that are new are awaited; a site under a newer lease is awaited under that; one that is `gone` takes no part
  // here any more. Returns whose contribution, held or being taken, is void by this: the sum has to be made again
  // without it, and forget_held() comes first.
  std::set<SiteId> update(const std::vector<Participant>& participants, const std::set<SiteId>& gone);
  // The same for the root, which keeps what it holds: that is counted, whoever brought it.
  void move_lease(SiteId site, Epoch lease);
  // Who was missing or refused is awaited again: perhaps what comes now can be used, and there may be nobody else.
  // Whoever contradicted itself (kConflict) is not.
  void next_attempt();

  bool is_participant(SiteId site) const { return slots_.contains(site); }
  std::uint32_t share(SiteId site) const;                         // kWholeFactor: it takes no part
  bool settled() const { return awaited_ == 0 && taking_ == 0; }  // nobody to wait for
  bool quiet() const { return taking_ == 0; }
  const ContributorSet& held() const { return held_; }
  bool is_counted(SiteId site) const;   // as the next one says
  std::vector<SiteId> counted() const;  // taking, held or above: who need not send (again)
  std::set<SiteId> above() const;
  std::vector<SiteId> awaited() const;
  std::size_t awaited_count() const { return awaited_; }
  std::vector<SiteId> late() const;  // neither in nor refused
  std::vector<Participant> participants() const;
  std::vector<Refusal> refusals() const;
  std::size_t participant_count() const { return slots_.size(); }

 private:
  enum class State { kAwaited, kTaking, kHeld, kAbove, kRefused, kMissing };
  struct Slot {
    Participant participant;
    State state = State::kAwaited;
    std::optional<Error> error;
    bool gone = false;  // as soon as it is in no sum
    RoundId refused_own = {};
  };
  static bool is_counted(const Slot& slot) {
    return slot.state == State::kTaking || slot.state == State::kHeld || slot.state == State::kAbove;
  }
  void move(Slot& slot, State to);
  void await_under(Slot& slot, Epoch lease);
  Status check_mark(const Contribution& entry) const;

  std::map<SiteId, Slot> slots_;
  Marks marks_;
  ContributorSet held_;
  std::size_t awaited_ = 0;
  std::size_t taking_ = 0;
};

}  // namespace fluvial::round
