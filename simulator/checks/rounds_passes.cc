// Rounds with several passes (docs/design/phases.md): the sets and the means of each attempt, what each update was made
// from, and the state that sites begin a round with.
#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/format.h"
#include "core/round/pass.h"
#include "kernels/reference/reference.h"
#include "simulator/checks/rounds.h"

namespace fluvial::simulator {
namespace {

constexpr std::size_t kMeanHeadBytes = 16;  // u64 epoch, u32 attempt, u32 pass

// What is wrong with the bytes of a mean; empty: nothing.
std::string wrong_mean(const KnownMean& expected, ByteSpan bytes) {
  if (bytes.size() != kMeanHeadBytes + expected.values.size() * sizeof(float)) return "it has another length";
  if (load_le<std::uint64_t>(bytes.data()) != expected.epoch.value() ||
      load_le<std::uint32_t>(bytes.data() + 8) != expected.attempt.value() ||
      load_le<std::uint32_t>(bytes.data() + 12) != expected.pass) {
    return "it is said to be of another attempt or pass";
  }
  for (std::size_t i = 0; i < expected.values.size(); ++i) {
    float value = 0;
    std::memcpy(&value, bytes.data() + kMeanHeadBytes + i * sizeof(float), sizeof(float));
    if (value == expected.values[i]) continue;
    return format_text("its value {} is {}, and the sum makes {}", std::uint64_t{i}, value, expected.values[i]);
  }
  return {};
}

}  // namespace

const KnownMean* RoundChecks::mean_of(RunId run, const Digest& digest) const {
  const auto found = means_.find({run, digest});
  return found == means_.end() ? nullptr : &found->second;
}

const std::vector<float>* RoundChecks::warm_start_of(const Digest& state) const {
  const auto found = warm_starts_.find(state);
  return found == warm_starts_.end() ? nullptr : &found->second;
}

const std::optional<Factors>* RoundChecks::factors_of(RunId id) const {
  if (const auto found = now_.runs.find(id); found != now_.runs.end()) return &found->second.factors;
  for (const auto& [history, line] : before_) {
    if (const auto found = line.runs.find(id); found != line.runs.end()) return &found->second.factors;
  }
  return nullptr;
}

void RoundChecks::run_continued(const store::RunRow& row) {
  if (now_.runs.contains(row.id)) return;
  const Run* before = find(row.continues);
  if (!say(before != nullptr, "journal_kept", format_text("run {} continues none", row.id.value()))) return;
  say(row.initial_model == before->master, "model_chain",
      format_text("run {} does not begin with the last model of run {}", row.id.value(), row.continues.value()));
  const OptimizerState last = before->state;
  const std::vector<std::int64_t> integers = before->integers;
  run_started(row, {last.model, integers});
  go_on(*find(row.id), *find(row.continues));
}

// With the codec's state, and the optimizer's.
void RoundChecks::go_on(Run& run, const Run& before) {
  if (run.row.keeps_optimizer) {
    run.state.moment = before.state.moment;
    run.state.variance = before.state.variance;
  }
  if (before.row.schema != run.row.schema) return;
  if (run.onebit) {
    if (!run.onebit->has_warm_up()) run.warm = before.warm;
    say(run.onebit->has_warm_up() != (run.warm && run.row.keeps_optimizer), "warm_start",
        format_text("run {} has no warm-up and nothing to go on with, or both", run.row.id.value()));
  } else if (before.row.plan.codec == run.row.plan.codec) {
    const std::vector<float>* const warm = before.warm ? warm_start_of(before.warm->digest) : nullptr;
    run.inherited = warm != nullptr ? std::optional(*warm) : before.inherited;
  }
}

// What a pass's updates were made from: the mean of this attempt, of the pass before.
void RoundChecks::check_made_from(const SumOf& of, const round::ContributorSet& contributors,
                                  const std::string& where) {
  for (const auto& [site, entry] : contributors.entries()) {
    const std::string which =
        where + format_text(", {}: site {} is in, ", round::pass_name(of.pass), std::uint64_t{site.value()});
    if (!say(entry.from.pass == of.pass, "passes",
             which + format_text("and its update is of {}", round::pass_name(entry.from.pass)))) {
      continue;
    }
    if (of.pass == 0) continue;
    const KnownMean* const mean = mean_of(of.run, entry.from.mean);
    if (!say(mean != nullptr, "passes", which + "from a mean that nobody handed down")) continue;
    say(mean->round == of.round && mean->pass + 1 == of.pass, "passes",
        which + format_text("from a mean of round {}, {}", mean->round.value(), round::pass_name(mean->pass)));
    say(mean->epoch == of.epoch && mean->attempt == of.attempt, "passes",
        which + format_text("from the mean of attempt {}, in attempt {}", mean->attempt.value(), of.attempt.value()));
    const KnownUpdate* const update = truth_.find(of.run, of.round, entry);
    say(update == nullptr || liars_.contains(site) || update->means.contains(entry.from.mean), "passes",
        which + "with an update that it made from another mean");
  }
}

void RoundChecks::check_within(const round::ContributorSet& later, const round::ContributorSet& earlier,
                               const std::string& which) {
  for (const auto& [site, entry] : later.entries()) {
    const round::Contribution* const before = earlier.find(site);
    say(before != nullptr, "passes",
        which + format_text(": site {} is in, and was not in the pass before", std::uint64_t{site.value()}));
    say(before == nullptr || before->weight == entry.weight || liars_.contains(site), "passes",
        which +
            format_text(": site {} is in with another weight than in the pass before", std::uint64_t{site.value()}));
  }
}

void RoundChecks::pass_over(const SumOf& of, const round::ContributorSet& contributors, const FlatSum& sum,
                            const NamedBytes& mean) {
  Run* const run = find(of.run);
  if (run == nullptr || !run->attempt) return;
  const std::string which =
      format_text("round {} attempt {} {}", of.round.value(), of.attempt.value(), round::pass_name(of.pass));
  const round::AttemptRecord& open = *run->attempt;
  say(open.round == of.round && open.attempt == of.attempt && open.epoch == of.epoch, "passes",
      which + " is over, and another attempt is the last on record");
  say(run->factors && of.pass == run->passes.size() && of.pass + 1 < run->factors->passes(), "passes",
      which + ": there is no such pass to be over");
  for (const auto& [site, entry] : contributors.entries()) {
    const auto own = std::ranges::find(open.participants, site, &round::Participant::site);
    say(own != open.participants.end() && entry.weight <= own->weight_max, "members_only",
        which + format_text(": site {} is in, takes no part or has another weight", std::uint64_t{site.value()}));
  }
  if (!run->passes.empty()) check_within(contributors, run->passes.back().contributors, which);
  sum_sealed(of, contributors, sum);
  KnownMean known{of.round, of.epoch, of.attempt, of.pass, {}};
  for (const std::int64_t value : sum.values) {
    known.values.push_back(kernels::reference::mean(value, sum.scale_bits, contributors.total_weight()));
  }
  const std::string wrong = wrong_mean(known, mean.bytes);
  say(wrong.empty(), "exact_mean", which + ": the mean that is handed down: " + wrong);
  const std::pair key(of.run, mean.digest);
  say(!means_.contains(key), "passes", which + ": another attempt had a mean of the same digest");
  means_.insert_or_assign(key, std::move(known));
  run->passes.push_back({contributors, {mean.digest, mean.bytes.size()}});
}

void RoundChecks::check_pass_opened(const Run& run, const std::string& which, const std::optional<round::Pass>& pass) {
  const bool hands_down = run.factors || run.onebit;
  if (!say(pass.has_value() == hands_down, "passes", which + ": opened with passes, or without them")) return;
  if (!pass) return;
  const std::string whose = which + " " + round::pass_name(pass->index);
  const std::uint64_t values = run.factors ? run.factors->sent_values(pass->index) : run.row.schema.value_count();
  say(pass->count == (run.factors ? run.factors->passes() : 1) && pass->value_count == values, "passes",
      whose + ": another number of passes, or of values");
  say(pass->index <= run.passes.size(), "passes", whose + " is open, and the one before is not over");
  if (pass->index == 0) {
    say(pass->state == run.warm, "warm_start", whose + ": opened with another state than the last commit's");
  } else if (pass->index <= run.passes.size()) {
    say(pass->mean == run.passes[pass->index - 1].mean, "passes", whose + ": opened with another mean than its own");
  }
}

void RoundChecks::check_passes(const Run& run, const round::CommitRecord& commit) {
  const std::string which = format_text("round {}", commit.round.value());
  const auto same = [](const round::PassRecord& one, const round::PassRecord& other) {
    return one.mean == other.mean && one.contributors == other.contributors;
  };
  say(std::ranges::equal(commit.passes, run.passes, same), "passes",
      which + ": committed with other passes than its attempt had");
  say(commit.passes.size() + 1 == (run.factors ? run.factors->passes() : 1), "passes",
      which + ": committed after another number of passes");
  if (!commit.passes.empty()) check_within(commit.contributors, commit.passes.back().contributors, which);
}

std::vector<float> RoundChecks::mean_update(const Run& run, const round::CommitRecord& commit,
                                            std::vector<float> mean) const {
  if (!run.factors || commit.passes.empty()) return mean;
  const KnownMean* const first = mean_of(run.row.id, commit.passes.front().mean.digest);
  if (first == nullptr || first->values.size() != run.factors->sent_values(0) ||
      mean.size() != run.factors->sent_values(1)) {
    return std::vector<float>(static_cast<std::size_t>(run.row.schema.value_count()));  // has been reported
  }
  return run.factors->update(first->values, mean);
}

void RoundChecks::check_warm_start(Run& run, const round::CommitRecord& commit, const std::vector<float>& mean,
                                   const std::optional<NamedBytes>& state) {
  run.warm_in_doubt.reset();
  const std::string which = format_text("round {}", commit.round.value());
  if (!say(state.has_value() == run.factors.has_value() && state.has_value() == commit.codec_state.has_value(),
           "warm_start", which + ": committed with a codec's state, or without one")) {
    return;
  }
  if (!state || mean.size() != run.factors->sent_values(1)) return;
  say(*commit.codec_state == round::VectorRef{state->digest, state->bytes.size()}, "warm_start",
      which + ": the commit names another state than was made");
  std::vector<float> settled = run.factors->settled(mean);
  const std::string wrong = run.factors->wrong_state(state->bytes, settled, commit.round);
  say(wrong.empty(), "warm_start", which + ": the state that the next round begins with: " + wrong);
  warm_starts_.insert_or_assign(state->digest, std::move(settled));
  run.warm_in_doubt = commit.codec_state;
}

// The momentum that goes down to the next round.
void RoundChecks::check_momentum(Run& run, const round::CommitRecord& commit, std::optional<Onebit::Momentum> made,
                                 const std::optional<NamedBytes>& state) {
  run.warm_in_doubt.reset();
  const std::string which = format_text("round {}", commit.round.value());
  const bool is_there = state.has_value() && commit.codec_state.has_value();
  const bool is_absent = !state && !commit.codec_state;
  if (!say(made ? is_there : is_absent, "warm_start", which + ": committed with a momentum, or without one")) return;
  if (!made) return;
  say(*commit.codec_state == round::VectorRef{state->digest, state->bytes.size()}, "warm_start",
      which + ": the commit names another momentum than was made");
  say(std::ranges::equal(state->bytes, made->bytes), "warm_start",
      which + ": the momentum that the next round begins with is not what the optimizer leaves");
  warm_starts_.insert_or_assign(state->digest, std::move(made->values));
  run.warm_in_doubt = commit.codec_state;
}

void RoundChecks::state_loaded(RunId id, const NamedBytes& state) {
  Run* const run = find(id);
  if (run == nullptr || !(run->factors || run->onebit)) return;
  const std::string which = format_text("run {}", id.value());
  const bool inherits = !state.bytes.empty();
  if (run->onebit || !run->commits.empty()) {
    const round::VectorRef named{state.digest, state.bytes.size()};
    say(run->warm == (inherits ? std::optional(named) : std::nullopt), "warm_start",
        which + " is taken up with another state than its last commit's");
    return;
  }
  say(inherits == run->inherited.has_value(), "warm_start", which + " begins with a state, or inherits one");
  if (!inherits || !run->inherited) return;
  const std::string wrong = run->factors->wrong_state(state.bytes, *run->inherited, {});
  say(wrong.empty(), "warm_start", which + ": the state that it inherits: " + wrong);
  warm_starts_.insert_or_assign(state.digest, *run->inherited);
  run->warm = round::VectorRef{state.digest, state.bytes.size()};
}

}  // namespace fluvial::simulator
