// Everything that must hold in a world, whatever happens in it. Processes report what they do; a violation is reported
// at once. README.md lists the invariants.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "core/base/clock.h"
#include "simulator/checks/rounds.h"
#include "simulator/checks/sites.h"
#include "simulator/checks/truth.h"
#include "simulator/world/host.h"

namespace fluvial::simulator {

class Checks {
 public:
  explicit Checks(Report report)
      : report_(std::move(report)), rounds_(report_, truth_), sites_(report_, truth_, rounds_) {}
  Checks(const Checks&) = delete;
  Checks& operator=(const Checks&) = delete;

  Truth& truth() { return truth_; }
  RoundChecks& rounds() { return rounds_; }
  const RoundChecks& rounds() const { return rounds_; }
  SiteChecks& sites() { return sites_; }

  // The site sent two contents under one number: it is about to be quarantined.
  void accused(SiteId site, bool wicked, const std::string& why);

  // A site begins anew with nothing: its folder's content is lost, and its incarnations may begin again.
  void folder_lost(HostId host, SiteId site) {
    incarnations_.erase(host);
    sites_.folder_lost(site);
  }

  // ---- bounds
  void incarnation_began(HostId host, Incarnation incarnation);
  void bounds(HostId host, std::uint64_t staged_bytes, std::uint64_t staged_bytes_max, std::size_t staged_count);
  void set_staged_max(std::size_t most) { staged_max_ = most; }
  void nothing_staged(HostId host, std::uint64_t staged_bytes, std::size_t staged_count);

  // ---- the end of the run
  void run_ended(RunId run);
  void run_status(std::string_view status, std::string_view reason) {
    status_ = status;
    reason_ = reason;
  }
  // More participants of the open round were refused for good than its quorum can do without: a person must stop it.
  void round_is_hopeless() { hopeless_after_ = rounds_.committed_count(); }
  bool is_hopeless() const { return hopeless_after_ == rounds_.committed_count(); }
  // The run is in the state of the backup: it goes on, unless it was over.
  void restored(round::HistoryId history, store::CoordinatorJournal& journal, std::string_view status) {
    rounds_.restored(history, journal);
    status_ = status;
    hopeless_after_.reset();
  }
  bool is_over() const { return status_ == "done" || status_ == "stopped"; }
  const std::string& status() const { return status_; }
  const std::string& reason() const { return reason_; }

 private:
  Report report_;
  Truth truth_;
  RoundChecks rounds_;
  SiteChecks sites_;
  std::map<HostId, Incarnation> incarnations_;
  std::size_t staged_max_ = 0;
  std::optional<std::uint64_t> hopeless_after_;
  std::string status_ = "running";
  std::string reason_;
};

}  // namespace fluvial::simulator
