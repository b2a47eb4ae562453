// A site's training workers as a job sees them, and when a job of theirs may begin and is over. Pure.
//
// A unit is what counts as one worker: a process by itself, or all ranks of a group together. A job has one slot a
// unit: it is open until a unit works on it and again when that unit goes away, and it ends done or failed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/base/ids.h"
#include "core/round/plan.h"

namespace fluvial::edge {

using MemberId = Id<struct MemberTag>;  // an attached process

struct CrewMember {
  std::string name;
  std::string group = {};  // empty: by itself
  std::uint32_t rank = 0;
  std::uint32_t ranks = 1;  // of the group
};

struct Unit {
  std::string name;               // a group's own, or the process'
  std::vector<MemberId> members;  // by rank
};

class Crew {
 public:
  // A job starts when so many units are free.
  explicit Crew(std::size_t workers) : workers_(workers) {}

  void attached(MemberId id, CrewMember member);
  void detached(MemberId id);
  void took(MemberId id);      // a task
  void answered(MemberId id);  // it; free again
  // A job ends without the answers of those that are still at it.
  void gave_up();
  // A job went on with fewer, or began with fewer because nobody else came.
  void went_short();

  std::size_t processes() const { return members_.size(); }
  std::vector<Unit> free_units() const;  // by name
  // Whether a job may begin with the units that are free. `waited`: the deadline for more of them has passed. Where the
  // plan says continue, and a job before went short, nobody waits again for those that are not there or do not answer.
  bool may_start(round::MissingWorkers missing, bool waited) const;

 private:
  struct State {
    CrewMember member;
    bool busy = false;
    bool overdue = false;  // with a task that nobody waits for any more
  };
  template <typename Keep>
  std::vector<Unit> units(Keep keep) const;  // complete ones, all of whose members are to be kept
  std::size_t responsive() const;
  void refresh();

  std::size_t workers_;
  std::map<MemberId, State> members_;
  bool short_handed_ = false;
};

enum class SlotState { kOpen, kWorking, kDone, kFailed };
enum class Ruling { kWait, kGo, kFail };
// What a job does now. `spare`: a unit is free that has not had its turn in this job. The plan says decline: go with
// all or not at all. It says continue: go as soon as everybody who may still bring something has.
Ruling judge(std::span<const SlotState> slots, round::MissingWorkers missing, bool spare);

}  // namespace fluvial::edge
