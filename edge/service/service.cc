#include "edge/service/service.h"

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <boost/json.hpp>
#include <chrono>
#include <set>
#include <utility>

#include "core/net/deadline.h"
#include "edge/reduce/cost.h"

namespace fluvial::edge {
namespace {

tree::UplinkOptions uplink_options(net::HostPort coordinator, NodeId node, Incarnation incarnation) {
  tree::UplinkOptions options;
  options.coordinator = std::move(coordinator);
  options.incarnation = incarnation;
  options.software = tree::software_name();
  options.jitter_seed = (static_cast<std::uint64_t>(node.value()) << 32) ^ incarnation.value();
  return options;
}

DeskOptions desk_options(const config::EdgeSettings& settings) {
  DeskOptions options;
  options.workers = static_cast<std::size_t>(settings.workers);
  options.attach_deadline = std::chrono::milliseconds(settings.worker_attach_deadline_ms);
  options.task_deadline = std::chrono::milliseconds(settings.worker_task_deadline_ms);
  return options;
}

}  // namespace

EdgeService::EdgeService(tree::Process& process, const config::EdgeSettings& settings, net::HostPort coordinator,
                         identity::PeerIdentity self, std::shared_ptr<const identity::TlsContext> tls,
                         std::unique_ptr<store::SiteStore> store, std::shared_ptr<SiteGpus> gpus)
    : process_(process),
      runtime_(process.runtime()),
      settings_(settings),
      self_(std::move(self)),
      store_(std::move(store)),
      gpus_(std::move(gpus)),
      metrics_(runtime_.metrics),
      connected_(runtime_.metrics.gauge("connected", "1 while a session to a parent is up")),
      round_gauge_(runtime_.metrics.gauge("round", "The newest round heard of")),
      model_version_(runtime_.metrics.gauge("model_version", "Of the model held")),
      uplink_(runtime_, *this, uplink_options(std::move(coordinator), self_.node, store_->incarnation()),
              tree::dial_over_tls(runtime_, std::move(tls))),
      fetch_(
          runtime_, process.tasks(), [this](v1::Envelope message) { uplink_.post(std::move(message)); },
          [this](HeldModel model) { on_model(std::move(model)); }),
      upload_(runtime_, process.tasks(), [this](const UploadItem& item, double seconds) { on_sent(item, seconds); }),
      desk_(runtime_.strand, desk_options(settings), runtime_.log),
      early_(runtime_, process.tasks(), gpus_, [this] { tell_end_if_due(); }),
      stop_(runtime_.strand),
      model_here_(runtime_.strand),
      entered_(runtime_.strand) {}

EdgeService::~EdgeService() = default;

Status EdgeService::open() {
  FLUVIAL_ASSIGN(lineage_, store_->lineage());
  FLUVIAL_ASSIGN(const round::Standing standing, store_->standing());
  heard_ = standing.epoch;
  FLUVIAL_ASSIGN(const std::optional<Pending> found, load());
  FLUVIAL_ASSIGN(const auto outcomes, store_->worker_outcomes());
  std::set<RunId> runs;
  for (const auto& [run, workers] : outcomes) runs.insert(run);
  machine_.emplace(found, std::move(runs));

  reduction_ = choose_reduction();

  // The desk outlives every call: the server is told to close before the process' threads end.
  const std::shared_ptr<local::WorkerHandler> handler(std::shared_ptr<void>(), &desk_);
  FLUVIAL_ASSIGN(workers_, local::WorkerServer::listen(worker_options(), runtime_.strand, handler));
  TrainerDesk::Calls calls;
  calls.assign = [this](local::WorkerId worker, local::Task task) { workers_->assign(worker, std::move(task)); };
  calls.committed = [this](local::WorkerId worker, local::CommittedModel model) {
    workers_->committed(worker, std::move(model));
  };
  calls.workers_changed = [this](std::size_t count) { metrics_.workers.set(static_cast<double>(count)); };
  calls.ready = [this](const TrainJob& job, std::vector<TrainedPart> parts, const round::ByteRanges& ready) {
    early_.add(job.base, job.plan.chunk_values, reduction_, std::move(parts), ready);
  };
  desk_.set_calls(std::move(calls));
  process_.spawn("uplink", uplink_.run());
  process_.spawn("ask again", ask_again());
  return {};
}

local::WorkerServerOptions EdgeService::worker_options() {
  local::WorkerServerOptions options;
  options.socket = settings_.worker_socket;
  options.node = self_.name;
  if (!gpus_) return options;
  options.devices = gpus_->uuids();
  options.open_device = [this](const local::DeviceLocation& at, std::uint64_t values) {
    Result<std::shared_ptr<const local::DeviceMemory>> memory = open_memory(*gpus_, at, values);
    if (!memory.ok()) (void)gpu_failed();  // then it is not the worker's fault
    return memory;
  };
  return options;
}

Algorithm EdgeService::choose_reduction() const {
  constexpr std::size_t kMeasuredMax = 8;  // ranks; more of them cost what their sums cost
  if (const auto named = parse_algorithm(settings_.reduction); named.ok()) return *named;
  const auto workers = std::min(static_cast<std::size_t>(settings_.workers), kRanksMax);
  if (workers == 1) return Algorithm::kDirect;
  const auto seconds = [] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  };
  const CostModel model = fit(measure(std::min(workers, kMeasuredMax), seconds));
  const Choice choice = choose(model, workers, round::Plan().chunk_values);
  runtime_.log.info("reduction chosen", {{"algorithm", algorithm_name(choice.algorithm)},
                                         {"workers", workers},
                                         {"predicted_a_chunk", choice.reason},
                                         {"alpha_s", model.alpha},
                                         {"beta_s_per_byte", model.beta},
                                         {"gamma_s_per_addition", model.gamma}});
  return choice.algorithm;
}

