#include "core/local/message.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/printable.h"
#include "core/wire/mapping.h"
#include "core/wire/silence.h"

namespace fluvial::local {
namespace {

using Ranges = google::protobuf::RepeatedPtrField<v1::Range>;

constexpr std::size_t kRangesPerMessage = 3'000;  // of two varints of at most 10 bytes each: below 64 KiB

Error too_many_ranges(std::size_t most) {
  return {Code::kInvalidArgument, fmt::format("more than {} ranges that do not touch", most)};
}

void put_ranges(const round::ByteRanges& ranges, Ranges* out) {
  for (const round::ByteRange& range : ranges.ranges()) {
    v1::Range& added = *out->Add();
    added.set_first_byte(range.first_byte);
    added.set_bytes(range.bytes);
  }
}

v1::Previous::Outcome outcome_to_proto(ResultOutcome outcome) {
  switch (outcome) {
    case ResultOutcome::kUnknown: return v1::Previous::OUTCOME_UNKNOWN;
    case ResultOutcome::kPending: return v1::Previous::OUTCOME_PENDING;
    case ResultOutcome::kCounted: return v1::Previous::OUTCOME_COUNTED;
    case ResultOutcome::kLate: return v1::Previous::OUTCOME_LATE;
    case ResultOutcome::kRefused: return v1::Previous::OUTCOME_REFUSED;
    case ResultOutcome::kUnused: return v1::Previous::OUTCOME_UNUSED;
  }
  return v1::Previous::OUTCOME_UNKNOWN;
}

ResultOutcome outcome_from_proto(v1::Previous::Outcome outcome) {
  switch (outcome) {
    case v1::Previous::OUTCOME_PENDING: return ResultOutcome::kPending;
    case v1::Previous::OUTCOME_COUNTED: return ResultOutcome::kCounted;
    case v1::Previous::OUTCOME_LATE: return ResultOutcome::kLate;
    case v1::Previous::OUTCOME_REFUSED: return ResultOutcome::kRefused;
    case v1::Previous::OUTCOME_UNUSED: return ResultOutcome::kUnused;
    default: return ResultOutcome::kUnknown;
  }
}

void put_device(const DeviceLocation& device, v1::DeviceMemory* out) {
  out->set_device(std::string(as_text(device.device)));
  out->set_handle(std::string(as_text(device.handle)));
  out->set_first_byte(device.first_byte);
}

template <std::size_t kBytes>
Status copy_exactly(std::string_view what, std::string_view from, std::array<std::byte, kBytes>& to) {
  if (from.size() != kBytes) {
    return Error{Code::kInvalidArgument, fmt::format("{} of {} bytes; expected {}", what, from.size(), kBytes)};
  }
  std::ranges::copy(as_byte_span(from), to.begin());
  return {};
}

bool is_printable(char c) { return c > ' ' && c <= '~'; }

void put_ended(const EndedRun& ended, v1::RunEnded* out) {
  out->set_run(ended.run.value());
  out->set_run_name(printable(ended.name));
  out->set_state(printable(ended.state));
}

void put_active(const ActiveRun& active, v1::RunActive* out) {
  out->set_run(active.run.value());
  out->set_run_name(printable(active.name));
}

}  // namespace

std::string_view task_kind_name(TaskKind kind) { return kind == TaskKind::kTrain ? "train" : "evaluate"; }

std::string printable(std::string_view text, std::size_t bytes_max) { return fluvial::printable(text, bytes_max); }

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
  wire::silence_protobuf();
  v1::LocalMessage message;
  if (!message.ParseFromArray(body.data(), static_cast<int>(body.size()))) {
    return Error{Code::kInvalidArgument, "bytes that are no message of the local protocol"};
  }
  return message;
}

v1::LocalMessage attach_message(const WorkerOptions& options) {
  v1::LocalMessage message;
  v1::Attach& attach = *message.mutable_attach();
  attach.set_protocol(kLocalProtocol);
  attach.set_worker(options.name);
  attach.set_evaluates(options.kind == TaskKind::kEvaluate);
  attach.set_wants_models(options.wants_models);
  attach.set_takes_kept_models(options.takes_kept_models);
  attach.set_hears_refusals(options.hears_refusals);
  attach.set_named(options.named);
  for (const RunId run : options.follows) attach.add_follows(run.value());
  if (options.group) {
    attach.set_group(options.group->name);
    attach.set_rank(options.group->rank);
    attach.set_ranks(options.group->ranks);
  }
  return message;
}

