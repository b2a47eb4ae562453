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

// On the node's strand.
class RunObserver {
 public:
  virtual ~RunObserver() = default;

  virtual void run_taken_up(const RunMachine& machine) = 0;
  virtual void status_told(RunId run, RunStatus status, const std::string& reason) = 0;  // it is in the journal
  virtual void status_not_recorded(RunId run, RunStatus status, const Error& error) = 0;

  virtual void recording(const round::AttemptRecord& row) = 0;  // the journal is about to be asked; or then it has it
  virtual void recorded(const round::AttemptRecord& row) = 0;
  virtual void attempt_opened(const round::AttemptRecord& attempt, Duration soft_deadline) = 0;
  virtual void site_refused(const round::AttemptRecord& attempt, const round::Refusal& refusal) = 0;
  virtual void sum_given_up(const round::AttemptRecord& attempt, NodeId child, const Error& error) = 0;
  virtual void step_failed(const round::AttemptRecord& attempt, DiskPart part, const Error& error) = 0;
  // An arrival is about to be added to the sum, by what the machine knows.
  virtual void taking(const RunMachine& machine, const transfer::StagedArrival& arrival) = 0;
  virtual void committing(const store::CommitRow& row, const NextModel& next) = 0;  // the journal is about to be asked
  virtual void committed(const store::CommitRow& row, const round::Pace& pace) = 0;

  virtual void members_changed(std::size_t sites, std::size_t aggregators) = 0;
  virtual void sent_away(NodeId node, const Error& reason) = 0;
  virtual void quarantined(SiteId site, const std::string& reason) = 0;  // about to be recorded
  virtual void quarantine_recorded(SiteId site) = 0;                     // and the machine knows
  virtual void quarantine_not_recorded(SiteId site, const Error& error) = 0;
  virtual void quarantine_counted(std::size_t sites) = 0;
};

}  // namespace fluvial::coordinator
