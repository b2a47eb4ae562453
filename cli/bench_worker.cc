// fluvial bench-worker (hidden): a worker that makes up its training.
#include <memory>
#include <optional>

#include "cli/bench.h"
#include "cli/bench_update.h"
#include "core/local/worker_client.h"

namespace fluvial::cli {
namespace {

struct WorkerOptions {
  std::string socket;
  std::uint64_t site = 1;
  std::uint64_t seed = 1;
};

std::span<const float> floats_of(ByteSpan bytes) {
  return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};  // NOLINT: fp32 tensors alone
}

Status work(const WorkerOptions& options) {
  FLUVIAL_ASSIGN(local::WorkerClient client,
                 local::WorkerClient::attach_with_retry(options.socket, {.name = "bench"}, std::chrono::seconds(30)));
  std::optional<local::ResultBuffer> trained;  // one for all rounds, as the Python package has it
  for (;;) {
    FLUVIAL_ASSIGN(const std::optional<local::Task> task, client.next_task());
    if (!task) return {};
    if (!trained || trained->size_bytes() != task->model->bytes().size()) {
      FLUVIAL_ASSIGN(trained, local::ResultBuffer::create(task->model->bytes().size()));
    }
    const MutableByteSpan out = trained->span();
    apply_update({.seed = options.seed, .round = task->round.value(), .site_index = options.site},
                 floats_of(task->model->bytes()),
                 {reinterpret_cast<float*>(out.data()), out.size() / sizeof(float)});  // NOLINT: as above
    FLUVIAL_TRY(client.submit(*trained, {.weight = bench_weight(options.site)}));
  }
}

}  // namespace

void add_bench_worker_command(CLI::App& app, Commands& commands) {
  const auto options = std::make_shared<WorkerOptions>();
  CLI::App* worker = app.add_subcommand("bench-worker", "makes up training, for fluvial bench")->group("");
  worker->add_option("--socket", options->socket, "the site's worker socket")->required();
  worker->add_option("--site", options->site, "the site's number")->check(whole_number(1));
  worker->add_option("--seed", options->seed, "of the updates")->check(whole_number(0));
  worker->callback([&commands, options] {
    commands.chosen = [&commands, options] {
      const Status done = work(*options);
      return done.ok() ? kDone : fail(commands.io, "bench-worker", done.error());
    };
  });
}

}  // namespace fluvial::cli
