// What an agent asks of a worker, and what comes back.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "core/base/ids.h"
#include "core/local/shared_model.h"
#include "core/round/schema.h"

namespace fluvial::local {

using WorkerId = Id<struct WorkerTag>;  // one attachment of a worker: 1, 2, ... within an agent's life, never reused
using TaskId = Id<struct TaskTag>;      // chosen by the agent, unique within its life

enum class TaskKind { kTrain = 1, kEvaluate = 2 };
std::string_view task_kind_name(TaskKind kind);  // "train", "evaluate"

using Metrics = std::map<std::string, double>;  // such as loss, accuracy; values may be NaN or infinite

// Bounds of the protocol (docs/formats/local.md).
inline constexpr std::uint32_t kLocalProtocol = 1;
inline constexpr std::size_t kMessageBytesMax = 4 << 20;         // from the agent: a schema may be long
inline constexpr std::size_t kWorkerMessageBytesMax = 64 << 10;  // from a worker
inline constexpr std::size_t kMetricsMax = 64;
inline constexpr std::size_t kNameBytesMax = 64;  // of workers and metrics: printable ASCII without blanks
inline constexpr std::size_t kReasonBytesMax = 1024;

// A run of which no more rounds will come.
struct EndedRun {
  RunId run;
  std::string name;   // as its plan gives it
  std::string state;  // "done", "stopped"
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
  std::map<std::string, double> parameters;  // the plan's [worker] table
};

struct TaskResult {
  TaskId id;
  TaskKind kind = TaskKind::kTrain;
  std::uint64_t weight = 0;  // at least 1 for a trained model, 0 for an evaluation
  Metrics metrics;
  std::shared_ptr<const SharedModel> model;  // the trained model, laid out as the task's; none for an evaluation
};

}  // namespace fluvial::local
