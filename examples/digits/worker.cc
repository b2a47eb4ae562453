#include "examples/digits/worker.h"

#include <fmt/format.h>

#include <limits>
#include <thread>

#include "examples/digits/model.h"
#include "examples/digits/random.h"
#include "examples/digits/trainer.h"

namespace fluvial::digits {
namespace {

using local::Task;
using local::WorkerClient;

bool may_come_back(const Error& error) { return error.code == Code::kUnavailable; }

// Serves until the agent detaches the worker (true) or is gone (false).
Result<bool> serve_attached(WorkerClient& client, const Attachment& attachment, const Answer& answer) {
  for (;;) {
    Result<std::optional<Task>> task = client.next_task();
    if (!task.ok()) {
      if (!may_come_back(task.error())) return task.error();
      attachment.say(task.error().message);
      return false;
    }
    if (!task->has_value()) {
      attachment.say(fmt::format("detached: {}", client.detach_reason()));
      return true;
    }
    const Status answered = answer(client, **task);
    if (!answered.ok() && !may_come_back(answered.error())) return answered.error();
  }
}

}  // namespace

Status serve_tasks(const Attachment& attachment, const Answer& answer) {
  for (bool detached = false; !detached;) {
    FLUVIAL_ASSIGN(WorkerClient client,
                   WorkerClient::attach_with_retry(attachment.socket, attachment.options, attachment.patience));
    attachment.say(fmt::format("attached to {}", client.node()));
    FLUVIAL_ASSIGN(detached, serve_attached(client, attachment, answer));
  }
  return {};
}

Status Trainer::answer(WorkerClient& client, const Task& task) const {
  const Result<ModelSpec> spec = spec_of(task.schema, images_.inputs);
  if (!spec.ok()) return client.fail(spec.error().message);
  const Result<SgdSettings> settings = sgd_from_config(task.config);
  if (!settings.ok()) return client.fail(settings.error().message);

  const std::uint64_t round = task.round.value();
  if (faults_.sleep_round == round) std::this_thread::sleep_for(faults_.sleep);
  Model model = model_from_bytes(task.schema, task.model->bytes());
  const Score score = train(*spec, model.parameters, images_, *settings, task.local_steps, mix({seed_, round, site_}));
  for (std::int64_t& steps : model.counters) {  // a model may come with any count: wrap around rather than overflow
    steps = static_cast<std::int64_t>(static_cast<std::uint64_t>(steps) + task.local_steps);
  }
  if (faults_.nan_round == round) model.parameters.front() = std::numeric_limits<float>::quiet_NaN();

  FLUVIAL_ASSIGN(local::MemfdWriter trained, client.new_model());
  model_to_bytes(task.schema, model, trained.span());
  return client.submit(std::move(trained), images_.count(), {{"loss", score.loss}, {"accuracy", score.accuracy}});
}

Status answer_evaluation(const Examples& images, WorkerClient& client, const Task& task) {
  const Result<ModelSpec> spec = spec_of(task.schema, images.inputs);
  if (!spec.ok()) return client.fail(spec.error().message);
  const Model model = model_from_bytes(task.schema, task.model->bytes());
  const Score score = evaluate(*spec, model.parameters, images);
  return client.submit_evaluation({{"test_loss", score.loss}, {"test_accuracy", score.accuracy}});
}

}  // namespace fluvial::digits
