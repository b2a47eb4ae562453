#include "cli/local_federation.h"

#include <fmt/format.h>

#include <atomic>
#include <csignal>
#include <mutex>
#include <set>
#include <thread>

#include "cli/enroll.h"

namespace fluvial::cli {
namespace {

using namespace std::chrono_literals;

const std::string kCoordinator = "coordinator";

constexpr auto kConnectedLimit = 60s;  // a loaded machine may be slow to shake a dozen hands
constexpr auto kModelLimit = 10min;    // it may be a large one
constexpr std::size_t kEnrolThreads = 8;

}  // namespace

Result<bool> retry(std::chrono::milliseconds limit, const std::function<Result<bool>()>& done) {
  const auto end = std::chrono::steady_clock::now() + limit;
  for (;;) {
    FLUVIAL_ASSIGN(const bool is_done, done());
    if (is_done) return true;
    if (std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(10ms);
  }
}

LocalFederation::LocalFederation(Supervisor& supervisor, std::string executable, std::string folder,
                                 FederationShape shape)
    : supervisor_(supervisor),
      executable_(std::move(executable)),
      folder_(std::move(folder)),
      shape_(std::move(shape)) {
  if (shape_.sites_per_process <= 1) return;
  const std::vector<Node> sites = site_nodes();
  for (std::size_t i = 0; i < sites.size(); ++i) {
    shared_[sites[i].name] = fmt::format("sites-{}", i / shape_.sites_per_process + 1);
  }
}

std::vector<std::vector<LocalFederation::Node>> LocalFederation::aggregator_tiers() const {
  std::vector<std::vector<Node>> tiers;
  if (shape_.aggregators == 0) return tiers;
  std::string prefix;
  for (std::uint64_t tier = 1; tier < shape_.tiers; ++tier) {  // one aggregator a tier above the regions
    prefix += fmt::format("tier-{}", tier);
    tiers.push_back({{"aggregator", fmt::format("aggregator-tier-{}", tier), prefix}});
    prefix += "/";
  }
  tiers.emplace_back();
  for (std::uint64_t i = 1; i <= shape_.aggregators; ++i) {
    tiers.back().push_back({"aggregator", fmt::format("aggregator-{}", i), fmt::format("{}region-{}", prefix, i)});
  }
  return tiers;
}

std::vector<LocalFederation::Node> LocalFederation::site_nodes() const {
  const auto tiers = aggregator_tiers();
  std::vector<Node> nodes;
  for (std::uint64_t i = 0; i < shape_.sites; ++i) {
    const std::string region = tiers.empty() ? "" : tiers.back()[i % shape_.aggregators].region;
    nodes.push_back({"site", fmt::format("site-{}", i + 1), region});
  }
  return nodes;
}

Status LocalFederation::start() {
  FLUVIAL_TRY(start_coordinator());
  // Sites first: a site has the same id in every tree, and a stochastic codec draws by it.
  FLUVIAL_TRY(enrol_sites());
  for (const auto& tier : aggregator_tiers()) {
    for (const Node& aggregator : tier) FLUVIAL_TRY(enrol(aggregator));
    FLUVIAL_TRY(start_tier(tier));
    aggregators_up_ += tier.size();
    FLUVIAL_TRY(wait_connected("aggregators_connected", aggregators_up_));
  }
  FLUVIAL_TRY(start_sites());
  return wait_connected("sites_connected", shape_.sites);
}

std::string LocalFederation::process_name(const std::string& node) const {
  const auto shared = shared_.find(node);
  return shared == shared_.end() ? node : shared->second;
}

std::string LocalFederation::folder_of(const std::string& name) const {
  const auto shared = shared_.find(name);
  return folder_ + "/" + (shared == shared_.end() ? "" : shared->second + "/") + name;
}

ProcessSpec LocalFederation::tool(const std::string& name, std::vector<std::string> argv) const {
  return {.name = name,
          .role = "tool",
          .argv = std::move(argv),
          .log_path = folder_ + "/" + name + ".log",
          .may_end = true};
}

Status LocalFederation::spawn_worker(const std::string& name, std::vector<std::string> argv) {
  ProcessSpec spec = tool(name, std::move(argv));
  spec.role = "worker";
  const auto process = supervisor_.spawn(std::move(spec));
  return process.ok() ? Status() : Status(process.error());
}

ProcessSpec LocalFederation::with_arguments(ProcessSpec spec) const {
  for (const std::string& key : std::set<std::string>{spec.role, spec.name}) {  // one, for the coordinator
    const auto found = shape_.arguments.find(key);
    if (found == shape_.arguments.end()) continue;
    spec.argv.insert(spec.argv.end(), found->second.begin(), found->second.end());
  }
  const Place place = place_of(spec.name);
  spec.argv.insert(spec.argv.begin(), place.launcher.begin(), place.launcher.end());
  return spec;
}

Place LocalFederation::place_of(const std::string& name) const {
  const auto found = shape_.places.find(name);
  Place place = found == shape_.places.end() ? Place() : found->second;
  if (!place.reach) place.reach = [](const std::function<void()>& body) { body(); };
  return place;
}

Result<json::value> LocalFederation::status_of(const std::string& name) const {
  Result<json::value> status = Error{Code::kInternal, "not asked"};
  place_of(name).reach([&] { status = get_status(node_of(name).metrics_port); });
  if (!status.ok() || !shared_.contains(name)) return status;
  const json::value* sites = status->as_object().if_contains("sites");
  if (sites != nullptr && sites->is_array()) {
    for (const json::value& site : sites->as_array()) {
      if (text_member(site, "name") == name) return site;
    }
  }
  return Error{Code::kNotFound, fmt::format("{} does not tell of {}", process_name(name), name)};
}

Result<std::string> LocalFederation::metrics_of(const std::string& name) const {
  Result<std::string> text = Error{Code::kInternal, "not asked"};
  place_of(name).reach([&] { text = get_page(node_of(name).metrics_port, "/metrics"); });
  return text;
}

Status LocalFederation::spawn_node(ProcessSpec spec) {
  spec.may_fail = shape_.may_fail;
  FLUVIAL_ASSIGN(const ProcessId process, supervisor_.spawn(spec));
  nodes_[spec.name] = {.spec = spec, .process = process};
  return {};
}

Result<json::value> LocalFederation::wait_node(const std::string& name, std::chrono::milliseconds limit) {
  Running& node = nodes_.at(name);
  FLUVIAL_ASSIGN(const std::string line, supervisor_.wait_ready(node.process, limit));
  FLUVIAL_ASSIGN(json::value ready, parse_json(line, "the ready line of " + name));
  node.metrics_port = static_cast<std::uint16_t>(count_member(ready, "metrics_port"));
  if (shape_.announced) shape_.announced(name, ready);
  return ready;
}

void LocalFederation::kill(const std::string& name) { supervisor_.signal_and_wait(nodes_.at(name).process, SIGKILL); }

Status LocalFederation::restart(const std::string& name) {
  FLUVIAL_TRY(respawn(name));
  return wait_restarted(name);
}

Status LocalFederation::respawn(const std::string& name) { return spawn_node(nodes_.at(name).spec); }

Status LocalFederation::wait_restarted(const std::string& name, std::chrono::milliseconds limit) {
  FLUVIAL_ASSIGN(const json::value ready, wait_node(name, limit));
  for (LocalSite& site : sites_) {
    if (process_name(site.name) == name)
      site.metrics_port = static_cast<std::uint16_t>(count_member(ready, "metrics_port"));
  }
  if (name == kCoordinator) coordinator_metrics_port_ = static_cast<std::uint16_t>(count_member(ready, "metrics_port"));
  return {};
}

std::map<std::string, std::string> LocalFederation::roles() const {
  std::map<std::string, std::string> roles;
  for (const auto& [name, node] : nodes_) roles[name] = node.spec.role;
  return roles;
}

Status LocalFederation::start_coordinator() {
  FLUVIAL_TRY(spawn_node(coordinator_spec(shape_.member_port, shape_.enrol_port)));
  FLUVIAL_ASSIGN(const json::value ready, wait_node(kCoordinator));
  admin_ = AdminClient(text_member(ready, "admin_socket"));
  evaluator_socket_ = text_member(ready, "worker_socket");
  coordinator_metrics_port_ = static_cast<std::uint16_t>(count_member(ready, "metrics_port"));
  // Where it is now is where its children will look for it.
  nodes_.at(kCoordinator).spec =
      coordinator_spec(count_member(ready, "member_port"), count_member(ready, "enrol_port"));
  return {};
}

ProcessSpec LocalFederation::coordinator_spec(std::uint64_t member_port, std::uint64_t enrol_port) const {
  const std::string host = place_of(kCoordinator).host;
  const auto here = [&host](std::uint64_t port) { return fmt::format("{}:{}", host, port); };
  return with_arguments(
      {.name = kCoordinator,
       .role = "coordinator",
       .argv = {executable_, "coordinator", "--data-dir", folder_ + "/coordinator", "--listen", here(member_port),
                "--enrol-listen", here(enrol_port), "--public-host", host, "--metrics-listen", "127.0.0.1:0",
                "--enrol-per-minute-max", std::to_string(shape_.enrol_per_minute_max)},
       .log_path = folder_ + "/coordinator.log",
       .announces = true,
       .may_fail = shape_.may_fail});
}

ProcessSpec LocalFederation::node_spec(const Node& node) const {
  const bool site = node.role == "site";
  return with_arguments(
      {.name = node.name,
       .role = node.role,
       .argv = {executable_, site ? "edge" : "aggregator", "--config",
                folder_of(node.name) + (site ? "/edge.toml" : "/aggregator.toml"), "--metrics-listen", "127.0.0.1:0"},
       .log_path = folder_ + "/" + node.name + ".log",
       .announces = true});
}

ProcessSpec LocalFederation::sites_spec(const std::string& name) const {
  return with_arguments(
      {.name = name,
       .role = "site",
       .argv = {executable_, "edge", "--sites", folder_ + "/" + name, "--metrics-listen", "127.0.0.1:0"},
       .log_path = folder_ + "/" + name + ".log",
       .announces = true});
}

Status LocalFederation::enrol(const Node& node) const {
  json::object request = {{"role", node.role}, {"name", node.name}, {"region", node.region}, {"ttl_s", 600}};
  if (node.role == "site") request["weight_max"] = shape_.weight_max;
  FLUVIAL_ASSIGN(const json::value token, admin_.post("/v1/tokens", request));
  const Place place = place_of(node.name);
  Result<Enrolled> enrolled = Error{Code::kInternal, "not asked"};
  place.reach([&] {
    enrolled = enroll({.token = text_member(token, "token"),
                       .data_dir = folder_of(node.name),
                       .advertise = place.host + ":0",  // whichever port the listener gets
                       .listen = place.host + ":0"});
  });
  return enrolled.ok() ? Status() : Status(enrolled.error());
}

// Hundreds of them several at once: each waits for disks, its own and the coordinator's, for most of the time.
Status LocalFederation::enrol_sites() const {
  const std::vector<Node> sites = site_nodes();
  if (shared_.empty()) {
    for (const Node& site : sites) FLUVIAL_TRY(enrol(site));
    return {};
  }
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  Status failed;
  const auto work = [&] {
    for (std::size_t i = next++; i < sites.size(); i = next++) {
      const Status enrolled = enrol(sites[i]);
      if (enrolled.ok()) continue;
      next = sites.size();
      const std::lock_guard lock(mutex);
      failed = enrolled;
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kEnrolThreads; ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  return failed;
}

Status LocalFederation::start_tier(const std::vector<Node>& nodes) {
  for (const Node& node : nodes) FLUVIAL_TRY(spawn_node(node_spec(node)));
  for (const Node& node : nodes) {
    FLUVIAL_ASSIGN(const json::value ready, wait_node(node.name));
    if (node.role == "site") {
      add_site(node.name, text_member(ready, "worker_socket"),
               static_cast<std::uint16_t>(count_member(ready, "metrics_port")));
    }
  }
  return {};
}

void LocalFederation::add_site(const std::string& name, std::string worker_socket, std::uint16_t metrics_port) {
  sites_.push_back({.name = name, .worker_socket = std::move(worker_socket), .metrics_port = metrics_port});
}

Status LocalFederation::start_sites() { return shared_.empty() ? start_tier(site_nodes()) : start_site_processes(); }

Status LocalFederation::start_site_processes() {
  const std::vector<Node> sites = site_nodes();
  std::map<std::string, std::uint16_t> ports;  // by process
  for (const Node& site : sites) ports[process_name(site.name)] = 0;
  for (const auto& [process, port] : ports) FLUVIAL_TRY(spawn_node(sites_spec(process)));
  for (auto& [process, port] : ports) {
    FLUVIAL_ASSIGN(const json::value ready, wait_node(process));
    port = static_cast<std::uint16_t>(count_member(ready, "metrics_port"));
    if (const std::uint64_t failed = count_member(ready, "failed"); failed > 0) {
      return Error{Code::kInternal,
                   fmt::format("{} sites did not start; the reasons are in {}", failed, log_of(process))};
    }
  }
  for (const Node& site : sites) {
    add_site(site.name, folder_of(site.name) + "/worker.sock", ports.at(process_name(site.name)));
  }
  return {};
}

Status LocalFederation::wait_connected(const char* key, std::uint64_t count) const {
  FLUVIAL_ASSIGN(const bool connected, retry(kConnectedLimit, [&]() -> Result<bool> {
                   FLUVIAL_ASSIGN(const json::value status, admin_.get("/v1/status"));
                   return count_member(status, key) >= count;
                 }));
  if (connected) return {};
  return Error{Code::kDeadlineExceeded, fmt::format("{} stayed below {} for {} s; the logs are in {}", key, count,
                                                    std::chrono::seconds(kConnectedLimit).count(), folder_)};
}

Result<std::vector<json::value>> LocalFederation::wait_for_model(std::uint64_t run, std::uint64_t version) const {
  std::vector<json::value> statuses;
  for (const LocalSite& site : sites_) {
    json::value status;
    FLUVIAL_ASSIGN(const bool there, retry(kModelLimit, [&]() -> Result<bool> {
                     FLUVIAL_ASSIGN(status, status_of(site.name));
                     return count_member(status, "run") == run && count_member(status, "model_version") == version;
                   }));
    if (!there) {
      return Error{Code::kDeadlineExceeded, fmt::format("{} holds version {} of the model, not {}", site.name,
                                                        count_member(status, "model_version"), version)};
    }
    statuses.push_back(std::move(status));
  }
  return statuses;
}

}  // namespace fluvial::cli
