// How fast each site is, and what follows from it: how long a tier may keep a round open, from when on the root is
// content with a quorum, which sites are drawn less often. Pure; every duration is the difference of two readings of
// one monotonic clock, so no wall clock has a part in it. Soft state: a node that restarts begins without history and
// has it again after a few rounds. Not thread safe; a site takes about 700 bytes.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "core/base/clock.h"
#include "core/round/contribution.h"
#include "core/round/plan.h"

namespace fluvial::round {

// The last 16 durations of one kind. Quantiles of a window are exact, bounded, and forget: a mean with a deviation is
// thrown off by one stall, and the P2 estimator (Jain and Chlamtac, CACM 28, 1985) remembers the first round for ever.
class TimeWindow {
 public:
  static constexpr std::size_t kLength = 16;

  void add(Duration time);
  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  Duration quantile(double p) const;  // by nearest rank; 0 when empty
  void append_to(std::vector<Duration>& out) const;

 private:
  std::array<Duration, kLength> times_{};
  std::uint8_t next_ = 0;
  std::uint8_t size_ = 0;
};

struct SitePace {
  TimeWindow train;     // opening sent -> update begun: training and encoding
  TimeWindow transfer;  // begun -> verified: of the update, and of the partials that carried it
  TimeWindow merge;     // added to the sums on its way
  TimeWindow total;     // all three; of a late round, how long it was open; in windows, from one counted to the next
  std::uint64_t rounds = 0;
  std::uint64_t late = 0;  // of these
  double score = 1;        // how many times the median site's time; 1 until two rounds are known
  bool straggler = false;
  std::array<double, 5> ratios{};  // of the last rounds, to the round's median
};

inline constexpr double kStragglerFrom = 2;      // a score from here on makes a straggler,
inline constexpr double kStragglerUntil = 1.5;   // and one below this ends it
inline constexpr double kSampleWeightMin = 0.1;  // each straggler is still drawn sometimes

class Pace {
 public:
  // A round's first attempt ended `open_for` after its opening with these participants in. Who is neither in nor
  // refused is late. A contribution whose times are unknown teaches nothing.
  void closed(const std::vector<Participant>& participants, const ContributorSet& in,
              const std::vector<Refusal>& refused, Duration open_for);

  // A window closed with these contributions. Nobody is late for one: what a site takes is the time from one of its
  // updates that was counted to the next.
  void window_closed(const ContributorSet& in, TimePoint now);

  void forget(SiteId site) { sites_.erase(site); }  // it does not come: that says nothing of its speed

  const std::map<SiteId, SitePace>& sites() const { return sites_; }
  const SitePace* find(SiteId site) const;  // null: no history
  double sample_weight(SiteId site) const;  // 1, or a straggler's 1 / score, at least kSampleWeightMin

 private:
  std::map<SiteId, SitePace> sites_;
  std::map<SiteId, TimePoint> counted_at_;  // in windows
};

// From when on a quorum is enough: 1.5 times the p95 of the times of the participants that are no stragglers, or 1.5
// times what the quorum and the minimum weight need, if that is longer. It lies between the plan's floor and the plan's
// soft deadline. It is the plan's soft deadline when the plan is not adaptive, or when fewer than half of the
// participants have a history of two rounds.
Duration soft_deadline(const Plan& plan, const std::vector<Participant>& participants, const Pace& pace);

// How long a tier may keep its round open, so that its partial reaches the parent in time. `left` is the time that the
// parent gave it, `up` the times of its partials from the first frame to the receipt. The result is `left` less 1.5
// times the p95 of `up`, within 1/2 and 49/50 of `left`; 9/10 of `left` without history; 0 when nothing is left.
Duration tier_deadline(Duration left, const TimeWindow& up);

// When the children of one node began to send, by that node's monotonic clock: the source of Contribution's times. All
// three are called on the node's strand: when the children are told of a round, when a transfer is admitted, and when
// it is handed over.
class Stopwatch {
 public:
  void opened(TimePoint now);               // a new round
  void begun(NodeId child, TimePoint now);  // an update or a partial; again for the same one: the first time holds
  Times verified(NodeId child, bool is_update, TimePoint now);  // of an update from the opening on

 private:
  TimePoint opened_;
  std::map<NodeId, TimePoint> begun_;
};

// How long one node's partials take on their way up, from the first frame to the parent's receipt. What remains of the
// time that the parent gave it is left for the children.
class UpwardPace {
 public:
  void begun(std::uint64_t sequence, TimePoint now);  // a partial with contributors leaves
  // The parent's receipt: how long it took, when it was taken.
  std::optional<Duration> answered(std::uint64_t sequence, bool taken, TimePoint now);
  std::optional<Duration> closed(TimePoint now);  // the round is over: a partial still on its way took at least that
  void lost() { on_its_way_.reset(); }            // what is on its way: the session ended, or another round began

  Duration tier_deadline(Duration left) const { return round::tier_deadline(left, up_); }

 private:
  struct OnItsWay {
    std::uint64_t sequence = 0;
    TimePoint since;
  };
  std::optional<OnItsWay> on_its_way_;
  TimeWindow up_;
};

}  // namespace fluvial::round
