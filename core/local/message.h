// The protocol's messages: made, taken apart and checked here alone. Not for callers of this room.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/local/task.h"
#include "fluvial/v1/local.pb.h"

namespace fluvial::local {

// A peer's text, fit for a log line: printable UTF-8, at most `bytes_max` of it.
std::string printable(std::string_view text, std::size_t bytes_max = kReasonBytesMax);
Status check_name(std::string_view what, std::string_view name);  // 1 to 64 printable ASCII characters, no blanks
Status check_metrics(const Metrics& metrics);                     // count and names

// kInvalidArgument when it would be longer than the protocol allows.
Result<std::string> encode(const v1::LocalMessage& message, std::size_t bytes_max);
Result<v1::LocalMessage> decode(std::string_view body);

v1::LocalMessage attach_message(const WorkerOptions& options);
v1::LocalMessage attached_message(std::string_view node, const std::vector<DeviceUuid>& devices = {},
                                  const std::vector<EndedRun>& ended = {}, const std::vector<ActiveRun>& active = {});
v1::LocalMessage refused_message(const Error& error);
v1::LocalMessage task_message(const Task& task);
// `device`: where the averaged values are, if a device has them and no message has said so yet.
v1::LocalMessage ready_message(const TaskReady& ready, const std::optional<DeviceLocation>& device = {});
v1::LocalMessage done_message(const TaskResult& result, const std::optional<DeviceLocation>& device = {});
// Before done_message(), when `ranges` are not all of the model. Each fits into a worker's message.
std::vector<v1::LocalMessage> ranges_messages(TaskId id, const round::ByteRanges& ranges);
v1::LocalMessage failed_message(TaskId id, std::string_view message);
v1::LocalMessage detach_message(std::string_view reason, bool replaced = false);
v1::LocalMessage run_ended_message(const EndedRun& ended);
v1::LocalMessage run_active_message(const ActiveRun& active);
v1::LocalMessage committed_message(const CommittedModel& committed);
v1::LocalMessage update_refused_message(const RefusedUpdate& refused);

// kInvalidArgument: impossible names or ranks, more than kEndedRunsMax runs, or an unknown protocol.
Result<WorkerOptions> worker_from(const v1::Attach& attach);
// kInvalidArgument: a UUID or handle of another length, a first byte that is no multiple of 16.
Result<DeviceLocation> device_from(const v1::DeviceMemory& device);
Result<std::vector<DeviceUuid>> devices_from(const v1::Attached& attached);  // kInvalidArgument: a UUID's length
// Each within the model, none twice, at most kEarlyRangesMax that do not touch: added to `to`.
Status add_ranges(const google::protobuf::RepeatedPtrField<v1::Range>& ranges, const round::Schema& schema,
                  round::ByteRanges& to);
// The next ones of a result, behind those in `to`: within the model, at most kRangesMax that do not touch. Costs no
// more than the message is long.
Status append_ranges(const v1::TaskRanges& ranges, const round::Schema& schema, round::ByteRanges& to);
Metrics metrics_from(const v1::TaskDone& done);
// Without the model. kInvalidArgument: an unknown kind, an invalid schema, sizes that contradict each other.
Result<Task> task_from(const v1::Task& message);
CommittedModel committed_from(const v1::Committed& message);  // without the model
EndedRun ended_from(const v1::RunEnded& message);
RefusedUpdate refused_from(const v1::UpdateRefused& message);

}  // namespace fluvial::local
