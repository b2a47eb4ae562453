#include "edge/service/local_workers.h"

#include <chrono>

namespace fluvial::edge {
namespace {

DeskOptions desk_options(const config::EdgeSettings& settings) {
  DeskOptions options;
  options.workers = static_cast<std::size_t>(settings.workers);
  options.attach_deadline = std::chrono::milliseconds(settings.worker_attach_deadline_ms);
  options.task_deadline = std::chrono::milliseconds(settings.worker_task_deadline_ms);
  return options;
}

}  // namespace

LocalWorkers::LocalWorkers(tree::Runtime& runtime, const config::EdgeSettings& settings, std::string node,
                           std::shared_ptr<SiteGpus> gpus)
    : runtime_(runtime),
      socket_(settings.worker_socket),
      node_(std::move(node)),
      gpus_(std::move(gpus)),
      desk_(runtime.strand, desk_options(settings), runtime.log) {}

Status LocalWorkers::open(Events events) {
  // The desk outlives every call: the server is told to close before the process' threads end.
  const std::shared_ptr<local::WorkerHandler> handler(std::shared_ptr<void>(), &desk_);
  FLUVIAL_ASSIGN(server_,
                 local::WorkerServer::listen(server_options(std::move(events.unreadable)), runtime_.strand, handler));
  TrainerDesk::Calls calls;
  calls.assign = [this](local::WorkerId worker, local::Task task) { server_->assign(worker, std::move(task)); };
  calls.committed = [this](local::WorkerId worker, local::CommittedModel model) {
    server_->committed(worker, std::move(model));
  };
  calls.followed = std::move(events.followed);
  calls.workers_changed = std::move(events.workers_changed);
  calls.working_changed = std::move(events.working_changed);
  calls.started = std::move(events.started);
  calls.ready = std::move(events.ready);
  desk_.set_calls(std::move(calls));
  return {};
}

local::WorkerServerOptions LocalWorkers::server_options(std::function<void()> unreadable) const {
  local::WorkerServerOptions options;
  options.socket = socket_;
  options.node = node_;
  options.only = local::TaskKind::kTrain;
  options.others_belong = "models are evaluated at the coordinator's worker socket";
  if (!gpus_) return options;
  options.devices = gpus_->uuids();
  options.open_device = [gpus = gpus_, unreadable = std::move(unreadable)](const local::DeviceLocation& at,
                                                                           std::uint64_t values) {
    Result<std::shared_ptr<const local::DeviceMemory>> memory = open_memory(*gpus, at, values);
    if (!memory.ok()) unreadable();
    return memory;
  };
  return options;
}

void LocalWorkers::stop() {
  desk_.stop();
  server_->close("the site's agent ends");
}

}  // namespace fluvial::edge
