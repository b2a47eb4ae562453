// How often the same warning is written: a log that a peer, or a disk that fails, could fill tells nobody anything.
//
// A cause is a warning's or error's message with whom and what it is about (kCauseFields). The first `burst` lines of a
// cause within a window are written; the others are counted, and a line with that count ("more") follows when the
// window is over, at the next line of any kind. Lines below warnings are held back only where a member writes them as
// often as it likes (kComingAndGoing); they take no place of a warning's cause. Pure; not thread safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/clock.h"
#include "core/telemetry/log.h"

namespace fluvial::telemetry {

// Two lines that differ in other fields (a reason's text, a port, a round, a number) are of one cause.
inline constexpr std::array<std::string_view, 8> kCauseFields = {"code",   "member", "site", "site_id",
                                                                 "parent", "worker", "run",  "part"};

// What a member that comes and goes has a parent write. A test holds that these lines are there.
inline constexpr std::array<std::string_view, 6> kComingAndGoing = {
    "child joined", "child left", "lease moved", "sent away", "transfer goes on", "a child of another version"};

struct RepeatLimits {
  std::size_t burst = 5;
  Duration window = std::chrono::minutes(1);
  std::size_t causes_max = 1024;       // those beyond share one; those of members that come and go are written
  std::size_t causes_of_one_max = 32;  // likewise of one member, site, parent or worker: it may give many runs' numbers
};

class Repeats {
 public:
  explicit Repeats(RepeatLimits limits = {}) : limits_(limits) {}

  bool admit(const Record& record, TimePoint now);  // false: it is counted instead
  // For each cause whose window is over and that had lines held back: the last of them, with "more". To be written.
  std::vector<Record> due(TimePoint now);
  std::vector<Record> rest();  // likewise, whatever the time: when the process ends

 private:
  struct Cause {
    std::string subject;     // empty: it is about nobody
    bool is_lesser = false;  // than a warning
    TimePoint since;
    std::size_t written = 0;
    std::uint64_t held_back = 0;
    Record last;
  };
  std::vector<Record> take(bool all, TimePoint now);

  RepeatLimits limits_;
  std::map<std::string, Cause> causes_;
  std::size_t lesser_ = 0;                        // of the causes
  std::map<std::string, std::size_t> causes_of_;  // by subject
  TimePoint oldest_;                              // of the windows: before it has ended nothing is due
};

}  // namespace fluvial::telemetry
