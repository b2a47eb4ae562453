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
  std::chrono::milliseconds patience{60'000};  // for an agent that is not there, at first and after each loss
  std::function<void(const std::string&)> say = [](const std::string&) {};  // a line for the worker's log
};

// Answers one task: with submit(), submit_evaluation() or fail().
using Answer = std::function<Status(local::WorkerClient& client, const local::Task& task)>;

// Answers tasks until the agent detaches us. An agent that goes away without a word may come back: then we attach
// again. An error: it stayed away for longer than `patience`, or refused us.
Status serve_tasks(const Attachment& attachment, const Answer& answer);

// What a test may ask of a worker to go wrong, in one round.
struct Faults {
  std::optional<std::uint64_t> sleep_round;
  std::chrono::milliseconds sleep{0};
  std::optional<std::uint64_t> nan_round;  // the model handed in holds a NaN
};

// Trains for the task's local steps with the plan's [worker] table. The result is a function of the task, the images,
// `seed` and `site` alone. A task that does not fit is answered with fail(), and the worker goes on.
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
