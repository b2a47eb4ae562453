#include "core/tree/reporter.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/wire/report_mapping.h"

namespace fluvial::tree {
namespace {

bool is_transfer(const round::NodeReport& report) { return report.total_bytes > 0; }

// But for what changes by itself.
bool says_the_same(round::NodeReport a, const round::NodeReport& b) {
  a.doing_for = b.doing_for;
  a.bytes_up = b.bytes_up;
  a.bytes_down = b.bytes_down;
  a.rounds = b.rounds;
  return a == b;
}

}  // namespace

Reporter::Reporter(Runtime& runtime, Own own, Post post, Often often)
    : runtime_(runtime),
      own_(std::move(own)),
      post_(std::move(post)),
      timer_(runtime.strand),
      pace_(often.per_second, often.at_once, runtime.clock.now()) {}

void Reporter::parent_up(bool takes_reports) {
  parent_down();
  up_ = takes_reports;
  if (!up_) return;
  for (auto& [node, one] : below_) one.waits = true;
  changed();
}

void Reporter::parent_down() {
  up_ = false;
  said_.reset();
  planned_.reset();
  timer_.cancel();
}

void Reporter::changed() {
  note_doing(own_());
  plan_change();
}

void Reporter::note_doing(const round::NodeReport& own) {
  if (own.doing == doing_) return;
  doing_ = own.doing;
  doing_since_ = now();
}

void Reporter::rounds_over(std::vector<round::RoundSpans> rounds) {
  if (rounds.empty()) return;
  std::ranges::move(rounds, std::back_inserter(rounds_));
  const std::size_t most = round::kReportedRoundsMax;
  if (rounds_.size() > most) rounds_.erase(rounds_.begin(), rounds_.end() - static_cast<std::ptrdiff_t>(most));
  plan_change();
}

void Reporter::below(round::NodeReport report) {
  Below& known = below_[report.node];
  round::replace(known.report, std::move(report));
  known.waits = true;
  plan_change();
}

void Reporter::plan(TimePoint at) {
  if (!up_ || (planned_ && *planned_ <= at)) return;
  planned_ = at;
  timer_.after(at - now(), [this] { flush(); });
}

std::optional<round::NodeReport> Reporter::take_own() {
  round::NodeReport own = own_();
  note_doing(own);
  const bool is_news = !said_ || !says_the_same(own, *said_) || now() - said_at_ >= kAnewInterval;
  if (!is_news && rounds_.empty()) return std::nullopt;
  said_ = own;
  said_at_ = now();
  own.doing_for = now() - doing_since_;
  own.rounds = std::exchange(rounds_, {});
  return own;
}

void Reporter::flush() {
  planned_.reset();
  std::vector<round::NodeReport> out;
  if (std::optional<round::NodeReport> own = take_own()) out.push_back(std::move(*own));
  for (auto& [node, one] : below_) {
    if (!std::exchange(one.waits, false)) continue;
    out.push_back(one.report);
    round::age(out.back(), now() - one.report.heard);
    one.report.rounds.clear();
  }
  for (v1::Envelope& message : wire::to_envelopes(out)) post_(std::move(message));
  if (!out.empty()) (void)pace_.take(now());
  plan(is_transfer(*said_) ? now() + kProgressInterval : said_at_ + kAnewInterval);
}

}  // namespace fluvial::tree
