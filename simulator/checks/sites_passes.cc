// What a site sends in the passes of a round (docs/design/phases.md), and what that leaves of what it trained.
#include <utility>

#include "core/base/format.h"
#include "core/round/pass.h"
#include "simulator/checks/sites.h"

namespace fluvial::simulator {

std::optional<std::optional<SiteChecks::Later>> SiteChecks::look_at_pass(SiteId site, RunId run,
                                                                         const store::PendingInfo& first,
                                                                         store::SiteStore& store) {
  const Result<std::optional<store::PendingUpdate>> pass = store.pending_pass(run);
  if (!pass.ok()) return std::nullopt;
  if (!pass->has_value()) return std::optional<Later>();
  const store::PendingInfo& there = (*pass)->info();
  Later later{there.start.from, there.digest, there.submission, Values(first.start.value_count),
              std::vector<std::int64_t>(first.start.integer_count)};
  if (!(*pass)->read_p(0, later.left).ok()) return std::nullopt;
  if (!later.integers.empty() && !(*pass)->read_integers(later.integers).ok()) return std::nullopt;
  if (!learn(site, run, **pass, later.integers)) return std::nullopt;
  return std::optional(std::move(later));
}

void SiteChecks::check_first_pass(const std::string& name, SiteId site, RunId run, const Book& book,
                                  const Pending& seen) {
  const std::optional<Factors>* const factors = rounds_.factors_of(run);
  const KnownUpdate* const sent = truth_.find(run, seen.round, site, 0, seen.digest);
  if (factors == nullptr || !*factors || sent == nullptr) {
    return report_("passes", name + ": it has made a pass of a run that has none");
  }
  const std::optional<Digest>& state = book.trained->warm_start;
  const std::vector<float>* const named = state ? rounds_.warm_start_of(*state) : nullptr;
  if (state && named == nullptr) return report_("warm_start", name + ": it begins with a state that nobody made");
  const std::vector<float> q = named != nullptr ? *named : (*factors)->drawn();
  const std::string wrong = (*factors)->wrong_first(seen.p, q, sent->values);
  if (!wrong.empty()) report_("conservation", name + format_text(", round {} pass 1: ", seen.round.value()) + wrong);
}

// What is durable for a mean stays until what is made of a later attempt's takes its place.
void SiteChecks::follow_pass(const std::string& name, SiteId site, RunId run, Book& book, const Seen& seen) {
  if (!book.pending || !seen.pending || book.pending->digest != seen.pending->digest) return;  // compare() says so
  const std::optional<Later>& now = seen.pending->later;
  const std::optional<Later> before = std::exchange(book.pending->later, now);
  if (!now) {
    if (before) report_("nothing_lost", name + ": what it made of a mean is gone without an outcome");
  } else if (before && before->submission == now->submission) {
    if (before->digest != now->digest || before->from != now->from) {
      report_("nothing_lost", name + ": what it made of a mean has become something else");
    }
    wrong(name, "what it would leave", now->left, before->left);
  } else {
    check_pass(name, site, run, *seen.pending, before);
  }
}

void SiteChecks::check_pass(const std::string& name, SiteId site, RunId run, const Pending& pending,
                            const std::optional<Later>& before) {
  const Later& later = *pending.later;
  const std::string which =
      name + format_text(", round {} {}: ", pending.round.value(), round::pass_name(later.from.pass));
  const std::optional<Factors>* const factors = rounds_.factors_of(run);
  const KnownUpdate* const sent = truth_.find(run, pending.round, site, later.from.pass, later.digest);
  if (factors == nullptr || !*factors || sent == nullptr) return report_("passes", which + "its run has none");
  const KnownMean* const mean = rounds_.mean_of(run, later.from.mean);
  if (mean == nullptr) return report_("passes", which + "made from a mean that nobody handed down");
  if (mean->round != pending.round || mean->pass + 1 != later.from.pass) {
    return report_("passes", which + "made from a mean of another round or pass");
  }
  const KnownMean* const last = before ? rounds_.mean_of(run, before->from.mean) : nullptr;
  if (last != nullptr && std::pair(last->epoch, last->attempt) >= std::pair(mean->epoch, mean->attempt)) {
    report_("passes", which + format_text("made for attempt {} in the place of what it made for attempt {}",
                                          mean->attempt.value(), last->attempt.value()));
  }
  if (later.integers != pending.integers) report_("conservation", which + "its integers are not those of pass 1");
  const std::string wrong =
      (*factors)->wrong_second(pending.p, (*factors)->basis(mean->values), sent->values, later.left);
  if (!wrong.empty()) report_("conservation", which + wrong);
}

}  // namespace fluvial::simulator
