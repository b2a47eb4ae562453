#include "coordinator/service/evaluator.h"

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <utility>

namespace fluvial::coordinator {

Status Evaluator::open(const std::string& socket) {
  local::WorkerServerOptions options;
  options.socket = socket;
  options.node = "coordinator";
  options.workers_max = 8;
  options.only = local::TaskKind::kEvaluate;
  options.others_belong = "workers train at the worker socket of a site's agent (fluvial edge)";
  FLUVIAL_ASSIGN(server_, local::WorkerServer::listen(options, runtime_.strand, shared_from_this()));
  return {};
}

void Evaluator::close() {
  if (server_) server_->close("the coordinator is stopping");
}

void Evaluator::committed(const round::ModelRef& ref, SharedBytes model, std::shared_ptr<const round::Schema> schema,
                          const round::Plan& plan) {
  newest_ = Waiting{ref, std::move(model), std::move(schema), plan.name,
                    round::config_of(plan.worker, RoundId(ref.version.value()), plan.rounds)};
  freed();  // the one before, of another run perhaps, is no longer the next
}

void Evaluator::run_active(local::ActiveRun active) {
  if (server_) server_->run_active(std::move(active));
}

void Evaluator::run_ended(local::EndedRun ended) {
  ended_.push_back(std::move(ended));
  tell_ended();
}

// A worker that hears it first would leave before it is given the last model.
void Evaluator::tell_ended() {
  if (!server_) return;
  std::erase_if(ended_, [this](const local::EndedRun& ended) {
    if (awaits(ended.run) || (newest_ && newest_->ref.run == ended.run)) return false;  // for whoever attaches
    server_->run_ended(ended);
    return true;
  });
}

bool Evaluator::awaits(RunId run) const {
  const bool is_next = newest_ && newest_->ref.run == run && !workers_.empty();
  const auto has_it = [&](const auto& entry) { return entry.second && entry.second->run == run; };
  return is_next || std::ranges::any_of(workers_, has_it);
}

void Evaluator::freed() {
  assign_next();
  less_();
  tell_ended();
}

void Evaluator::assign_next() {
  if (!newest_) return;
  for (auto& [worker, busy_with] : workers_) {
    if (busy_with) continue;
    busy_with = newest_->ref;
    tasks_.spawn(runtime_.strand, "evaluate", assign(worker, *std::exchange(newest_, std::nullopt)));
    return;
  }
}

net::Awaitable<void> Evaluator::assign(local::WorkerId worker, Waiting what) {
  const auto self = shared_from_this();
  Result<std::shared_ptr<const local::SharedModel>> shared =
      co_await runtime_.pool.run([&] { return local::SharedModel::copy_of(what.model.bytes); });
  if (!shared.ok()) {
    runtime_.log.error(
        "no memory to evaluate a model; it is left out",
        {{"run", what.ref.run}, {"model_version", what.ref.version}, {"reason", shared.error().to_string()}});
    if (const auto found = workers_.find(worker); found != workers_.end()) found->second.reset();
    freed();
    co_return;
  }
  local::Task task;
  task.id = local::TaskId(++last_task_);
  task.kind = local::TaskKind::kEvaluate;
  task.run = what.ref.run;
  task.run_name = what.run_name;
  task.config = std::move(what.config);
  task.round = RoundId(what.ref.version.value());
  task.version = what.ref.version;
  task.schema = *what.schema;
  task.model = std::move(*shared);
  if (server_) server_->assign(worker, std::move(task));
}

void Evaluator::worker_attached(local::WorkerId worker, const local::WorkerInfo& info) {
  runtime_.log.info("evaluator attached", {{"worker", info.name}, {"worker_pid", info.pid}});
  workers_.emplace(worker, std::nullopt);
  assign_next();
}

void Evaluator::worker_detached(local::WorkerId worker, const std::string& reason) {
  if (workers_.erase(worker) > 0) runtime_.log.info("evaluator detached", {{"reason", reason}});
  freed();
}

void Evaluator::task_done(local::WorkerId worker, local::TaskResult result) {
  const auto found = workers_.find(worker);
  if (found == workers_.end() || !found->second) return;
  const round::ModelRef ref = *std::exchange(found->second, std::nullopt);
  done_(ref.run, RoundId(ref.version.value()), result.metrics);
  freed();
}

void Evaluator::task_failed(local::WorkerId worker, local::TaskId, const Error& error) {
  runtime_.log.warn("evaluation failed; the next model is given out", {{"reason", error.to_string()}});
  const auto found = workers_.find(worker);
  if (found != workers_.end()) found->second.reset();
  freed();
}

void Evaluator::connection_refused(const std::string& reason) {
  runtime_.log.warn("worker connection refused; it may try again", {{"reason", reason}});
}

}  // namespace fluvial::coordinator