v1::LocalMessage attached_message(std::string_view node, const std::vector<DeviceUuid>& devices,
                                  const std::vector<EndedRun>& ended, const std::vector<ActiveRun>& active) {
  v1::LocalMessage message;
  message.mutable_attached()->set_node(std::string(node));
  for (const DeviceUuid& device : devices) message.mutable_attached()->add_devices(std::string(as_text(device)));
  for (const EndedRun& run : ended) put_ended(run, message.mutable_attached()->add_ended());
  for (const ActiveRun& run : active) put_active(run, message.mutable_attached()->add_active());
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
  out.set_optimizer(printable(task.optimizer));
  out.set_weight_max(task.weight_max);
  wire::config_to_proto(task.config, out.mutable_parameters(), out.mutable_values());
  if (task.previous) {
    out.mutable_previous()->set_round(task.previous->round.value());
    out.mutable_previous()->set_outcome(outcome_to_proto(task.previous->outcome));
  }
  return message;
}

v1::LocalMessage ready_message(const TaskReady& ready, const std::optional<DeviceLocation>& device) {
  v1::LocalMessage message;
  v1::TaskReady& out = *message.mutable_task_ready();
  out.set_id(ready.id.value());
  out.set_weight(ready.weight);
  out.set_update(ready.update);
  put_ranges(ready.ranges, out.mutable_ranges());
  if (device) put_device(*device, out.mutable_device());
  return message;
}

v1::LocalMessage done_message(const TaskResult& result, const std::optional<DeviceLocation>& device) {
  v1::LocalMessage message;
  v1::TaskDone& done = *message.mutable_task_done();
  done.set_id(result.id.value());
  done.set_weight(result.weight);
  done.set_update(result.update);
  if (device) put_device(*device, done.mutable_device());
  done.mutable_metrics()->insert(result.metrics.begin(), result.metrics.end());
  return message;
}

std::vector<v1::LocalMessage> ranges_messages(TaskId id, const round::ByteRanges& ranges) {
  std::vector<v1::LocalMessage> messages;
  std::uint64_t end = 0;
  for (std::size_t i = 0; i < ranges.ranges().size(); ++i) {
    if (i % kRangesPerMessage == 0) messages.emplace_back().mutable_task_ranges()->set_id(id.value());
    const round::ByteRange& range = ranges.ranges()[i];
    messages.back().mutable_task_ranges()->add_numbers(range.first_byte - end);
    messages.back().mutable_task_ranges()->add_numbers(range.bytes);
    end = range.end();
  }
  return messages;
}

v1::LocalMessage failed_message(TaskId id, std::string_view text) {
  v1::LocalMessage message;
  message.mutable_task_failed()->set_id(id.value());
  message.mutable_task_failed()->set_message(printable(text));
  return message;
}

v1::LocalMessage detach_message(std::string_view reason, bool replaced) {
  v1::LocalMessage message;
  message.mutable_detach()->set_reason(printable(reason));
  message.mutable_detach()->set_replaced(replaced);
  return message;
}

v1::LocalMessage run_ended_message(const EndedRun& ended) {
  v1::LocalMessage message;
  put_ended(ended, message.mutable_run_ended());
  return message;
}

v1::LocalMessage run_active_message(const ActiveRun& active) {
  v1::LocalMessage message;
  put_active(active, message.mutable_run_active());
  return message;
}

v1::LocalMessage committed_message(const CommittedModel& committed) {
  v1::LocalMessage message;
  v1::Committed& out = *message.mutable_committed();
  out.set_run(committed.run.value());
  out.set_run_name(printable(committed.run_name));
  out.set_round(committed.round.value());
  out.set_version(committed.version.value());
  out.set_model_bytes(committed.model->bytes().size());
  return message;
}

v1::LocalMessage update_refused_message(const RefusedUpdate& refused) {
  v1::LocalMessage message;
  v1::UpdateRefused& out = *message.mutable_update_refused();
  out.set_run(refused.run.value());
  out.set_round(refused.round.value());
  out.set_reason(printable(refused.reason));
  out.set_weight_max(refused.weight_max);
  return message;
}