net::Awaitable<void> EdgeService::ask_again() {
  const std::chrono::milliseconds interval(settings_.outcome_interval_ms);
  while (!stopping_) {
    const Status slept = co_await net::with_deadline(stop_.wait(), interval);
    if (!slept.ok() && !stopping_ && uplink_.is_up()) carry_out(machine_->ask_again());
  }
}

void EdgeService::stop() {
  stopping_ = true;
  desk_.stop();
  early_.stop();
  upload_.stop();
  fetch_.stop();
  uplink_.stop();
  workers_->close("the site's agent ends");
  stop_.notify_all();
  model_here_.notify_all();
  entered_.notify_all();
}

void EdgeService::parent_up(const tree::Lease&, std::shared_ptr<net::Session>) {
  if (stopping_) return;
  connected_.set(1);
  process_.set_ready(true);
  fetch_.parent_up();
  carry_out(machine_->connected());
}

void EdgeService::parent_down(const Error& why) {
  connected_.set(0);
  process_.set_ready(false);
  upload_.stop();
  fetch_.parent_down();
  if (!stopping_) runtime_.log.warn("lost the parent", {{"reason", why.to_string()}});
}

telemetry::Logger EdgeService::log_of(RunId run, RoundId round) const {
  return runtime_.log.with({{"run", run}, {"round", round}});
}

std::string EdgeService::status_json() const {
  boost::json::object status{{"role", "site"},
                             {"name", self_.name},
                             {"node", self_.node.value()},
                             {"connected", uplink_.is_up()},
                             {"parent", uplink_.is_up() ? uplink_.lease().parent_name : ""},
                             {"run", run_.value()},
                             {"round", round_.value()},
                             {"model_version", held_ ? held_->ref.version.value() : 0},
                             {"model_sha256", held_ ? to_hex(held_->ref.digest) : ""},
                             {"update_bytes_sent", upload_.payload_bytes()},
                             {"update_bytes_fp32", counts_.update_bytes_fp32},
                             {"updates_submitted", counts_.updates_submitted},
                             {"residual_norm", counts_.residual_norm},
                             {"doing", machine_->doing()},
                             {"pending_round", machine_->pending() ? machine_->pending()->round.value() : 0},
                             {"workers", desk_.workers()},
                             {"gpus", gpus_ ? gpus_->devices().size() : 0},
                             {"updates_summed_on_gpus", on_gpus_.summed},
                             {"updates_encoded_on_gpus", on_gpus_.encoded}};
  status["outcomes"] =
      boost::json::object{{"counted", counts_.counted}, {"late", counts_.late}, {"refused", counts_.refused}};
  return boost::json::serialize(status);
}

}  // namespace fluvial::edge
