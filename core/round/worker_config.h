// What a plan's [worker] table gives the workers: numbers, texts, truth values and lists as they are, and numbers that
// follow from the round. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/ids.h"
#include "core/base/result.h"

namespace fluvial::round {

// Bounds of a table.
inline constexpr std::size_t kWorkerKeysMax = 64;
inline constexpr std::size_t kWorkerKeyBytesMax = 64;
inline constexpr std::size_t kWorkerTextBytesMax = 1024;
inline constexpr std::size_t kWorkerItemsMax = 256;       // of a list; it has one at least
inline constexpr std::size_t kWorkerBytesMax = 16 << 10;  // altogether: keys and texts as they are, a number as 8

using WorkerValue = std::variant<double, bool, std::string, std::vector<double>, std::vector<std::string>>;
using WorkerConfig = std::map<std::string, WorkerValue>;  // what a worker is given for a round

// A number that follows from the round, with the parts that the plan gives; docs/operations/plan.md has the formulas.
struct Schedule {
  enum class Kind : std::uint8_t {
    kConstant,  // start
    kLinear,    // from start to end
    kCosine,    // from start to end, along half a cosine (Loshchilov and Hutter 2017, without restarts)
    kDecay,     // start, times `decay` after each `every` rounds; no further than end
  };
  std::optional<Kind> named;  // not given: see kind()
  std::optional<double> start;
  std::optional<double> end;  // linear and cosine: 0 unless it is given
  std::optional<double> decay;
  std::optional<std::uint64_t> every;   // 1 unless it is given
  std::optional<std::uint64_t> rounds;  // until `end` is reached; the run's rounds unless it is given
  std::optional<std::uint64_t> warmup;  // rounds in which it rises in equal steps to start; 0 unless it is given
  bool operator==(const Schedule&) const = default;

  // Which it is: what is named; else decay where `decay` is given, linear where `end` is, constant.
  Kind kind() const;
};
std::string_view schedule_name(Schedule::Kind kind);  // "constant", "linear", "cosine", "decay"

// The value in a round, which counts from 1, of a run of so many. `schedule` has passed check_schedules().
double value_at(const Schedule& schedule, std::uint64_t round, std::uint64_t rounds);

// The parts of a schedule by name, as a plan has them: those that are given, in a fixed order.
std::vector<std::pair<std::string_view, WorkerValue>> parts_of(const Schedule& schedule);
// Sets one. kInvalidArgument: what was expected; kNotFound: a schedule has no such part.
Status set_part(Schedule& schedule, std::string_view part, const WorkerValue& value);
const std::vector<std::string>& schedule_parts();  // their names

struct WorkerTable {
  WorkerConfig values;
  std::map<std::string, Schedule> schedules;  // of other names
  bool operator==(const WorkerTable&) const = default;
};

// What workers are given in a round, where each schedule is a plain number.
WorkerConfig config_of(const WorkerTable& table, RoundId round, std::uint64_t rounds);

// A value as an error shows it: at most some 80 characters, printable.
std::string shown(const WorkerValue& value);

// kInvalidArgument naming the key, its value and what was expected, as in "worker.rate = inf: expected a finite
// number".
Status check_worker_config(const WorkerConfig& config);
Status check_worker_table(const WorkerTable& table);
// The schedules of a table of a run of so many rounds: their parts, and that each value of theirs is finite.
Status check_schedules(const WorkerTable& table, std::uint64_t rounds);

}  // namespace fluvial::round
