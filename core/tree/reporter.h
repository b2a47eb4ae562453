// What a node tells its parent of itself and of the nodes below it (core/round/report.h). Of each node one report waits
// at most, the newest. What waits goes out together, a few times a second at most. On the node's strand.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "core/net/timer.h"
#include "core/round/report.h"
#include "core/tree/runtime.h"
#include "fluvial/v1/wire.pb.h"

namespace fluvial::tree {

class Reporter {
 public:
  static constexpr Duration kChangesInterval = std::chrono::milliseconds(250);
  static constexpr Duration kProgressInterval = std::chrono::seconds(1);  // while something is fetched or sent
  static constexpr Duration kAnewInterval = std::chrono::seconds(30);     // though nothing has changed

  using Own = std::function<round::NodeReport()>;          // the node as it is now: what it does, and how far it is
  using Post = std::function<void(v1::Envelope message)>;  // to the parent

  Reporter(Runtime& runtime, Own own, Post post);

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
  void plan(TimePoint at);  // to flush() then, or before
  void flush();
  std::optional<round::NodeReport> take_own();
  TimePoint now() const { return runtime_.clock.now(); }

  Runtime& runtime_;
  Own own_;
  Post post_;
  net::Timer timer_;
  bool up_ = false;                   // with a parent that takes reports
  std::optional<TimePoint> planned_;  // when the timer fires
  TimePoint flushed_;                 // something went up last
  round::Doing doing_ = round::Doing::kUnknown;
  TimePoint doing_since_;
  std::optional<round::NodeReport> said_;  // of itself, to this parent
  TimePoint said_at_;
  std::vector<round::RoundSpans> rounds_;  // of itself, that wait to go up
  std::map<NodeId, Below> below_;
};

}  // namespace fluvial::tree
