// The histories of a federation. A coordinator whose folder was restored from a backup begins a new one: in it, what
// was committed after the backup was made has not happened. Members that lived through the lost part say what they know
// (Standing), are told the lineage of the history that goes on, and put aside what it does not hold.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/ids.h"
#include "core/base/result.h"

namespace fluvial::round {

using HistoryId = Id<struct HistoryTag>;  // drawn anew at each restore; 0: since the founding

struct Fork {  // of a run that was not over when the history began
  RunId run;
  RoundId round;  // its last commit: later rounds of the history before are lost
  bool operator==(const Fork&) const = default;
};

struct History {
  HistoryId id;
  Epoch began;     // its first epoch, above every epoch that any member has heard of before
  RunId last_run;  // the newest run that it took over
  std::vector<Fork> forks;
  bool operator==(const History&) const = default;
};

// Every restore since the founding, the oldest first; empty: there was none. Epochs grow, ids do not repeat.
using Lineage = std::vector<History>;
inline constexpr std::size_t kHistoriesMax = 1024;
inline constexpr std::size_t kForksMax = 1024;  // of a history
// As milliseconds since 1970 this is the year 10889: no node's clock leads to a greater epoch.
inline constexpr Epoch kClockEpochMax{std::uint64_t{1} << 48};

HistoryId current_of(const Lineage& lineage);
Epoch began_of(const Lineage& lineage);  // of the current history; 0: since the founding
bool holds(const Lineage& lineage, HistoryId history);
// kInvalidArgument: an id of 0 or one that repeats, epochs that do not grow, too many.
Status check_lineage(const Lineage& lineage);

// Why a member that has heard of epoch `known` does not take up this history: the history began before that epoch.
Error older_history(const Lineage& lineage, Epoch known);

// Which rounds two histories of one federation share: those before the first restore that only one of them knows.
class Common {
 public:
  Common(const Lineage& one, const Lineage& other);
  bool has(RunId run) const { return run <= last_run_; }
  bool has(RunId run, RoundId round) const;

 private:
  void cut(const Lineage& lineage, std::size_t from);
  RunId last_run_{~std::uint64_t{0}};
  std::vector<Fork> forks_;
};

// A round as a site knows it: from the outcome of its update, or from a submission that still waits for its outcome.
struct KnownRound {
  RunId run;
  RoundId round;
  bool decided = false;  // it is committed, or its run is over
  bool counted = false;  // and the update with this digest is in
  Digest digest{};
  bool operator==(const KnownRound&) const = default;
};

// What a member shows of itself when it comes for a lease.
struct Standing {
  HistoryId history;
  Epoch epoch;  // the greatest it has heard of
  std::vector<KnownRound> rounds;
  bool operator==(const Standing&) const = default;
};
inline constexpr std::size_t kKnownRoundsMax = 64;  // the newest

}  // namespace fluvial::round
