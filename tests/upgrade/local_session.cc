#include <sys/socket.h>

#include "core/digest/sha256.h"
#include "core/local/frame.h"
#include "core/local/message.h"
#include "kernels/test_values.h"
#include "tests/upgrade/recording.h"

namespace fluvial::upgrade {
namespace {

using v1::LocalMessage;

// As the room's own writer puts it on a socket.
std::string on_the_socket(const LocalMessage& message) {
  const Result<std::string> body = local::encode(message, local::kMessageBytesMax);
  FLUVIAL_CHECK(body.ok(), "a message is within its limits");
  int ends[2];
  FLUVIAL_CHECK(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "a pair of sockets");
  const local::UniqueFd writer(ends[0]);
  const local::UniqueFd reader(ends[1]);
  const Result<bool> written = local::FrameWriter(*body).write(writer.get());
  FLUVIAL_CHECK(written.ok() && *written, "a short message is written at once");
  std::string bytes(body->size() + 64, '\0');
  const ssize_t count = ::recv(reader.get(), bytes.data(), bytes.size(), 0);
  FLUVIAL_CHECK(count > 0, "what was written comes out");
  bytes.resize(static_cast<std::size_t>(count));
  return bytes;
}

local::DeviceUuid device() {
  local::DeviceUuid uuid{};
  for (std::size_t i = 0; i < uuid.size(); ++i) uuid[i] = static_cast<std::byte>(i + 1);
  return uuid;
}

local::DeviceLocation location() {
  local::DeviceLocation location;
  location.device = device();
  for (std::size_t i = 0; i < location.handle.size(); ++i) location.handle[i] = static_cast<std::byte>(200 - i);
  location.first_byte = 256;
  return location;
}

round::ByteRanges ranges() {
  round::ByteRanges ranges;
  FLUVIAL_CHECK(ranges.add({8, 16}).ok(), "a range");
  return ranges;
}

LocalMessage task() {
  local::Task task;
  task.id = local::TaskId(7);
  task.kind = local::TaskKind::kTrain;
  task.run = RunId(3);
  task.run_name = "digits";
  task.round = RoundId(8);
  task.version = ModelVersion(7);
  task.schema = round::Schema::make({{"w", round::DType::kF32, {2, 2}}, {"steps", round::DType::kI64, {1}}}).value();
  task.local_steps = 4;
  task.optimizer = "nesterov";
  task.config = {{"lr", 0.05},
                 {"network", "small"},
                 {"nesterov", true},
                 {"widths", std::vector<double>{8, 16}},
                 {"layers", std::vector<std::string>{"conv1", "fc"}}};
  task.previous = local::Previous{RoundId(7), local::ResultOutcome::kCounted};
  task.weight_max = 1'000'000;
  return local::task_message(task);
}

LocalMessage committed() {
  LocalMessage message;
  v1::Committed& committed = *message.mutable_committed();
  committed.set_run(3);
  committed.set_run_name("digits");
  committed.set_round(8);
  committed.set_version(8);
  committed.set_model_bytes(24);
  return message;
}

}  // namespace

std::vector<LocalFrame> local_session_of_this_version() {
  std::vector<LocalFrame> frames;
  const auto add = [&frames](const char* sender, LocalMessage message) {
    frames.push_back({sender, on_the_socket(message), std::move(message)});
  };
  add("worker", local::attach_message({.name = "trainer",
                                       .group = local::Group{"shards", 1, 2},
                                       .wants_models = true,
                                       .takes_kept_models = true,
                                       .hears_refusals = true,
                                       .follows = {RunId(2)},
                                       .named = true}));
  add("worker", local::attach_message({.name = "evaluator", .kind = local::TaskKind::kEvaluate}));
  add("agent", local::refused_message({Code::kResourceExhausted, "64 workers are attached"}));
  add("agent",
      local::attached_message("hospital-a", {device()}, {{RunId(2), "letters", "stopped"}}, {{RunId(3), "digits"}}));
  add("agent", local::run_active_message({RunId(4), "words"}));
  add("agent", task());
  local::TaskReady ready;
  ready.id = local::TaskId(7);
  ready.weight = 17;
  ready.update = true;
  ready.ranges = ranges();
  add("worker", local::ready_message(ready, location()));
  local::TaskResult result;
  result.id = local::TaskId(7);
  result.weight = 17;
  result.metrics = {{"loss", 0.25}};
  result.update = true;
  for (LocalMessage& message : local::ranges_messages(result.id, ranges())) add("worker", std::move(message));
  add("worker", local::done_message(result, location()));
  add("worker", local::failed_message(local::TaskId(8), "out of memory"));
  add("agent", committed());
  add("agent", local::update_refused_message({RunId(3), RoundId(8), "tensor 'w', value 2 is nan after training"}));
  add("agent", local::update_refused_message({RunId(3), RoundId(8), "samples: a worker has 41", 40}));
  add("agent", local::run_ended_message({RunId(3), "digits", "done"}));
  add("agent", local::detach_message("another process has attached by this name", true));
  return frames;
}

std::vector<EncodedChunk> chunks_of_this_version() {
  std::vector<EncodedChunk> chunks;
  const std::vector<float> values = kernels::test_values::normals(40, 1);
  for (const char* text : {"fp32", "fp16", "bf16", "int8", "int4", "sign", "qsgd", "qsgd:encoding=elias", "terngrad",
                           "topk:ratio=0.2", "randk:ratio=0.2", "ring:max=3", "sign:mode=vote"}) {
    const auto codec = kernels::test_values::codec_of(text);
    const auto encoded = kernels::test_values::encode(*codec, values, values.size());
    const std::vector<float> decoded = kernels::test_values::decode(*codec, encoded);
    chunks.push_back({kernels::to_string(codec->spec()), values.size(), std::string(as_text(encoded.chunks[0].span())),
                      to_hex(sha256(std::as_bytes(std::span(decoded))))});
  }
  return chunks;
}

}  // namespace fluvial::upgrade
