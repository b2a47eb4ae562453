// What became of updates, over all the rounds that they may enter (docs/design/late.md).
#include <algorithm>

#include "core/base/format.h"
#include "simulator/checks/fairness.h"
#include "simulator/checks/rounds.h"

namespace fluvial::simulator {

// What an entry says of its versions, and that its update is in no commit before.
void RoundChecks::check_lateness(const Run& run, const round::CommitRecord& commit) {
  const round::Plan& plan = run.row.plan;
  const bool is_next = plan.late == "next";
  for (const auto& [site, entry] : commit.contributors.entries()) {
    const std::string which = format_text("round {}, site {}", commit.round.value(), std::uint64_t{site.value()});
    const std::uint64_t newest = is_next ? commit.round.value() - 1 : 0;
    const std::uint64_t oldest = is_next && newest > plan.staleness_max ? newest - plan.staleness_max : 0;
    const std::uint64_t drift = plan.mode == "async" && entry.admitted.value() > 0 ? plan.async_drift_max : 0;
    const bool is_admitted = entry.admitted.value() <= newest && newest - entry.admitted.value() <= drift;
    say(is_admitted && entry.base.value() <= entry.admitted.value() && entry.base.value() >= oldest, "lateness",
        which + format_text(": trained from version {}, admitted on {}", entry.base.value(), entry.admitted.value()));
    const std::uint32_t share = is_fair(plan) ? fair_share(run.commits, plan, site, entry.admitted.value()) : 512;
    say(entry.share == share, "fairness",
        which + format_text(": counts for {} of 512, and by its site's rate for {}", entry.share, share));
    for (const auto& [round, row] : run.commits) {
      const round::Contribution* const before = row.record.contributors.find(site);
      say(before == nullptr || before->digest != entry.digest, "exactly_once",
          which + format_text(": its update is in round {} already", round.value()));
      const bool dropped = std::ranges::any_of(row.record.refusals, [&](const round::Refusal& one) {
        return one.site == site && round::drops_update(one.error.code) &&
               one.own_round(round) == entry.own_round(commit.round);
      });
      say(!is_next || !dropped, "exactly_once",
          which + format_text(": round {} refused its update, and the site has dropped it", round.value()));
    }
  }
}

bool RoundChecks::was_decided(RunId run, RoundId own, SiteId site) {
  const Run* const found = find(run);
  return found != nullptr && std::ranges::any_of(found->commits, [&](const auto& entry) {
           const round::CommitRecord& record = entry.second.record;
           const round::Contribution* const one = record.contributors.find(site);
           if (one != nullptr && one->own_round(record.round) >= own) return true;
           return std::ranges::any_of(record.refusals, [&](const round::Refusal& refusal) {
             return refusal.site == site && round::drops_update(refusal.error.code) &&
                    refusal.own_round(record.round) >= own;
           });
         });
}

std::vector<RoundId> RoundChecks::may_be_of(const round::CommitRecord& commit) {
  const round::Plan& plan = find(commit.run)->row.plan;
  const std::uint64_t older = plan.late == "next" ? plan.staleness_max : 0;
  std::vector<RoundId> rounds;
  for (std::uint64_t back = 0; back <= older && back < commit.round.value(); ++back) {
    rounds.emplace_back(commit.round.value() - back);
  }
  return rounds;
}

RoundId RoundChecks::last_to_enter(round::HistoryId history, RunId run, RoundId round) const {
  const Line* line = line_of(history);
  const auto found = line == nullptr ? std::map<RunId, Run>::const_iterator{} : line->runs.find(run);
  if (line == nullptr || found == line->runs.end() || found->second.row.plan.late != "next") return round;
  const round::Plan& plan = found->second.row.plan;
  return RoundId(std::min(round.value() + plan.staleness_max, std::max(plan.rounds, round.value())));
}

bool RoundChecks::holds(round::HistoryId history, RunId run, RoundId round, SiteId site, const Digest& digest) const {
  for (RoundId at = round; at <= last_to_enter(history, run, round); at = at.next()) {
    const store::CommitRow* row = in_journal(history, run, at);
    const round::Contribution* entry = row == nullptr ? nullptr : row->record.contributors.find(site);
    if (entry != nullptr && entry->digest == digest) return true;
  }
  return false;
}

bool RoundChecks::counts_newer(round::HistoryId history, RunId run, RoundId round, SiteId site) const {
  const Line* line = line_of(history);
  const auto found = line == nullptr ? std::map<RunId, Run>::const_iterator{} : line->runs.find(run);
  if (line == nullptr || found == line->runs.end()) return false;
  return std::ranges::any_of(found->second.commits, [&](const auto& entry) {
    const round::Contribution* const one = entry.second.record.contributors.find(site);
    return one != nullptr && one->own_round(entry.first) > round;
  });
}

bool RoundChecks::refuses(round::HistoryId history, RunId run, RoundId round, SiteId site) const {
  for (RoundId at = round; at <= last_to_enter(history, run, round); at = at.next()) {
    const store::CommitRow* row = in_journal(history, run, at);
    const bool refused = row != nullptr && std::ranges::any_of(row->record.refusals, [&](const round::Refusal& one) {
                           return one.site == site && round::drops_update(one.error.code) && one.own_round(at) == round;
                         });
    if (refused) return true;
  }
  return false;
}

bool RoundChecks::is_decided(round::HistoryId history, RunId run, RoundId round, SiteId site) const {
  const Line* line = line_of(history);
  for (RoundId at = round; at <= last_to_enter(history, run, round); at = at.next()) {
    const store::CommitRow* row = in_journal(history, run, at);
    if (row == nullptr) continue;
    const round::Contribution* entry = row->record.contributors.find(site);
    const bool refused = std::ranges::any_of(row->record.refusals, [&](const round::Refusal& one) {
      return one.site == site && round::drops_update(one.error.code) && one.own_round(at) >= round;
    });
    if (refused || (entry != nullptr && entry->own_round(at) >= round)) return true;  // nothing older counts any more
  }
  return in_journal(history, run, last_to_enter(history, run, round)) != nullptr ||
         (line != nullptr && line->ended.contains(run));
}

}  // namespace fluvial::simulator
