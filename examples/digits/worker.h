// The digits' two workers: one trains on a site's images, one tests a model on the held-out ones.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "core/base/result.h"
#include "core/local/worker_client.h"
#include "examples/digits/examples.h"

namespace fluvial::digits {

struct Attachment {
  std::filesystem::path socket;
  local::WorkerOptions options;
  std::chrono::milliseconds patience{60'000};  // how long to wait for an absent agent, at first and after each loss
  std::function<void(const std::string&)> say = [](const std::string&) {};  // a line for the worker's log
};

// Answers one task: with submit(), submit_evaluation() or fail().
using Answer = std::function<Status(local::WorkerClient& client, const local::Task& task)>;

// Answers tasks until the agent detaches the worker. If the agent ends without detaching, the worker waits for it and
// attaches again. An error: the agent stayed away for longer than `patience`, or refused the worker.
Status serve_tasks(const Attachment& attachment, const Answer& answer);

// Faults that a test may ask of a worker, each in one round.
struct Faults {
  std::optional<std::uint64_t> sleep_round;
  std::chrono::milliseconds sleep{0};
  std::optional<std::uint64_t> nan_round;  // the model handed in holds a NaN
};

// Trains for the task's local steps with the plan's [worker] table. The result depends only on the task, the images,
// `seed` and `site`. A task that does not fit is answered with fail(), and the worker goes on.
class Trainer {
 public:
  Trainer(Examples images, std::uint64_t seed, std::uint64_t site, Faults faults = {})
      : images_(std::move(images)), seed_(seed), site_(site), faults_(faults) {}

  Status answer(local::WorkerClient& client, const local::Task& task) const;

 private:
  Examples images_;
  std::uint64_t seed_;
  std::uint64_t site_;
  Faults faults_;
};

// Answers test_loss and test_accuracy on `images`.
Status answer_evaluation(const Examples& images, local::WorkerClient& client, const local::Task& task);

}  // namespace fluvial::digits
