// What the runs' service says of what it does, each when it is so: for people (run_report.h), and for whoever holds it
// to what it promises. An observer decides nothing.
#pragma once

#include <string>
#include <vector>

#include "coordinator/logic/run_machine.h"
#include "coordinator/model/finalise.h"
#include "core/store/rows.h"
#include "core/transfer/incoming.h"

namespace fluvial::coordinator {

enum class DiskPart { kJournal, kModels };

// What a round waits for at the coordinator itself. kCommit: from the sealed sum to the commit in the journal; the
// others are parts of it, or of the round's beginning and of a change of the run's status.
enum class Work { kAttemptRecord, kFinalise, kCommitRecord, kStatusRecord, kCommit };

// On the node's strand.
class RunObserver {
 public:
  virtual ~RunObserver() = default;

  virtual void run_taken_up(const RunMachine&) {}
  virtual void status_told(RunId, RunStatus, const std::string& /*reason*/) {}  // it is in the journal
  virtual void status_not_recorded(RunId, RunStatus, const Error&) {}

  virtual void recording(const round::AttemptRecord&) {}  // the journal is about to be asked; or then it has it
  virtual void recorded(const round::AttemptRecord&) {}
  virtual void attempt_opened(const round::AttemptRecord&, Duration /*soft_deadline*/) {}
  virtual void expects(const RunMachine&) {}  // of the attempt's sites those that come (core/round/attendance.h)
  virtual void site_refused(const round::AttemptRecord&, const round::Refusal&) {}
  virtual void sum_given_up(const round::AttemptRecord&, NodeId /*child*/, const Error&) {}
  virtual void step_failed(const round::AttemptRecord&, DiskPart, const Error&) {}
  // An arrival is about to be added to the sum, by what the machine knows.
  virtual void taking(const RunMachine&, const transfer::StagedArrival&) {}
  // A pass is over, and not the last: its mean is about to be handed down, and the sum to be emptied.
  virtual void pass_over(const Reduce&, const round::AttemptRecord&, const NamedVector& /*mean*/, Duration /*took*/) {}
  virtual void committing(const store::CommitRow&, const NextModel&) {}  // the journal is about to be asked
  virtual void committed(const store::CommitRow&, const round::Pace&) {}
  virtual void travels_whole(const round::ModelRef&, const std::string& /*why*/) {}  // though the plan's `down` is less
  virtual void took(Work, Duration /*time*/) {}                                      // done, whatever came of it

  virtual void members_changed(std::size_t /*sites*/, std::size_t /*aggregators*/) {}
  virtual void sent_away(NodeId, const Error& /*reason*/) {}
  // Somebody says that so many sites contradict themselves, and does not show it; the first of them.
  virtual void contradictions_not_shown(NodeId /*by*/, const round::Refusal&, const Error& /*why*/, std::size_t) {}
  virtual void quarantined(SiteId, const std::string& /*reason*/) {}  // about to be recorded
  virtual void quarantine_recorded(SiteId) {}                         // and the machine knows
  virtual void quarantine_not_recorded(SiteId, const Error&) {}
  virtual void quarantine_counted(std::size_t /*sites*/) {}
};

}  // namespace fluvial::coordinator
