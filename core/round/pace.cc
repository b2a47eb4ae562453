#include "core/round/pace.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

namespace fluvial::round {
namespace {

constexpr double kHeadroom = 1.5;                                 // over a p95
constexpr Duration kNegligible = std::chrono::milliseconds(200);  // so much above the median makes nobody slow

// By nearest rank: the smallest value that at least p of all do not exceed.
Duration nearest_rank(std::vector<Duration>& times, double p) {
  if (times.empty()) return {};
  const auto rank = static_cast<std::size_t>(std::ceil(p * static_cast<double>(times.size())));
  const auto at = times.begin() + static_cast<std::ptrdiff_t>(std::clamp<std::size_t>(rank, 1, times.size()) - 1);
  std::nth_element(times.begin(), at, times.end());
  return *at;
}

Duration scaled(Duration time, double factor) {
  return Duration(static_cast<Duration::rep>(static_cast<double>(time.count()) * factor));
}

double ratio_to(Duration time, Duration median) {
  if (time - median < kNegligible || median <= Duration(0)) return 1;
  return static_cast<double>(time.count()) / static_cast<double>(median.count());
}

// The lower median of the last ratios: two slow rounds of two or three, or three of five, make a site slow, and three
// good ones of five end it. One stall does neither.
void rate(SitePace& site, double ratio) {
  site.ratios[site.rounds++ % site.ratios.size()] = ratio;
  const std::size_t known = std::min<std::size_t>(site.rounds, site.ratios.size());
  if (known < 2) return;
  std::array<double, 5> sorted = site.ratios;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>((known - 1) / 2);
  std::nth_element(sorted.begin(), middle, sorted.begin() + static_cast<std::ptrdiff_t>(known));
  site.score = *middle;
  if (site.score >= kStragglerFrom) site.straggler = true;
  if (site.score < kStragglerUntil) site.straggler = false;
}

// How long until the fastest participants that make a quorum are in; none when those that are known do not make one.
std::optional<Duration> quorum_time(const Plan& plan, const std::vector<Participant>& participants, const Pace& pace) {
  std::vector<std::pair<Duration, std::uint64_t>> known;
  for (const Participant& participant : participants) {
    const SitePace* site = pace.find(participant.site);
    if (site != nullptr) known.emplace_back(site->total.quantile(0.95), participant.weight_max);
  }
  std::sort(known.begin(), known.end());
  std::uint64_t count = 0;
  std::uint64_t weight = 0;
  for (const auto& [time, weight_max] : known) {
    ++count;
    weight += weight_max;
    if (count >= plan.quorum && weight >= plan.weight_min) return time;
  }
  return std::nullopt;
}

// An old update was ready when the round opened: its time says nothing of its site.
bool is_timed(const Contribution& entry) { return entry.times.known() && entry.staleness() == 0; }

}  // namespace

void TimeWindow::add(Duration time) {
  times_[next_] = time;
  next_ = static_cast<std::uint8_t>((next_ + 1) % kLength);
  size_ = static_cast<std::uint8_t>(std::min<std::size_t>(size_ + 1, kLength));
}

Duration TimeWindow::quantile(double p) const {
  std::vector<Duration> times(times_.begin(), times_.begin() + size_);
  return nearest_rank(times, p);
}

void TimeWindow::append_to(std::vector<Duration>& out) const {
  out.insert(out.end(), times_.begin(), times_.begin() + size_);
}

void Pace::closed(const std::vector<Participant>& participants, const ContributorSet& in,
                  const std::vector<Refusal>& refused, Duration open_for) {
  std::vector<Duration> totals;
  for (const auto& [site, entry] : in.entries()) {
    if (is_timed(entry)) totals.push_back(entry.times.total());
  }
  if (totals.empty()) return;  // nothing to compare with
  const Duration median = nearest_rank(totals, 0.5);
  std::set<SiteId> not_rated;  // refused for what they sent, not for when
  for (const Refusal& refusal : refused) not_rated.insert(refusal.site);
  for (const Participant& participant : participants) {
    const SiteId id = participant.site;
    if (not_rated.contains(id)) continue;
    const Contribution* entry = in.find(id);
    if (entry != nullptr && !is_timed(*entry)) continue;
    SitePace& site = sites_[id];
    if (entry == nullptr) {
      ++site.late;
      site.total.add(open_for);  // it takes at least that
      rate(site, std::max(kStragglerFrom, ratio_to(open_for, median)));
      continue;
    }
    site.train.add(entry->times.train);
    site.transfer.add(entry->times.transfer);
    site.merge.add(entry->times.merge);
    site.total.add(entry->times.total());
    rate(site, ratio_to(entry->times.total(), median));
  }
}

void Pace::window_closed(const ContributorSet& in, TimePoint now) {
  std::map<SiteId, Duration> took;
  for (const auto& [site, entry] : in.entries()) {
    const auto [before, is_first] = counted_at_.try_emplace(site, now);
    if (is_first) continue;
    took[site] = now - std::exchange(before->second, now);
    sites_[site].total.add(took[site]);
  }
  std::vector<Duration> usual;
  for (const auto& [site, pace] : sites_) usual.push_back(pace.total.quantile(0.5));
  const Duration median = nearest_rank(usual, 0.5);
  for (const auto& [site, time] : took) rate(sites_[site], ratio_to(time, median));
}

const SitePace* Pace::find(SiteId site) const {
  const auto found = sites_.find(site);
  return found == sites_.end() ? nullptr : &found->second;
}

double Pace::sample_weight(SiteId site) const {
  const SitePace* pace = find(site);
  if (pace == nullptr || !pace->straggler) return 1;
  return std::clamp(1 / pace->score, kSampleWeightMin, 1.0);
}

Duration soft_deadline(const Plan& plan, const std::vector<Participant>& participants, const Pace& pace) {
  const Duration longest = plan.soft_deadline;
  if (!plan.adaptive_deadlines) return longest;
  std::size_t known = 0;
  std::vector<Duration> typical;
  for (const Participant& participant : participants) {
    const SitePace* site = pace.find(participant.site);
    if (site == nullptr || site->rounds < 2) continue;
    ++known;
    if (!site->straggler) site->total.append_to(typical);
  }
  const std::optional<Duration> quorum = quorum_time(plan, participants, pace);
  if (2 * known < participants.size() || !quorum) return longest;
  const Duration enough = scaled(std::max(nearest_rank(typical, 0.95), *quorum), kHeadroom);
  return std::min(longest, std::max<Duration>(enough, plan.soft_deadline_min));
}

Duration tier_deadline(Duration left, const TimeWindow& up) {
  if (left <= Duration(0)) return Duration(0);
  if (up.empty()) return left * 9 / 10;
  return std::clamp(left - scaled(up.quantile(0.95), kHeadroom), left / 2, left * 49 / 50);
}

void Stopwatch::opened(TimePoint now) {
  opened_ = now;
  begun_.clear();
}

void Stopwatch::begun(NodeId child, TimePoint now) { begun_.emplace(child, now); }

Times Stopwatch::verified(NodeId child, bool is_update, TimePoint now) {
  const auto begun = begun_.extract(child);
  if (begun.empty()) return {};  // begun in the round before
  return {is_update ? begun.mapped() - opened_ : Duration(0), now - begun.mapped(), {}};
}

void UpwardPace::begun(std::uint64_t sequence, TimePoint now) { on_its_way_ = {sequence, now}; }

std::optional<Duration> UpwardPace::answered(std::uint64_t sequence, bool taken, TimePoint now) {
  if (!on_its_way_ || on_its_way_->sequence != sequence) return std::nullopt;
  if (taken) return closed(now);
  lost();
  return std::nullopt;
}

std::optional<Duration> UpwardPace::closed(TimePoint now) {
  if (!on_its_way_) return std::nullopt;
  const Duration took = now - on_its_way_->since;
  lost();
  up_.add(took);
  return took;
}

}  // namespace fluvial::round
