#include "simulator/checks/rounds.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "core/base/format.h"
#include "kernels/reference/reference.h"
#include "simulator/checks/fairness.h"

namespace fluvial::simulator {
namespace {

bool same_round(const round::AttemptRecord& before, const round::AttemptRecord& after) {
  std::map<SiteId, std::uint64_t> weights;
  for (const round::Participant& p : after.participants) weights[p.site] = p.weight_max;
  const bool kept = std::ranges::all_of(before.participants, [&](const round::Participant& p) {
    return weights.contains(p.site) && weights.at(p.site) == p.weight_max;
  });
  return kept && before.scale_bits == after.scale_bits && before.base.digest == after.base.digest;
}

std::map<SiteId, round::Participant> by_site(const std::vector<round::Participant>& participants) {
  std::map<SiteId, round::Participant> out;
  for (const round::Participant& participant : participants) out.emplace(participant.site, participant);
  return out;
}

bool same_set(const round::ContributorSet& a, const round::ContributorSet& b) {
  return a.size() == b.size() && std::ranges::all_of(a.entries(), [&](const auto& one) {
           const round::Contribution* other = b.find(one.first);
           return other != nullptr && other->digest == one.second.digest && other->weight == one.second.weight &&
                  other->from == one.second.from;
         });
}

bool same_commit(const store::CommitRow& a, const store::CommitRow& b) {
  const auto same_pass = [](const round::PassRecord& one, const round::PassRecord& other) {
    return one.mean == other.mean && same_set(one.contributors, other.contributors);
  };
  return a.record.attempt == b.record.attempt && a.record.model.digest == b.record.model.digest &&
         a.optimizer == b.optimizer && a.record.refusals.size() == b.record.refusals.size() &&
         a.record.codec_state == b.record.codec_state && same_set(a.record.contributors, b.record.contributors) &&
         std::ranges::equal(a.record.passes, b.record.passes, same_pass);
}

}  // namespace

bool RoundChecks::say(bool holds, std::string_view invariant, std::string detail) {
  if (!holds) report_(std::string(invariant), std::move(detail));
  return holds;
}

RoundChecks::Run* RoundChecks::find(RunId run) {
  const auto found = now_.runs.find(run);
  return found == now_.runs.end() ? nullptr : &found->second;
}

void RoundChecks::run_started(const store::RunRow& row, const FlatModel& initial) {
  Run run;
  run.row = row;
  run.master = run.trained = row.initial_model;
  run.state = first_state(row.plan.optimizer, initial.values);
  run.integers.assign(initial.integers.begin(), initial.integers.end());
  run.factors = Factors::of(row.plan, row.schema);
  run.onebit = Onebit::of(row.plan);
  now_.runs.insert_or_assign(row.id, std::move(run));
}

void RoundChecks::refused_as_ahead(NodeId node, const Error& why) {
  say(false, "histories", format_text("node {} was refused: ", std::uint64_t{node.value()}) + why.message);
}

void RoundChecks::term_began(Epoch term) {
  say(term > greatest_, "epochs_grow",
      format_text("term {} began after epoch {} was given", term.value(), greatest_.value()));
  greatest_ = std::max(greatest_, term);
  term_ = term;
}

// Two nodes may hear of their leases in another order than these were granted.
void RoundChecks::lease_granted(const store::LeaseRow& lease) {
  const auto before = leases_.find(lease.node);
  const bool same = before != leases_.end() && before->second == lease;
  const bool grows = before == leases_.end() || lease.epoch > before->second.epoch;
  const bool taken = std::ranges::any_of(
      leases_, [&](const auto& other) { return other.first != lease.node && other.second.epoch == lease.epoch; });
  say(same || (grows && !taken && lease.epoch > term_), "epochs_grow",
      format_text("node {} was leased under {} with epoch {}, which was given before", lease.node.value(),
                  lease.parent.value(), lease.epoch.value()));
  greatest_ = std::max(greatest_, lease.epoch);
  leases_[lease.node] = lease;
}

void RoundChecks::journal_opened(store::CoordinatorJournal& journal) {
  const Result<std::vector<store::RunRow>> rows = journal.runs();
  if (!say(rows.ok(), "journal_kept", "the journal's runs cannot be read after a restart")) return;
  for (const store::RunRow& row : *rows) {
    if (is_over(row.status)) run_ended(row.id);
    const auto told = now_.told.find(row.id);
    say(told == now_.told.end() || told->second == row.status, "journal_kept",
        format_text("run {} was said to be {}, and is {} after a restart", row.id.value(),
                    told == now_.told.end() ? "" : round::run_status_name(told->second),
                    round::run_status_name(row.status)));
  }
  for (auto& [id, run] : now_.runs) {
    const Result<std::vector<store::CommitRow>> commits = journal.commits(id, RoundId(0), 1'000'000);
    if (!say(commits.ok(), "journal_kept", "the journal's commits cannot be read after a restart")) continue;
    std::set<RoundId> there;
    for (const store::CommitRow& row : *commits) {
      there.insert(row.record.round);
      const auto known = run.commits.find(row.record.round);
      if (known != run.commits.end()) {
        say(same_commit(known->second, row), "one_commit",
            format_text("round {} of run {} was committed twice, differently", row.record.round.value(), id.value()));
      } else if (say(run.in_doubt && same_commit(*run.in_doubt, row), "journal_kept",
                     format_text("round {} of run {} is in the journal, but nobody committed it",
                                 row.record.round.value(), id.value()))) {
        settle(run, row);
      }
    }
    run.in_doubt.reset();
    const Result<RoundId> pruned = journal.pruned(id);
    if (!say(pruned.ok(), "journal_kept", "what the journal has pruned cannot be read after a restart")) continue;
    for (const auto& [round, row] : run.commits) {
      say(there.contains(round) || round <= *pruned, "journal_kept",
          format_text("round {} of run {} was committed, and is gone after a restart", round.value(), id.value()));
    }
    const Result<std::optional<round::AttemptRecord>> attempt = journal.last_attempt(id);
    if (!say(attempt.ok(), "journal_kept", "the journal's attempts cannot be read after a restart")) continue;
    if (run.attempt) {
      const bool kept = attempt->has_value() && std::pair((*attempt)->round, (*attempt)->attempt) >=
                                                    std::pair(run.attempt->round, run.attempt->attempt);
      say(kept, "journal_kept",
          format_text("attempt {} of round {} was recorded, and is gone after a restart", run.attempt->attempt.value(),
                      run.attempt->round.value()));
    }
    if (*attempt) run.attempt = **attempt;
    if (*attempt) greatest_ = std::max(greatest_, (*attempt)->epoch);
  }
  for (const store::RunRow& row : *rows) {
    if (!now_.runs.contains(row.id)) run_continued(row);
  }
  const Result<std::vector<store::LeaseRow>> leases = journal.leases();
  if (!say(leases.ok(), "journal_kept", "the journal's leases cannot be read after a restart")) return;
  for (const auto& [node, lease] : leases_) {
    const auto there = std::ranges::find(*leases, node, &store::LeaseRow::node);
    say(there != leases->end() && there->epoch >= lease.epoch, "journal_kept",
        format_text("the lease of node {}, epoch {}, is gone after a restart", node.value(), lease.epoch.value()));
  }
  for (const store::LeaseRow& lease : *leases) {
    leases_[lease.node] = lease;
    greatest_ = std::max(greatest_, lease.epoch);
  }
}

// Checks which sites are asked anew; what became known since then is for the next attempt.
void RoundChecks::attempt_decided(const round::AttemptRecord& attempt) {
  Run* run = find(attempt.run);
  if (run == nullptr) return;
  const std::string which = format_text("round {} attempt {}", attempt.round.value(), attempt.attempt.value());
  const bool again = run->attempt && run->attempt->round == attempt.round;
  const auto known = again ? by_site(run->attempt->participants) : std::map<SiteId, round::Participant>();
  for (const round::Participant& one : attempt.participants) {
    if (known.contains(one.site)) continue;
    say(!now_.quarantined.contains(one.site), "quarantine",
        which + format_text(": site {} takes part and is in quarantine", std::uint64_t{one.site.value()}));
    say(!revoked_.contains(one.site), "members_only",
        which + format_text(": site {} is asked and its certificate is revoked", std::uint64_t{one.site.value()}));
  }
}

void RoundChecks::attempt_recorded(const round::AttemptRecord& attempt) {
  Run* run = find(attempt.run);
  if (run == nullptr) return;
  const std::string which = format_text("round {} attempt {}", attempt.round.value(), attempt.attempt.value());
  if (run->attempt) {
    const round::AttemptRecord& before = *run->attempt;
    say(std::pair(attempt.round, attempt.attempt) > std::pair(before.round, before.attempt), "attempts_grow",
        which + format_text(" after round {} attempt {}", before.round.value(), before.attempt.value()));
    say(attempt.epoch >= before.epoch, "epochs_grow", which + ": its epoch fell");
    if (before.round == attempt.round) {
      say(same_round(before, attempt), "round_fixed", which + ": with another scale or base, or without a participant");
    }
  }
  check_room(*run, attempt, which);
  const RoundId last = run->commits.empty() ? RoundId(0) : run->commits.rbegin()->first;
  say(attempt.round == last.next(), "one_commit", which + format_text(" after the commit of {}", last.value()));
  say(attempt.base.digest == run->trained, "model_chain", which + ": not on the last committed model");
  run->attempt = attempt;
  run->passes.clear();
  RoundId& greatest = opened_[attempt.run];
  greatest = std::max(greatest, attempt.round);
}

void RoundChecks::worked_for(SiteId site, RunId id, RoundId round, const round::Plan& plan) {
  const Run* run = find(id);
  const auto opened = opened_.find(id);
  const bool is_open = opened != opened_.end() && round <= opened->second;
  // By those of its numbers that mean the same in each of its forms.
  const auto same = [&](const round::Plan& own) {
    return own.local_steps == plan.local_steps && own.codec == plan.codec && own.chunk_values == plan.chunk_values;
  };
  say(is_open && (run == nullptr || same(run->row.plan)), "signed_orders",
      format_text("site {} trains for round {} of run {}, or by a plan, that the coordinator did not open",
                  std::uint64_t{site.value()}, round.value(), id.value()));
}

// The sum must hold whatever its participants send within the plan's bound and their registered weights: up to 2^62, as
// fixed-point.md says, and for the probe as well, whose values are 1.
void RoundChecks::check_room(const Run& run, const round::AttemptRecord& attempt, const std::string& which) {
  const round::Plan& plan = run.row.plan;
  double weights = 0;
  for (const round::Participant& one : attempt.participants) weights += static_cast<double>(one.weight_max);
  const double greatest = std::ldexp(weights * std::max(1.0, plan.value_abs_max), attempt.scale_bits);
  say(greatest <= 0x1p62 && attempt.scale_bits <= static_cast<int>(plan.fraction_bits), "room",
      which + format_text(": {} participants of weight {} and values of {} have no room at scale {}",
                          static_cast<std::uint64_t>(attempt.participants.size()), weights, plan.value_abs_max,
                          attempt.scale_bits));
}

void RoundChecks::opening_sent(RunId id, RoundId round, AttemptId attempt, Epoch epoch,
                               const std::optional<round::Pass>& pass) {
  const Run* run = find(id);
  const bool durable = run != nullptr && run->attempt && run->attempt->round == round &&
                       run->attempt->attempt == attempt && run->attempt->epoch == epoch;
  say(durable, "write_ahead",
      format_text("round {} attempt {} was opened before its record", round.value(), attempt.value()));
  if (durable) check_pass_opened(*run, format_text("round {} attempt {}", round.value(), attempt.value()), pass);
}

void RoundChecks::commit_sent(RunId id, RoundId round, const Digest& model) {
  const store::CommitRow* row = commit_of(id, round);
  say(row != nullptr && row->record.model.digest == model, "write_ahead",
      format_text("the commit of round {} was told before its record", round.value()));
}

void RoundChecks::sum_sealed(const SumOf& of, const round::ContributorSet& contributors, const FlatSum& sum) {
  const auto [id, round] = std::pair(of.run, of.round);
  const std::string where = format_text("round {}, the sum of node {}", round.value(), of.node.value());
  const Run* run = find(id);
  for (const auto& [history, line] : before_) {  // what a restore undid goes on until the node has heard of it
    if (run == nullptr && line.runs.contains(id)) run = &line.runs.at(id);
  }
  const round::Plan plan = run == nullptr ? round::Plan() : run->row.plan;
  std::vector<std::uint32_t> factors;
  for (std::uint64_t staleness = 0; plan.late == "next" && staleness <= plan.staleness_max; ++staleness) {
    factors.push_back(parts_of_512(plan, staleness));
  }
  const Status probe = round::check_probe(contributors, sum.scale_bits, factors);
  say(probe.ok(), "exact_probe", where + ": " + (probe.ok() ? "" : probe.error().message));
  if (!keeps_books_) return;
  check_made_from(of, contributors, where);
  std::string wrong;
  const auto expected = truth_.sum(id, round, contributors, plan, sum.scale_bits, sum.values.size(), &wrong);
  if (!say(expected.has_value(), "exact_sum", where + ": " + wrong)) return;
  const auto differs = std::mismatch(sum.values.begin(), sum.values.end(), expected->begin());
  say(differs.first == sum.values.end(), "exact_sum",
      where + format_text(": value {} is not what its {} contributors make",
                          static_cast<std::uint64_t>(differs.first - sum.values.begin()),
                          static_cast<std::uint64_t>(contributors.size())));
  say(std::ranges::equal(sum.integers, truth_.greatest(id, round, contributors)), "exact_sum",
      where + ": its integers are not the greatest of its contributors'");
  for (const auto& [site, entry] : contributors.entries()) {
    const std::string beyond = beyond_bounds(id, *truth_.find(id, round, entry));
    say(beyond.empty(), "bounds", where + format_text(": site {} is in, and ", std::uint64_t{site.value()}) + beyond);
  }
}

// docs/formats/model.md: what the type holds, and at most 2^32 above the model before.
std::string RoundChecks::beyond_types(const Run& run, const KnownUpdate& update) {
  std::size_t at = 0;
  for (std::size_t t = 0; t < run.row.schema.tensors().size(); ++t) {
    const round::DType dtype = run.row.schema.tensors()[t].dtype;
    if (round::is_averaged(dtype)) continue;
    const std::size_t end = at + static_cast<std::size_t>(run.row.schema.tensor_values(t));
    for (; at < end && at < update.integers.size(); ++at) {
      const std::int64_t value = update.integers[at];
      const std::int64_t base = std::max<std::int64_t>(run.integers[at], 0);
      const bool fits = dtype == round::DType::kI32  ? value == static_cast<std::int32_t>(value)
                        : dtype == round::DType::kU8 ? value == static_cast<std::uint8_t>(value)
                                                     : true;
      if (fits && (value < 0 || value - base <= std::int64_t{1} << 32)) continue;
      return format_text("its integer {} is {}, and the model's is {}", std::uint64_t{at}, value, run.integers[at]);
    }
  }
  return {};
}

std::string RoundChecks::beyond_bounds(RunId id, const KnownUpdate& update) const {
  const auto run = now_.runs.find(id);
  if (run == now_.runs.end()) return {};
  const round::Plan& plan = run->second.row.plan;
  double squares = 0;
  for (const double value : update.values) {
    if (std::abs(value) > plan.value_abs_max) {
      return format_text("its value {} is beyond the plan's {}", value, plan.value_abs_max);
    }
    squares += value * value;
  }
  // The last bits of a norm depend on the order of its sum.
  if (plan.update_norm_max > 0 && std::sqrt(squares) > plan.update_norm_max * (1 + 0x1p-40)) {
    return format_text("its norm {} is beyond the plan's {}", std::sqrt(squares), plan.update_norm_max);
  }
  return beyond_types(run->second, update);
}

void RoundChecks::check_contributors(const Run& run, const round::CommitRecord& commit) {
  const std::string which = format_text("round {}", commit.round.value());
  const bool attempted = run.attempt && run.attempt->round == commit.round && run.attempt->attempt == commit.attempt;
  if (!say(attempted, "one_commit", which + ": committed under an attempt that is not the last recorded")) return;
  const std::map<SiteId, round::Participant> participants = by_site(run.attempt->participants);
  for (const auto& [site, entry] : commit.contributors.entries()) {
    const auto participant = participants.find(site);
    const bool takes_part = participant != participants.end();
    say(takes_part, "members_only", which + format_text(": site {} counts and takes no part", site.value()));
    if (takes_part) {
      say(entry.weight <= participant->second.weight_max, "members_only",
          which + format_text(": site {} counts with more than its registered weight", site.value()));
    }
  }
}

bool RoundChecks::is_sound(const round::CommitRecord& commit, SiteId site, const KnownUpdate& update) {
  const std::vector<round::Participant>& all = find(commit.run)->attempt->participants;
  const auto own = std::ranges::find(all, site, &round::Participant::site);
  return own != all.end() && update.weight <= own->weight_max && beyond_bounds(commit.run, update).empty();
}

// An honest, undamaged update within the plan's bounds must not be refused: that would drop work.
void RoundChecks::check_refusals(const round::CommitRecord& commit) {
  for (const round::Refusal& refusal : commit.refusals) {
    const SiteId site = refusal.site;
    if (!round::drops_update(refusal.error.code) || liars_.contains(site) || revoked_.contains(site)) continue;
    std::vector<const KnownUpdate*> sent;
    bool is_damaged = false;
    // With windows a refusal may come up when nothing of its update's round could enter any more.
    const bool says_own = refusal.own != RoundId() && (damaged_.contains({commit.run, refusal.own, site}) ||
                                                       !truth_.all_of(commit.run, refusal.own, site).empty());
    for (const RoundId own : says_own ? std::vector{refusal.own} : may_be_of(commit)) {
      if (was_decided(commit.run, own, site)) continue;
      is_damaged = is_damaged || damaged_.contains({commit.run, own, site});
      for (const KnownUpdate* one : truth_.all_of(commit.run, own, site)) sent.push_back(one);
    }
    if (is_damaged) continue;
    const bool sound = std::ranges::all_of(sent, [&](const auto* one) { return is_sound(commit, site, *one); });
    say(sent.empty() || !sound, "refusals",
        format_text("round {}: site {} is refused ({}), and nothing is wrong with its update", commit.round.value(),
                    std::uint64_t{site.value()}, refusal.error.message));
  }
}

void RoundChecks::check_model(Run& run, const round::CommitRecord& commit, const FlatSum& sum, const FlatModel& model,
                              const std::optional<NamedBytes>& codec_state) {
  const bool fair = is_fair(run.row.plan);
  const int scale = sum.scale_bits - (fair ? 9 : 0);
  const std::uint64_t divisor =
      fair ? fair_divisor(run.commits, run.row.plan, commit.contributors, commit.round.value() - 1)
           : commit.contributors.total_weight();
  std::vector<float> mean;
  for (const std::int64_t value : sum.values) mean.push_back(kernels::reference::mean(value, scale, divisor));
  if (!run.onebit) check_warm_start(run, commit, mean, codec_state);
  mean = mean_update(run, commit, std::move(mean));
  Step step = optimizer_step(run.row.plan, run.row.schema, commit.round.value(), commit.contributors.total_weight(),
                             mean, run.state);
  if (run.onebit) check_momentum(run, commit, std::move(step.momentum), codec_state);
  for (std::size_t i = 0; i < model.values.size(); ++i) {
    const double off = std::abs(static_cast<double>(model.values[i]) - static_cast<double>(step.next.model[i]));
    if (!say(off <= (step.slack.empty() ? 0 : step.slack[i]), "model_chain",
             format_text("round {}: value {} of the model is {}, the optimizer gives {}", commit.round.value(),
                         static_cast<std::uint64_t>(i), model.values[i], step.next.model[i]))) {
      break;
    }
  }
  run.integers_in_doubt = run.integers;
  for (std::size_t i = 0; i < sum.integers.size(); ++i) {
    run.integers_in_doubt[i] = std::max(run.integers[i], sum.integers[i]);
  }
  say(std::ranges::equal(model.integers, run.integers_in_doubt), "model_chain",
      format_text("round {}: the model's integers are not the greatest of the model before and the sum",
                  commit.round.value()));
  run.state_in_doubt = std::move(step.next);
  run.state_in_doubt.model.assign(model.values.begin(), model.values.end());
}

void RoundChecks::taking(RunId id, const round::ContributorSet& contributors,
                         const std::vector<round::Participant>& participants) {
  const Run* run = find(id);
  if (run == nullptr || !run->attempt) return;
  const auto fence = [&](const std::vector<round::Participant>& known, std::string_view who) {
    for (const auto& [site, entry] : contributors.entries()) {
      const auto found = std::ranges::find(known, site, &round::Participant::site);
      const bool old = found != known.end() && entry.lease < found->lease;
      say(!old, "fence",
          format_text("round {}: site {} is taken under lease {}, {} says {}", run->attempt->round.value(),
                      std::uint64_t{site.value()}, entry.lease.value(), who, old ? found->lease.value() : 0));
    }
  };
  fence(run->attempt->participants, "the attempt's record");
  fence(participants, "the coordinator");
}

void RoundChecks::not_committed(RunId run) {
  if (Run* const found = find(run)) found->in_doubt.reset();
}

void RoundChecks::committing(const store::CommitRow& row, const FlatSum& sum, const FlatModel& model,
                             const std::optional<NamedBytes>& codec_state) {
  Run* run = find(row.record.run);
  if (run == nullptr) return;
  check_contributors(*run, row.record);
  check_passes(*run, row.record);
  check_lateness(*run, row.record);
  check_refusals(row.record);
  const round::AttemptRecord attempt = run->attempt.value_or(round::AttemptRecord());
  sum_sealed({NodeId(0), row.record.run, row.record.round, attempt.epoch, row.record.attempt,
              static_cast<std::uint32_t>(row.record.passes.size())},
             row.record.contributors, sum);
  check_model(*run, row.record, sum, model, codec_state);
  run->in_doubt = row;
}

void RoundChecks::committed(const store::CommitRow& row) {
  Run* run = find(row.record.run);
  if (run == nullptr) return;
  if (const auto known = run->commits.find(row.record.round); known != run->commits.end()) {
    say(false, "one_commit", format_text("round {} was committed twice", row.record.round.value()));
    return;
  }
  settle(*run, row);
}

void RoundChecks::settle(Run& run, const store::CommitRow& row) {
  run.trained = row.record.model.digest;
  run.master = row.master;
  run.state = std::move(run.state_in_doubt);
  run.integers = std::move(run.integers_in_doubt);
  run.warm = run.warm_in_doubt;
  run.in_doubt.reset();
  run.commits.insert_or_assign(row.record.round, row);
  ++committed_count_;
  trace_ = to_hex(row.record.model.digest);
}

const RoundChecks::Line* RoundChecks::line_of(round::HistoryId history) const {
  if (history == history_) return &now_;
  const auto found = before_.find(history);
  return found == before_.end() ? nullptr : &found->second;
}

const store::CommitRow* RoundChecks::commit_of(RunId run, RoundId round) const {
  return commit_of(history_, run, round);
}

const store::CommitRow* RoundChecks::commit_of(round::HistoryId history, RunId id, RoundId round) const {
  const Line* line = line_of(history);
  if (line == nullptr || !line->runs.contains(id)) return nullptr;
  const auto& commits = line->runs.at(id).commits;
  const auto found = commits.find(round);
  return found == commits.end() ? nullptr : &found->second;
}

const store::CommitRow* RoundChecks::in_journal(round::HistoryId history, RunId id, RoundId round) const {
  if (const store::CommitRow* row = commit_of(history, id, round)) return row;
  const Line* line = line_of(history);
  if (line == nullptr || !line->runs.contains(id)) return nullptr;
  const std::optional<store::CommitRow>& row = line->runs.at(id).in_doubt;
  return row && row->record.round == round ? &*row : nullptr;
}

void RoundChecks::backed_up() { backup_ = now_; }

void RoundChecks::restored(round::HistoryId history, store::CoordinatorJournal& journal) {
  before_.insert_or_assign(history_, std::move(now_));
  now_ = backup_.value();
  history_ = history;
  const Result<std::vector<store::LeaseRow>> leases = journal.leases();
  if (!say(leases.ok(), "journal_kept", "the journal's leases cannot be read after a restore")) return;
  leases_.clear();
  const Epoch before = greatest_;
  for (const store::LeaseRow& lease : *leases) {
    say(lease.epoch > before, "epochs_grow",
        format_text("the restored lease of node {} has epoch {} after epoch {} was given", lease.node.value(),
                    lease.epoch.value(), before.value()));
    greatest_ = std::max(greatest_, lease.epoch);
    leases_[lease.node] = lease;
  }
}

}  // namespace fluvial::simulator
