#include "core/local/message.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/wire/mapping.h"

namespace fluvial::local {
namespace {

bool is_printable(char c) { return c > ' ' && c <= '~'; }

}  // namespace

std::string_view task_kind_name(TaskKind kind) { return kind == TaskKind::kTrain ? "train" : "evaluate"; }

std::string printable(std::string_view text, std::size_t bytes_max) {
  std::string clean(text.substr(0, bytes_max));
  std::replace_if(clean.begin(), clean.end(), [](char c) { return c != ' ' && !is_printable(c); }, '?');
  return clean;
}

Status check_name(std::string_view what, std::string_view name) {
  if (name.empty() || name.size() > kNameBytesMax || !std::all_of(name.begin(), name.end(), is_printable)) {
    return Error{Code::kInvalidArgument, fmt::format("{} \"{}\": expected 1 to {} printable ASCII characters", what,
                                                     printable(name, kNameBytesMax), kNameBytesMax)};
  }
  return {};
}

Status check_metrics(const Metrics& metrics) {
  if (metrics.size() > kMetricsMax) {
    return Error{Code::kInvalidArgument, fmt::format("{} metrics; at most {}", metrics.size(), kMetricsMax)};
  }
  for (const auto& metric : metrics) FLUVIAL_TRY(check_name("metric", metric.first));
  return {};
}

Result<std::string> encode(const v1::LocalMessage& message, std::size_t bytes_max) {
  if (message.ByteSizeLong() > bytes_max) {
    return Error{Code::kInvalidArgument, fmt::format("a message of {} bytes; at most {}: a schema or text too long",
                                                     message.ByteSizeLong(), bytes_max)};
  }
  return message.SerializeAsString();
}

Result<v1::LocalMessage> decode(std::string_view body) {
  v1::LocalMessage message;
  if (!message.ParseFromArray(body.data(), static_cast<int>(body.size()))) {
    return Error{Code::kInvalidArgument, "bytes that are no message of the local protocol"};
  }
  return message;
}

v1::LocalMessage attach_message(std::string_view worker, TaskKind kind) {
  v1::LocalMessage message;
  v1::Attach& attach = *message.mutable_attach();
  attach.set_protocol(kLocalProtocol);
  attach.set_worker(std::string(worker));
  attach.set_evaluates(kind == TaskKind::kEvaluate);
  return message;
}

v1::LocalMessage attached_message(std::string_view node) {
  v1::LocalMessage message;
  message.mutable_attached()->set_node(std::string(node));
  return message;
}

v1::LocalMessage refused_message(const Error& error) {
  v1::LocalMessage message;
  message.mutable_attached()->set_code(wire::code_to_proto(error.code));
  message.mutable_attached()->set_message(printable(error.message));
  return message;
}

v1::LocalMessage task_message(const Task& task) {
  v1::LocalMessage message;
  v1::Task& out = *message.mutable_task();
  out.set_id(task.id.value());
  out.set_kind(task.kind == TaskKind::kTrain ? v1::Task::KIND_TRAIN : v1::Task::KIND_EVALUATE);
  out.set_run(task.run.value());
  out.set_run_name(printable(task.run_name));
  out.set_round(task.round.value());
  out.set_version(task.version.value());
  *out.mutable_schema() = wire::to_proto(task.schema);
  out.set_model_bytes(task.schema.model_bytes());
  out.set_local_steps(task.local_steps);
  out.mutable_parameters()->insert(task.parameters.begin(), task.parameters.end());
  return message;
}

v1::LocalMessage done_message(TaskId id, std::uint64_t weight, const Metrics& metrics) {
  v1::LocalMessage message;
  v1::TaskDone& done = *message.mutable_task_done();
  done.set_id(id.value());
  done.set_weight(weight);
  done.mutable_metrics()->insert(metrics.begin(), metrics.end());
  return message;
}

v1::LocalMessage failed_message(TaskId id, std::string_view text) {
  v1::LocalMessage message;
  message.mutable_task_failed()->set_id(id.value());
  message.mutable_task_failed()->set_message(printable(text));
  return message;
}

v1::LocalMessage detach_message(std::string_view reason) {
  v1::LocalMessage message;
  message.mutable_detach()->set_reason(printable(reason));
  return message;
}

v1::LocalMessage run_ended_message(const EndedRun& ended) {
  v1::LocalMessage message;
  v1::RunEnded& out = *message.mutable_run_ended();
  out.set_run(ended.run.value());
  out.set_run_name(printable(ended.name));
  out.set_state(printable(ended.state));
  return message;
}

Metrics metrics_from(const v1::TaskDone& done) { return {done.metrics().begin(), done.metrics().end()}; }

Result<Task> task_from(const v1::Task& message) {
  if (message.kind() != v1::Task::KIND_TRAIN && message.kind() != v1::Task::KIND_EVALUATE) {
    return Error{Code::kInvalidArgument, "a task that is neither to train nor to evaluate"};
  }
  FLUVIAL_ASSIGN(round::Schema schema, wire::from_proto(message.schema()));
  if (schema.model_bytes() != message.model_bytes()) {
    return Error{Code::kInvalidArgument,
                 fmt::format("a model of {} bytes with a schema of {}", message.model_bytes(), schema.model_bytes())};
  }
  Task task{.id = TaskId(message.id()),
            .kind = message.kind() == v1::Task::KIND_TRAIN ? TaskKind::kTrain : TaskKind::kEvaluate,
            .run = RunId(message.run()),
            .run_name = printable(message.run_name()),
            .round = RoundId(message.round()),
            .version = ModelVersion(message.version()),
            .schema = std::move(schema),
            .local_steps = message.local_steps()};
  task.parameters.insert(message.parameters().begin(), message.parameters().end());
  return task;
}

}  // namespace fluvial::local
