#include "simulator/checks/sites.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/format.h"
#include "kernels/reference/dgc.h"
#include "simulator/checks/onebit.h"

namespace fluvial::simulator {
namespace {

using Values = std::vector<float>;

float at(const Values& values, std::size_t i) { return i < values.size() ? values[i] : 0; }

// Compares numbers: -0 equals 0, and an empty vector is all zeros.
std::optional<std::size_t> first_difference(const Values& a, const Values& b) {
  for (std::size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    if (at(a, i) != at(b, i)) return i;
  }
  return std::nullopt;
}

// One fp32 operation for each value, as the services promise.
Values sum(const Values& a, const Values& b) {
  Values out(std::max(a.size(), b.size()));
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = at(a, i) + at(b, i);
  return out;
}

Values less(Values a, const Values& b) {
  a.resize(std::max(a.size(), b.size()));
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = a[i] - at(b, i);
  return a;
}

Values damped(Values values, float factor) {
  for (float& value : values) value *= factor;
  return values;
}

Values left_out(const Values& p, const std::vector<double>& decoded) {
  Values out(p.size());
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = p[i] - static_cast<float>(decoded[i]);
  return out;
}

// The moment of what was sent is forgotten.
Values masked(Values moment, const std::vector<double>& decoded) {
  for (std::size_t i = 0; i < moment.size(); ++i) {
    if (decoded[i] != 0) moment[i] = 0;
  }
  return moment;
}

double norm(const Values& values) {
  double squares = 0;
  for (const float value : values) squares += static_cast<double>(value) * static_cast<double>(value);
  return std::sqrt(squares);
}

std::string who(SiteId site, RunId run) {
  return format_text("site {}, run {}", std::uint64_t{site.value()}, run.value());
}

}  // namespace

void SiteChecks::encoding(SiteId site, RunId run, Trained trained, CarriedBounds bounds, bool wicked) {
  Book& book = books_[{site, run}];
  book.trained = std::move(trained);
  book.bounds = bounds;
  if (wicked) wicked_.insert(site);
}

void SiteChecks::not_encoded(SiteId site, RunId run, double value_abs_max, const Error& why) {
  const Book& book = books_[{site, run}];
  if (wicked_.contains(site) || !book.trained) return;
  const bool usable = std::ranges::all_of(book.trained->update, [&](float value) {
    return std::abs(static_cast<double>(value)) <= value_abs_max;  // false for NaN
  });
  if (usable) report_("conservation", who(site, run) + ": it drops what it trained: " + why.message);
}

void SiteChecks::beginning(SiteId site, RunId run, const std::vector<RunId>& continues) {
  beginning_[site] = {run, continues};
}

void SiteChecks::folder_lost(SiteId site) {
  std::erase_if(books_, [site](const auto& entry) { return entry.first.first == site; });
  beginning_.erase(site);
  entering_.erase(site);
}

// A submission that waits in a round that is not shared is late from here on.
void SiteChecks::entering(SiteId site, round::HistoryId history, const round::Common& common, CarriedBounds bounds) {
  entering_.insert_or_assign(site, Entering{history, common});
  for (auto& [key, book] : books_) {
    if (key.first != site || !book.pending || common.has(key.second, book.pending->round)) continue;
    book.resolving = Resolving{book.pending->round, book.pending->digest, round::Outcome::kLate};
    book.bounds = bounds;
  }
}

// The store's own history says whether the transition has happened.
void SiteChecks::follow_entering(SiteId site, store::SiteStore& store) {
  const auto found = entering_.find(site);
  if (found == entering_.end()) return;
  const Entering entering = found->second;
  entering_.erase(found);
  if (histories_[site] != entering.history) return;
  std::vector<RunId> lost;
  for (const auto& [key, book] : books_) {
    if (key.first == site && !entering.common.has(key.second)) lost.push_back(key.second);
  }
  for (const RunId run : lost) {
    const std::optional<Seen> seen = look(site, run, store);
    if (seen && (seen->pending || seen->last || !seen->residual.values.empty())) {
      report_("histories", who(site, run) + ": the run is lost, and something of it is left");
    }
    books_.erase({site, run});
  }
  const auto begun = beginning_.find(site);
  if (begun != beginning_.end() && !entering.common.has(begun->second.first)) beginning_.erase(begun);
}

void SiteChecks::resolving(SiteId site, RunId run, RoundId round, const Digest& digest, round::Outcome outcome,
                           CarriedBounds bounds, bool may_be_overtaken) {
  Book& book = books_[{site, run}];
  book.resolving = Resolving{round, digest, outcome};
  book.bounds = bounds;
  const round::HistoryId history = histories_[site];
  const bool holds = rounds_.holds(history, run, round, site, digest);
  const bool refuses = rounds_.refuses(history, run, round, site);
  const bool is_told_no_rule = bounds.late_factor == 1;  // by a parent of an earlier version: it need not ask
  const std::string what = who(site, run) + format_text(", round {}: it takes its update for {}", round.value(),
                                                        round::outcome_name(outcome));
  const bool is_overtaken = may_be_overtaken && rounds_.counts_newer(history, run, round, site);
  if (outcome == round::Outcome::kCounted && !holds && !is_overtaken) {
    report_("outcome", what + ", and the journal does not hold it");
  } else if (outcome != round::Outcome::kCounted && holds) {
    report_("outcome", what + ", and the journal counts it");
  } else if (outcome == round::Outcome::kRefused && !refuses) {
    report_("outcome", what + ", and the journal does not refuse it: work is dropped");
  } else if (outcome == round::Outcome::kLate && refuses) {
    report_("outcome", what + ", and the journal refuses it");
  } else if (outcome == round::Outcome::kLate && !rounds_.is_decided(history, run, round, site) &&
             !(is_told_no_rule && rounds_.in_journal(history, run, round) != nullptr)) {
    report_("outcome", what + ", and the round is not decided");
  }
}

std::optional<SiteChecks::Seen> SiteChecks::look(SiteId site, RunId run, store::SiteStore& store) {
  if (store.fault()) return std::nullopt;  // only after the next start is it known what is on the disk
  Seen seen;
  Result<std::optional<store::PendingUpdate>> pending = store.pending(run);
  Result<store::ResidualInfo> info = store.residual(run);
  Result<std::optional<store::LastOutcome>> last = store.last_outcome(run);
  if (!pending.ok() || !info.ok() || !last.ok()) return std::nullopt;  // the disk fails: checked another time
  seen.last = *last;
  if (!info->zero) {
    seen.residual.age_rounds = info->age_rounds;
    seen.residual.values.resize(info->value_count);
    if (!store.read_residual(run, 0, seen.residual.values).ok()) return std::nullopt;
  }
  if (!pending->has_value()) return seen;
  const store::PendingInfo& there = (*pending)->info();
  Pending own;
  own.round = there.start.round;
  own.digest = there.digest;
  own.weight = there.start.weight;
  own.passes = there.start.passes;
  own.p.resize(there.start.value_count);
  own.integers.resize(there.start.integer_count);
  if (!(*pending)->read_p(0, own.p).ok()) return std::nullopt;
  if (!own.integers.empty() && !(*pending)->read_integers(own.integers).ok()) return std::nullopt;
  if (own.passes > 1) {
    std::optional<std::optional<Later>> later = look_at_pass(site, run, there, store);
    if (!later) return std::nullopt;
    own.later = std::move(*later);
  }
  if (!learn(site, run, **pending, own.integers)) return std::nullopt;
  seen.pending = std::move(own);
  return seen;
}

bool SiteChecks::learn(SiteId site, RunId run, const store::PendingUpdate& update,
                       const std::vector<std::int64_t>& integers) {
  const store::PendingInfo& info = update.info();
  const round::MadeFrom& from = info.start.from;
  const KnownUpdate* const known = truth_.find(run, info.start.round, site, from.pass, info.digest);
  if (known != nullptr && (from.pass == 0 || known->means.contains(from.mean))) return true;
  std::vector<Buffer> chunks;
  for (std::uint64_t i = 0; i < info.start.chunk_count; ++i) {
    Result<Buffer> chunk = update.read_chunk(i);
    if (!chunk.ok()) return false;
    chunks.push_back(std::move(*chunk));
  }
  if (!truth_.add(run, info.start.round, site, info.digest, info.start, chunks, integers)) {
    report_("exact_sum", who(site, run) + ": the reference cannot decode what it encoded");
  }
  return true;
}

// Either all earlier runs are unchanged, or all of them are forgotten.
void SiteChecks::follow_beginning(SiteId site, store::SiteStore& store) {
  const auto begun = beginning_.find(site);
  if (begun == beginning_.end()) return;
  const auto& [run, continues] = begun->second;
  std::vector<RunId> before;
  for (const auto& [key, book] : books_) {
    if (key.first == site && key.second < run) before.push_back(key.second);
  }
  for (bool inherits = true; !before.empty(); before.pop_back()) {
    const auto old = books_.find({site, before.back()});
    const std::optional<Seen> seen = look(site, before.back(), store);
    if (!seen || seen->last || seen->pending || !seen->residual.values.empty()) continue;
    const bool continued = std::ranges::find(continues, before.back()) != continues.end();
    if (inherits && continued && !old->second.residual.values.empty()) {
      books_[{site, run}].residual = old->second.residual;
      inherits = false;
    }
    books_.erase(old);
  }
}

void SiteChecks::settled(SiteId site, store::SiteStore& store) {
  follow_entering(site, store);
  follow_beginning(site, store);
  for (auto& [key, book] : books_) {
    if (key.first != site) continue;
    const std::optional<Seen> seen = look(site, key.second, store);
    if (!seen || wicked_.contains(site)) continue;  // what it made durable is still known
    const std::string name = who(site, key.second);
    follow(name, site, key.second, book, *seen);
    follow_pass(name, site, key.second, book, *seen);
    compare(name, book, *seen);
  }
}

bool SiteChecks::folded(const Book& book, const Seen& seen) {
  if (book.trained->lost) return seen.residual.values != book.residual.values;
  return seen.last && *seen.last == store::LastOutcome{book.trained->round, round::Outcome::kLate};
}

// Follows the transitions that were under way: by the store's content each has happened or has not.
void SiteChecks::follow(const std::string& name, SiteId site, RunId run, Book& book, const Seen& seen) {
  if (book.resolving && book.pending && (!seen.pending || seen.pending->round != book.pending->round)) {
    resolved(site, run, book);
  }
  book.resolving.reset();
  if (!book.trained) return;
  const RoundId round = book.trained->round;
  if (seen.pending && seen.pending->round == round && !book.pending) {
    encoded(name, site, run, book, *seen.pending);
  } else if (!book.pending && folded(book, seen)) {
    Pending late = made(book);
    book.residual = {damped(late.p, book.bounds.late_factor), book.residual.age_rounds + 1, std::move(late.moment)};
  }
  book.trained.reset();  // otherwise the training is lost: its process died, or not_encoded() has said why
}

void SiteChecks::resolved(SiteId site, RunId run, Book& book) {
  const Pending& pending = *book.pending;
  const KnownUpdate* sent = truth_.find(run, pending.round, site, 0, pending.digest);
  switch (book.resolving->outcome) {
    case round::Outcome::kCounted:
      if (pending.passes > 1) {
        const bool named = pending.later && pending.later->digest == book.resolving->digest;
        if (!named) report_("conservation", who(site, run) + ": it counts, by another pass than its last");
        if (named) book.residual = {pending.later->left, 0, {}};
      } else if (sent != nullptr) {
        const bool all = pending.is_onebit;  // of what was lent is used up
        book.residual = {left_out(pending.p, sent->values), 0, all ? Values() : masked(pending.moment, sent->values)};
      }
      break;
    case round::Outcome::kLate:
      book.residual = {damped(pending.p, book.bounds.late_factor), book.residual.age_rounds + 1, pending.moment};
      break;
    case round::Outcome::kRefused:
      if (!book.residual.values.empty()) ++book.residual.age_rounds;
      break;
    case round::Outcome::kPending: break;
  }
  book.pending.reset();
}

void SiteChecks::encoded(const std::string& name, SiteId site, RunId run, Book& book, const Pending& seen) {
  const Trained& trained = *book.trained;
  Pending expected = made(book, lent(name, book));
  wrong(name, "its submission", seen.p, expected.p);
  if (seen.integers != trained.integers || seen.weight != trained.weight) {
    report_("conservation", name + ": its submission's integers or weight are not those that it trained");
  }
  if (seen.passes > 1) check_first_pass(name, site, run, book, seen);
  if (expected.is_onebit) check_sent(name, site, run, book, seen);
  book.pending = seen;
  book.pending->moment = std::move(expected.moment);
  book.pending->is_onebit = expected.is_onebit;
  book.pending->later.reset();  // follow_pass() looks at it
}

SiteChecks::Pending SiteChecks::made(const Book& book, Values lent) {
  Pending made;
  Values update = book.trained->update;
  Values carried = book.residual.values;
  if (const auto dgc = kernels::reference::dgc_options(book.trained->plan.codec)) {
    made.moment = book.residual.moment;
    made.moment.resize(update.size());
    kernels::reference::dgc_moment(*dgc, made.moment, update);
  }
  if (Onebit::of(book.trained->plan)) {
    made.is_onebit = true;
    made.moment = std::move(lent);
    carried = sum(less(carried, book.residual.moment), made.moment);
  }
  made.p = sum(update, carried);
  return made;
}

SiteChecks::Values SiteChecks::lent(const std::string& name, const Book& book) {
  const std::optional<Onebit> onebit = Onebit::of(book.trained->plan);
  const std::optional<Digest>& state = book.trained->warm_start;
  if (!onebit || !state) return {};
  const std::vector<float>* const momentum = rounds_.warm_start_of(*state);
  if (momentum != nullptr) return onebit->lent(*momentum);
  report_("warm_start", name + ": it is lent of a momentum that nobody made");
  return {};
}

// Within the plan's bounds all of p goes into what is sent.
void SiteChecks::check_sent(const std::string& name, SiteId site, RunId run, const Book& book, const Pending& seen) {
  const round::Plan& plan = book.trained->plan;
  const KnownUpdate* const is = truth_.find(run, seen.round, site, 0, seen.digest);
  if (is == nullptr) return;  // has been reported
  const Values expected = Onebit::of(plan)->sent(seen.round, seen.p);
  const bool beyond_value = std::ranges::any_of(
      seen.p, [&](float value) { return std::abs(static_cast<double>(value)) > plan.value_abs_max; });
  if (beyond_value || (plan.update_norm_max > 0 && norm(expected) * (1 + 0x1p-40) > plan.update_norm_max)) return;
  wrong(name, "what it sends", {is->values.begin(), is->values.end()}, expected);
}

void SiteChecks::compare(const std::string& name, Book& book, const Seen& seen) {
  if (book.pending && !seen.pending) {
    report_("nothing_lost", name + ": a durable submission is gone without an outcome");
  } else if (seen.pending && (!book.pending || book.pending->digest != seen.pending->digest)) {
    report_("conservation", name + ": a submission that it did not encode");
  } else if (book.pending) {
    wrong(name, "its submission", seen.pending->p, book.pending->p);
  }
  const double length = norm(book.residual.values);
  const bool too_long = book.bounds.norm_max > 0 && length * (1 + 0x1p-40) > book.bounds.norm_max;
  const bool too_old = book.bounds.age_max_rounds > 0 && book.residual.age_rounds > book.bounds.age_max_rounds;
  const bool dropped = seen.residual.values.empty() && (too_long || too_old);
  if (!dropped) wrong(name, "its residual", seen.residual.values, book.residual.values);
  const bool same_age = seen.residual.values.empty() || seen.residual.age_rounds == book.residual.age_rounds;
  if (!same_age) {
    report_("conservation", name + format_text(": its residual's age is {}, and is said to be {}",
                                               book.residual.age_rounds, seen.residual.age_rounds));
  }
  // The store's word is taken for all but moments: nobody asks for those, and what is made with one is compared.
  Values in_force = dropped ? Values() : std::move(book.residual.moment);
  const std::optional<Pending> of_pending = std::move(book.pending);
  book.pending = seen.pending;
  book.residual = seen.residual;
  book.residual.moment = std::move(in_force);
  if (book.pending && of_pending) {
    book.pending->moment = of_pending->moment;
    book.pending->is_onebit = of_pending->is_onebit;
  }
}

void SiteChecks::wrong(const std::string& name, const std::string& what, const Values& is, const Values& expected) {
  const std::optional<std::size_t> i = first_difference(is, expected);
  if (!i) return;
  report_("conservation", name + format_text(": value {} of {} is {}; what it trained, sent and dropped makes {}",
                                             std::uint64_t{*i}, what, at(is, *i), at(expected, *i)));
}

}  // namespace fluvial::simulator