Result<WorkerOptions> worker_from(const v1::Attach& attach) {
  if (attach.protocol() != kLocalProtocol) {
    return Error{
        Code::kFailedPrecondition,
        fmt::format("speaks local protocol {}; this agent speaks {}: update {} first", attach.protocol(),
                    kLocalProtocol, attach.protocol() > kLocalProtocol ? "the agent" : "the worker's package")};
  }
  FLUVIAL_TRY(check_name("worker", attach.worker()));
  WorkerOptions worker{.name = attach.worker(),
                       .kind = attach.evaluates() ? TaskKind::kEvaluate : TaskKind::kTrain,
                       .wants_models = attach.wants_models(),
                       .takes_kept_models = attach.takes_kept_models(),
                       .hears_refusals = attach.hears_refusals(),
                       .named = attach.named()};
  if (static_cast<std::size_t>(attach.follows_size()) > kEndedRunsMax) {
    return Error{Code::kInvalidArgument,
                 fmt::format("waits for the end of {} runs; at most {}", attach.follows_size(), kEndedRunsMax)};
  }
  for (const std::uint64_t run : attach.follows()) worker.follows.emplace_back(run);
  if (attach.group().empty() && attach.rank() == 0 && attach.ranks() == 0) return worker;
  FLUVIAL_TRY(check_name("group", attach.group()));
  if (attach.evaluates()) return Error{Code::kInvalidArgument, "a worker that evaluates is in no group"};
  if (attach.ranks() == 0 || attach.ranks() > kRanksMax || attach.rank() >= attach.ranks()) {
    return Error{Code::kInvalidArgument,
                 fmt::format("rank {} of {} in group {}; expected 0 to {} of at most {}", attach.rank(), attach.ranks(),
                             attach.group(), kRanksMax - 1, kRanksMax)};
  }
  worker.group = Group{attach.group(), attach.rank(), attach.ranks()};
  return worker;
}

Result<DeviceLocation> device_from(const v1::DeviceMemory& device) {
  DeviceLocation location{.first_byte = device.first_byte()};
  FLUVIAL_TRY(copy_exactly("a device's UUID", device.device(), location.device));
  FLUVIAL_TRY(copy_exactly("a handle of device memory", device.handle(), location.handle));
  if (location.first_byte % kDeviceAlignment != 0) {
    return Error{Code::kInvalidArgument, fmt::format("device memory from byte {} on; expected a multiple of {}",
                                                     location.first_byte, kDeviceAlignment)};
  }
  return location;
}

Result<std::vector<DeviceUuid>> devices_from(const v1::Attached& attached) {
  std::vector<DeviceUuid> devices(static_cast<std::size_t>(attached.devices_size()));
  for (int i = 0; i < attached.devices_size(); ++i) {
    FLUVIAL_TRY(copy_exactly("a device's UUID", attached.devices(i), devices[static_cast<std::size_t>(i)]));
  }
  return devices;
}

Status add_ranges(const Ranges& ranges, const round::Schema& schema, round::ByteRanges& to) {
  for (const v1::Range& range : ranges) {
    const round::ByteRange added{range.first_byte(), range.bytes()};
    FLUVIAL_TRY(round::check_range(schema, added));
    FLUVIAL_TRY(to.add(added));
    if (to.ranges().size() > kEarlyRangesMax) return too_many_ranges(kEarlyRangesMax);
  }
  return {};
}

Status append_ranges(const v1::TaskRanges& ranges, const round::Schema& schema, round::ByteRanges& to) {
  if (ranges.numbers_size() % 2 != 0) return Error{Code::kInvalidArgument, "half of a range"};
  for (int i = 0; i < ranges.numbers_size(); i += 2) {
    const std::uint64_t end = to.empty() ? 0 : to.ranges().back().end();
    if (ranges.numbers(i) > schema.model_bytes() - end) {
      return Error{Code::kInvalidArgument, fmt::format("a range that begins {} bytes behind byte {}, beyond the model",
                                                       ranges.numbers(i), end)};
    }
    const round::ByteRange added{end + ranges.numbers(i), ranges.numbers(i + 1)};
    FLUVIAL_TRY(round::check_range(schema, added));
    FLUVIAL_TRY(to.add(added));
    if (to.ranges().size() > kRangesMax) return too_many_ranges(kRangesMax);
  }
  return {};
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
            .local_steps = message.local_steps(),
            .optimizer = printable(message.optimizer()),
            .weight_max = message.weight_max()};
  FLUVIAL_ASSIGN(task.config, wire::config_from_proto(message.parameters(), message.values()));
  if (message.has_previous()) {
    task.previous = Previous{RoundId(message.previous().round()), outcome_from_proto(message.previous().outcome())};
  }
  return task;
}

CommittedModel committed_from(const v1::Committed& message) {
  return {.run = RunId(message.run()),
          .run_name = printable(message.run_name()),
          .round = RoundId(message.round()),
          .version = ModelVersion(message.version()),
          .model = {}};
}

EndedRun ended_from(const v1::RunEnded& message) {
  return {RunId(message.run()), printable(message.run_name()), printable(message.state())};
}

RefusedUpdate refused_from(const v1::UpdateRefused& message) {
  return {RunId(message.run()), RoundId(message.round()), printable(message.reason()), message.weight_max()};
}

}  // namespace fluvial::local
