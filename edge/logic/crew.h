// A site's training workers as a job sees them, and when their job may begin and is over. Pure.
//
// A unit counts as one worker: a process by itself, or all ranks of a group together. A job has one slot for each unit.
// A slot is open until a unit works on it, and again when that unit goes away; it ends done or failed.
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
  // A job starts when `workers` units are free.
  explicit Crew(std::size_t workers) : workers_(workers) {}

  void attached(MemberId id, CrewMember member);
  void detached(MemberId id);
  void took(MemberId id);      // a task
  void answered(MemberId id);  // the task; the member may take another one
  // A job ends without the answers of the members that still work on it.
  void gave_up();
  // A job went on with fewer units, or began with fewer because no other came.
  void went_short();

  std::size_t processes() const { return members_.size(); }
  std::vector<Unit> free_units() const;  // by name
  // Whether a job may begin with the units that are free. `waited`: the deadline for more of them has passed. If the
  // plan says continue, and an earlier job went short, jobs do not wait again for units that are absent or overdue.
  bool may_start(round::MissingWorkers missing, bool waited) const;

 private:
  struct State {
    CrewMember member;
    bool busy = false;
    bool overdue = false;  // with a task whose job has ended without its answer
  };
  template <typename Keep>
  std::vector<Unit> units(Keep keep) const;  // complete units, all of whose members satisfy `keep`
  std::size_t responsive() const;
  void refresh();

  std::size_t workers_;
  std::map<MemberId, State> members_;
  bool short_handed_ = false;
};

enum class SlotState { kOpen, kWorking, kDone, kFailed };
enum class Ruling { kWait, kGo, kFail };
// What a job does now. `spare`: a unit is free that has not had its turn in this job. If the plan says decline, the job
// needs all units. If it says continue, the job is done once every unit that may still bring a result has done so.
Ruling judge(std::span<const SlotState> slots, round::MissingWorkers missing, bool spare);

}  // namespace fluvial::edge
