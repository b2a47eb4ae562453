#include "simulator/checks/sites.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/format.h"

namespace fluvial::simulator {
namespace {

void add(std::vector<double>& into, const std::vector<double>& what, double sign = 1) {
  if (into.size() < what.size()) into.resize(what.size(), 0);
  for (std::size_t i = 0; i < what.size(); ++i) into[i] += sign * what[i];
}

double greatest(const std::vector<double>& values) {
  double most = 0;
  for (const double value : values) most = std::max(most, std::abs(value));
  return most;
}

double at(const std::vector<double>& values, std::size_t i) { return i < values.size() ? values[i] : 0; }

std::string who(SiteId site, RunId run) {
  return format_text("site {}, run {}", std::uint64_t{site.value()}, run.value());
}

}  // namespace

void SiteChecks::encoding(SiteId site, RunId run, RoundId round, std::vector<float> update, bool wicked) {
  Book& book = books_[{site, run}];
  book.update.emplace(round, std::move(update));
  book.wicked = book.wicked || wicked;
}

void SiteChecks::dropped(SiteId site, RunId run) { books_[{site, run}].may_have_dropped = true; }
void SiteChecks::forgetting(SiteId site, RunId run) { books_[{site, run}].forgotten = true; }

void SiteChecks::resolving(SiteId site, RunId run, RoundId round, const Digest& digest, store::Outcome outcome) {
  Book& book = books_[{site, run}];
  book.resolving = Resolving{round, digest, outcome};
  const bool holds = rounds_.holds(run, round, site, digest);
  const std::string what = who(site, run) + format_text(", round {}: it takes its update for {}", round.value(),
                                                        store::outcome_name(outcome));
  if (outcome == store::Outcome::kCounted && !holds) {
    report_("outcome", what + ", and the journal does not hold it");
  } else if (outcome != store::Outcome::kCounted && holds) {
    report_("outcome", what + ", and the journal counts it");
  } else if (!rounds_.is_decided(run, round)) {
    report_("outcome", what + ", and the round is not decided");
  }
}

std::optional<SiteChecks::Seen> SiteChecks::look(SiteId site, RunId run, store::SiteStore& store) {
  Seen seen;
  Result<std::optional<store::PendingUpdate>> pending = store.pending(run);
  Result<store::ResidualInfo> info = store.residual(run);
  Result<std::optional<store::LastOutcome>> last = store.last_outcome(run);
  if (!pending.ok() || !info.ok() || !last.ok()) return std::nullopt;  // a disk that fails: looked at another time
  seen.last = *last;
  if (!info->zero) {
    std::vector<float> values(info->value_count);
    if (!store.read_residual(run, 0, values).ok()) return std::nullopt;
    seen.residual.assign(values.begin(), values.end());
  }
  if (!pending->has_value()) return seen;
  const store::PendingInfo& there = (*pending)->info();
  std::vector<float> p(there.start.value_count);
  if (!(*pending)->read_p(0, p).ok()) return std::nullopt;
  seen.pending = Pending{there.start.round, there.digest, {p.begin(), p.end()}};
  if (truth_.find(run, there.start.round, site, there.digest) != nullptr) return seen;
  std::vector<Buffer> chunks;
  for (std::uint64_t i = 0; i < there.start.chunk_count; ++i) {
    Result<Buffer> chunk = (*pending)->read_chunk(i);
    if (!chunk.ok()) return std::nullopt;
    chunks.push_back(std::move(*chunk));
  }
  if (!truth_.add(run, there.start.round, site, there.digest, there.start.weight, there.start.codec,
                  there.start.value_count, there.start.chunk_values, chunks)) {
    report_("exact_sum", who(site, run) + ": the reference cannot decode what it encoded");
  }
  return seen;
}

void SiteChecks::settled(SiteId site, store::SiteStore& store) {
  for (auto& [key, book] : books_) {
    if (key.first != site || book.forgotten) continue;
    const std::optional<Seen> seen = look(site, key.second, store);
    if (!seen || book.wicked) continue;  // what it made durable is known all the same
    follow(site, key.second, book, *seen);
    compare(site, key.second, book, *seen);
  }
}

// What the store says of the transitions that were under way: each has happened, or has not.
void SiteChecks::follow(SiteId site, RunId run, Book& book, const Seen& seen) {
  if (book.resolving && (!seen.pending || seen.pending->round != book.resolving->round)) {
    if (book.pending) resolved(book, site, run, *book.resolving, seen);
    book.resolving.reset();
  }
  if (book.update) {
    const auto& [round, update] = *book.update;
    const bool pending = seen.pending && seen.pending->round == round;
    const bool folded = seen.last && seen.last->round == round && seen.last->outcome == store::Outcome::kLate;
    if (pending || folded) {
      const std::vector<double> values(update.begin(), update.end());
      add(book.trained, values);
      book.slack += 0x1p-22 * (greatest(values) + greatest(book.residual));
      book.update.reset();
    }
  }
  if (book.may_have_dropped) {
    add(book.dropped, book.residual);
    add(book.dropped, seen.residual, -1);
  }
}

void SiteChecks::resolved(Book& book, SiteId site, RunId run, const Resolving& resolving, const Seen& seen) {
  const std::vector<double> before = book.residual;
  if (resolving.outcome == store::Outcome::kCounted) {
    const KnownUpdate* update = truth_.find(run, resolving.round, site, resolving.digest);
    if (update != nullptr) add(book.committed, update->values);
    book.residual = book.pending->p;
    if (update != nullptr) add(book.residual, update->values, -1);
  } else if (resolving.outcome == store::Outcome::kLate) {
    book.residual = book.pending->p;
  } else {  // refused: the update goes, the residual stays
    add(book.dropped, book.pending->p);
    add(book.dropped, before, -1);
  }
  book.slack += 0x1p-22 * greatest(book.pending->p);
  (void)seen;
}

void SiteChecks::compare(SiteId site, RunId run, Book& book, const Seen& seen) {
  const std::string name = who(site, run);
  if (book.pending && !seen.pending && book.pending->round.value() != 0 && !book.resolving) {
    const bool told = seen.last && seen.last->round >= book.pending->round;
    if (!told) report_("nothing_lost", name + ": a durable submission is gone without an outcome");
  }
  book.pending = seen.pending;
  book.residual = seen.residual;
  book.may_have_dropped = false;
  // An update that is not in yet is part of nothing.
  const std::vector<double>& held = seen.pending ? seen.pending->p : seen.residual;
  for (std::size_t i = 0; i < book.trained.size(); ++i) {
    const double off = at(book.trained, i) - at(book.committed, i) - at(book.dropped, i) - at(held, i);
    if (std::abs(off) <= book.slack + 1e-12) continue;
    report_("conservation",
            name + format_text(": value {}: trained {} = committed {} + held {} + dropped {} + {}", std::uint64_t{i},
                               at(book.trained, i), at(book.committed, i), at(held, i), at(book.dropped, i), off));
    break;
  }
}

}  // namespace fluvial::simulator
