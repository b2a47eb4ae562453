// What every role's process does alike: threads, pool, metrics, the HTTP port for people and Prometheus, SIGTERM.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "core/net/http.h"
#include "core/net/task_group.h"
#include "core/store/file_system.h"
#include "core/tree/runtime.h"

namespace fluvial::tree {

std::string software_name();  // "fluvial 0.3.0"

// In the data folder: where the process that has it serves /healthz, as host:port and a newline.
inline constexpr const char* kMetricsAddressFile = "metrics.address";

class Process {
 public:
  // `files` outlives it.
  Process(const config::CommonSettings& settings, Role role, store::FileSystem& files, telemetry::Logger log);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  Runtime& runtime() { return *runtime_; }
  net::TaskGroup& tasks() { return *tasks_; }
  void spawn(std::string name, net::Awaitable<void> task);  // on the node's strand
  // Likewise what the node is nothing without: an exception in it ends the process, whose next start goes on from the
  // disk.
  void spawn_vital(std::string name, net::Awaitable<void> task);

  // /metrics, /healthz, /readyz and /status on settings.metrics_listen. `status` gives a JSON object, `fault` why a
  // node that is up is not ready all the same (empty: it is), both on the strand. Returns the port, 0 when it is "off";
  // writes it into kMetricsAddressFile.
  struct HttpFacts {
    std::function<std::string()> status;
    std::function<std::string()> fault;
  };
  Result<std::uint16_t> open_http(HttpFacts facts);
  void set_ready(bool ready);                    // thread safe
  void set_certificate_end(WallTime not_after);  // of this process' own, for the metrics

  // Runs until SIGTERM, SIGINT or request_stop(); then `stop` is called once, on the strand, and everything spawned is
  // waited for. A second signal ends the process at once. The service manager that started the process, if one did, is
  // told that it is up (call this once everything listens), that the strand still moves, and that it drains. kInternal:
  // something vital failed.
  Status run(std::function<void()> stop);
  void request_stop();  // thread safe

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<net::TaskGroup> tasks_;
  std::atomic<bool> ready_{false};
  Status failure_;  // on the strand
};

// Writes to descriptors that a supervisor waits on are the command line's matter; this is what it is given.
using OnReady = std::function<void(const std::string& ready_json)>;

}  // namespace fluvial::tree
