// An agent's tasks for a worker, and the results.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/ids.h"
#include "core/local/device_memory.h"
#include "core/local/shared_model.h"
#include "core/round/byte_ranges.h"
#include "core/round/schema.h"
#include "core/round/worker_config.h"

namespace fluvial::local {

using WorkerId = Id<struct WorkerTag>;  // one attachment of a worker: 1, 2, ... within an agent's life, never reused
using TaskId = Id<struct TaskTag>;      // chosen by the agent, unique within its life

enum class TaskKind { kTrain = 1, kEvaluate = 2 };
std::string_view task_kind_name(TaskKind kind);  // "train", "evaluate"

using Metrics = std::map<std::string, double>;  // such as loss, accuracy; values may be NaN or infinite

// Bounds of the protocol (docs/formats/local.md).
inline constexpr std::uint32_t kLocalProtocol = 2;
inline constexpr std::size_t kMessageBytesMax = 32 << 20;        // from the agent: a schema may be long
inline constexpr std::size_t kWorkerMessageBytesMax = 64 << 10;  // from a worker
inline constexpr std::size_t kMetricsMax = 64;
inline constexpr std::size_t kNameBytesMax = 64;  // of workers and metrics: printable ASCII without blanks
inline constexpr std::size_t kReasonBytesMax = 1024;
inline constexpr std::size_t kEndedRunsMax = 16;  // that a worker is told of when it attaches, or asks about
inline constexpr std::uint32_t kRanksMax = 64;    // of a group
inline constexpr std::size_t kRangesMax = std::size_t{1} << 20;  // of a result, that do not touch
inline constexpr std::size_t kEarlyRangesMax = 2'048;            // of what is in place early, that do not touch

// A rank's place in a sharded trainer, whose ranks together are one worker.
struct Group {
  std::string name;
  std::uint32_t rank = 0;   // 0 to ranks - 1
  std::uint32_t ranks = 1;  // 1 to kRanksMax
  bool operator==(const Group&) const = default;
};

// A worker's description of itself when it attaches.
struct WorkerOptions {
  std::string name;                  // for the agent's logs, and for Task.previous
  TaskKind kind = TaskKind::kTrain;  // what it does
  std::optional<Group> group = {};
  bool wants_models = false;        // tell it of committed models
  bool takes_kept_models = false;   // models in memory that is kept (model_memory.h); WorkerClient always takes them
  bool hears_refusals = false;      // tell it of updates that are refused; WorkerClient always hears of them
  std::vector<RunId> follows = {};  // runs whose end it has waited for since before it attached; kEndedRunsMax at most
  bool named = false;               // the name was chosen: the worker of that name before, of another process, is over
};

// What became of a worker's result.
enum class ResultOutcome { kUnknown, kPending, kCounted, kLate, kRefused, kUnused };
struct Previous {
  RoundId round;
  ResultOutcome outcome = ResultOutcome::kUnknown;
  bool operator==(const Previous&) const = default;
};

// A run that goes on: its workers wait for its end, whether it asks them or not.
struct ActiveRun {
  RunId run;
  std::string name;
};

// A run of which no more rounds will come.
struct EndedRun {
  RunId run;
  std::string name;   // as its plan gives it; empty: an agent that was restarted does not know it
  std::string state;  // "done", "stopped"
};

// What a site's workers gave in that round counts nowhere.
struct RefusedUpdate {
  RunId run;
  RoundId round;
  std::string reason;
  std::uint64_t weight_max = 0;  // the reason is that the workers' weights are more than this together; 0: it is not
};

// A round of a run was committed: its model.
struct CommittedModel {
  RunId run;
  std::string run_name;
  RoundId round;
  ModelVersion version;
  std::shared_ptr<const SharedModel> model;
};

struct Task {
  TaskId id;
  TaskKind kind = TaskKind::kTrain;
  RunId run;
  std::string run_name;  // as the plan gives it
  RoundId round;         // to train in; for an evaluation, the round that committed the model
  ModelVersion version;  // of the model
  round::Schema schema;
  std::shared_ptr<const SharedModel> model;  // schema.model_bytes() bytes
  std::uint64_t local_steps = 1;
  std::string optimizer;             // the plan's, by name; empty for an evaluation
  round::WorkerConfig config;        // the plan's [worker] table; of a schedule, the number of this round
  std::optional<Previous> previous;  // of the worker it is given to
  std::uint64_t weight_max = 0;      // of all the site's workers together; 0: not told, as for an evaluation
};

// The part of a result that is in place already while the worker goes on.
struct TaskReady {
  TaskId id;
  std::uint64_t weight = 1;
  bool update = false;                       // as in TaskResult
  round::ByteRanges ranges;                  // those that this message adds
  std::shared_ptr<const SharedModel> model;  // as in TaskResult; the same for all of a task
  std::shared_ptr<const DeviceMemory> device = {};
};

struct TaskResult {
  TaskId id;
  TaskKind kind = TaskKind::kTrain;
  std::uint64_t weight = 0;  // at least 1 for a trained model, 0 for an evaluation
  Metrics metrics;
  bool update = false;       // averaged values are the update instead of the trained model
  round::ByteRanges ranges;  // of a training task: the part that it brings; without a group all of it
  // Laid out as the task's model. With `device` only its integer tensors count; null if the schema has none, and for
  // an evaluation.
  std::shared_ptr<const SharedModel> model;
  std::shared_ptr<const DeviceMemory> device = {};  // the averaged values, if they are in a GPU's memory
};

}  // namespace fluvial::local
