// A whole federation on this machine, as the same processes that run on many: each made a member with a one-time token
// over the coordinator's own ports. For `fluvial demo` and `fluvial bench tree`.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "cli/admin_client.h"
#include "cli/supervisor.h"

namespace fluvial::cli {

// Where a node runs: for tests, in a network of their own.
struct Place {
  std::string host = "127.0.0.1";
  std::vector<std::string> launcher;  // what stands before its command
  // Calls its argument where the node's own addresses can be reached. None: right here.
  std::function<void(const std::function<void()>&)> reach;
};

struct FederationShape {
  std::uint64_t sites = 4;
  std::uint64_t aggregators = 2;        // 0: the sites are the coordinator's children
  std::uint64_t tiers = 1;              // of aggregators between the coordinator and the sites
  std::uint64_t sites_per_process = 1;  // more: the processes are nodes of their own, named sites-1, sites-2, ...
  std::uint64_t weight_max = 1'000'000;
  bool may_fail = false;  // kill() and restart() are allowed, and a node's end is no failure: for tests
  std::map<std::string, std::vector<std::string>> arguments;  // further ones, by role or name
  std::uint16_t member_port = 0;                              // the coordinator's; 0: whichever the kernel gives
  std::uint16_t enrol_port = 0;
  std::uint64_t enrol_per_minute_max = 100'000;  // the coordinator's
  std::map<std::string, Place> places;           // by name; all others are on the loopback
  // Is told each node's ready line, each time that it is started.
  std::function<void(const std::string& name, const json::value& ready)> announced;
};

struct LocalSite {
  std::string name;
  std::string worker_socket;
  std::uint16_t metrics_port = 0;
};

inline constexpr std::chrono::seconds kReadyLimit{60};  // a loaded machine may be slow to start a dozen processes

class LocalFederation {
 public:
  // `folder` holds a folder a node and a log a process. All outlive the federation.
  LocalFederation(Supervisor& supervisor, std::string executable, std::string folder, FederationShape shape);

  // Ends a node with SIGKILL; starts it again with the same data, a coordinator on the same ports.
  void kill(const std::string& name);
  Status restart(const std::string& name);
  // restart() in two steps, for whoever has other things to do until it is ready. kDeadlineExceeded: not yet.
  Status respawn(const std::string& name);
  Status wait_restarted(const std::string& name, std::chrono::milliseconds limit = kReadyLimit);
  ProcessId process_of(const std::string& name) const { return node_of(name).process; }
  Result<json::value> status_of(const std::string& name) const;   // the node's /status
  Result<std::string> metrics_of(const std::string& name) const;  // and its /metrics
  const std::string& log_of(const std::string& name) const { return node_of(name).spec.log_path; }
  std::string folder_of(const std::string& name) const;  // a node's data
  // Every process by name, with its role.
  std::map<std::string, std::string> roles() const;

  // Coordinator, enrolment, aggregators, sites; returns when all are connected.
  Status start();
  // A process of the same life, for workers; its log is `folder`/<name>.log.
  Status spawn_worker(const std::string& name, std::vector<std::string> argv);
  ProcessSpec tool(const std::string& name, std::vector<std::string> argv) const;

  const AdminClient& admin() const { return admin_; }
  const std::vector<LocalSite>& sites() const { return sites_; }
  const std::string& evaluator_socket() const { return evaluator_socket_; }
  std::uint16_t coordinator_metrics_port() const { return coordinator_metrics_port_; }

  // Until /v1/status says that many are connected, under the key "sites_connected" or "aggregators_connected".
  Status wait_connected(const char* key, std::uint64_t count) const;
  // /status of every site once it holds that version of the run's model. kDeadlineExceeded names the site.
  Result<std::vector<json::value>> wait_for_model(std::uint64_t run, std::uint64_t version) const;

 private:
  struct Node {
    std::string role;
    std::string name;
    std::string region;
  };
  struct Running {
    ProcessSpec spec;
    ProcessId process = 0;
    std::uint16_t metrics_port = 0;
  };
  std::vector<std::vector<Node>> aggregator_tiers() const;
  std::vector<Node> site_nodes() const;
  Status start_coordinator();
  Status enrol(const Node& node) const;
  Status enrol_sites() const;
  Status start_tier(const std::vector<Node>& nodes);
  Status start_sites();
  Status start_site_processes();
  void add_site(const std::string& name, std::string worker_socket, std::uint16_t metrics_port);
  std::string process_name(const std::string& node) const;  // its own, or that of the process it shares
  const Running& node_of(const std::string& name) const { return nodes_.at(process_name(name)); }
  ProcessSpec coordinator_spec(std::uint64_t member_port, std::uint64_t enrol_port) const;
  ProcessSpec node_spec(const Node& node) const;
  ProcessSpec sites_spec(const std::string& name) const;
  ProcessSpec with_arguments(ProcessSpec spec) const;
  Place place_of(const std::string& name) const;
  Status spawn_node(ProcessSpec spec);
  Result<json::value> wait_node(const std::string& name, std::chrono::milliseconds limit = kReadyLimit);
  Supervisor& supervisor_;
  std::string executable_;
  std::string folder_;
  FederationShape shape_;
  AdminClient admin_{""};
  std::string evaluator_socket_;
  std::uint16_t coordinator_metrics_port_ = 0;
  std::vector<LocalSite> sites_;
  std::map<std::string, Running> nodes_;
  std::map<std::string, std::string> shared_;  // the process of a site that is not one by itself
  std::uint64_t aggregators_up_ = 0;
};

// Tries until `done` says so, 10 ms apart, at most for `limit`; false when the limit came first.
Result<bool> retry(std::chrono::milliseconds limit, const std::function<Result<bool>()>& done);

}  // namespace fluvial::cli
