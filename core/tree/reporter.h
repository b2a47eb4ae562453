// What a node tells its parent of itself and of the nodes below it (core/round/report.h). Of each node one report waits
// at most, the newest. What waits goes out together: at once after a rest, so that nobody is said to have no worker who
// has one by now, and a few times a second while much changes. On the node's strand.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "core/net/pace.h"
#include "core/net/timer.h"
#include "core/round/report.h"
#include "core/tree/runtime.h"
#include "fluvial/v1/wire.pb.h"

namespace fluvial::tree {

class Reporter {
 public:
  struct Often {  // changes go up
    double per_second = 4;
    double at_once = 20;  // after a rest
  };
  static constexpr Duration kProgressInterval = std::chrono::seconds(1);  // while something is fetched or sent
  static constexpr Duration kAnewInterval = std::chrono::seconds(30);     // though nothing has changed

  using Own = std::function<round::NodeReport()>;          // the node as it is now: what it does, and how far it is
  using Post = std::function<void(v1::Envelope message)>;  // to the parent

  Reporter(Runtime& runtime, Own own, Post post, Often often);
  Reporter(Runtime& runtime, Own own, Post post) : Reporter(runtime, std::move(own), std::move(post), Often()) {}

  void parent_up(bool takes_reports);  // all that is known goes up; to a parent that takes none nothing does
  void parent_down();

  void changed();                                           // something of the node itself may have
  void rounds_over(std::vector<round::RoundSpans> rounds);  // of the node itself
  void below(round::NodeReport report);                     // of a node below, as it was heard
  void left(NodeId node) { below_.erase(node); }

 private:
  struct Below {
    round::NodeReport report;
    bool waits = true;  // to go up
  };
  void note_doing(const round::NodeReport& own);
  void plan(TimePoint at);                                                // to flush() then, or before
  void plan_change() { plan(now() + net::Pace(pace_).try_take(now())); }  // flush() takes it
  void flush();
  std::optional<round::NodeReport> take_own();
  TimePoint now() const { return runtime_.clock.now(); }

  Runtime& runtime_;
  Own own_;
  Post post_;
  net::Timer timer_;
  bool up_ = false;                   // with a parent that takes reports
  std::optional<TimePoint> planned_;  // when the timer fires
  net::Pace pace_;
  round::Doing doing_ = round::Doing::kUnknown;
  TimePoint doing_since_;
  std::optional<round::NodeReport> said_;  // of itself, to this parent
  TimePoint said_at_;
  std::vector<round::RoundSpans> rounds_;  // of itself, that wait to go up
  std::map<NodeId, Below> below_;
};

}  // namespace fluvial::tree
