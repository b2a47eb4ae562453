// A worker of this room's tests, on a thread of its own.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/local/task.h"
#include "core/local/worker_client.h"
#include "core/round/schema.h"

namespace fluvial::edge {

// What a test trains: changes the values, may count steps, and says what it measured.
using TrainFunction =
    std::function<local::Metrics(const local::Task& task, std::span<float> values, std::int64_t& steps)>;

// Serves each task until the agent lets it go. Blocking.
inline Status work(const std::filesystem::path& socket, const TrainFunction& train) {
  FLUVIAL_ASSIGN(local::WorkerClient client,
                 local::WorkerClient::attach_with_retry(socket, {.name = "trainer"}, std::chrono::minutes(1)));
  for (;;) {
    FLUVIAL_ASSIGN(const std::optional<local::Task> task, client.next_task());
    if (!task) return {};
    FLUVIAL_ASSIGN(local::MemfdWriter trained, client.new_model());
    std::vector<float> values(task->schema.value_count());
    std::int64_t steps = 0;
    round::split_model(task->schema, task->model->bytes(), values, std::span(&steps, 1));
    local::Metrics metrics = train(*task, values, steps);
    FLUVIAL_TRY(round::join_model(task->schema, values, std::span(&steps, 1), trained.span()));
    FLUVIAL_TRY(client.submit(std::move(trained), 20, std::move(metrics)));
  }
}

}  // namespace fluvial::edge
