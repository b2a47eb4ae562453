// What the updates of a run with windows count for by their sites' rates (core/round/fairness.h), looked at again from
// the journal's commits. In any other run each counts whole.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "core/round/fairness.h"
#include "core/store/journal.h"

namespace fluvial::coordinator {

class ShareAudit {
 public:
  // For the rounds from `from` on: rates are of the rounds before. Blocking.
  static Result<ShareAudit> before(store::CoordinatorJournal& journal, const store::RunRow& run, RoundId from);

  // For people, each with its site; empty: all shares are as the commits before give them, or rounds that decide them
  // are pruned. Once for each round, in order.
  std::vector<std::string> faults_of(const round::CommitRecord& record);

 private:
  bool is_known(SiteId site) const;
  void goes_on(const round::CommitRecord& record);

  bool is_fair_ = false;
  bool from_the_first_ = true;  // it has been told of the run's first round
  std::uint64_t rounds_ = 0;    // that it has been told of
  std::set<SiteId> seen_;       // in those
  std::vector<std::uint32_t> factors_;
  round::Rates rates_;
};

}  // namespace fluvial::coordinator
