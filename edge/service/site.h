// One site of a process: its identity and store, its workers, what it reports, and the service made of these. A process
// has one, or many side by side (many.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/config/settings.h"
#include "core/identity/certificate.h"
#include "core/identity/credentials.h"
#include "core/identity/live_tls.h"
#include "core/net/task_group.h"
#include "core/telemetry/log.h"
#include "core/tree/renewal.h"
#include "core/tree/runtime.h"
#include "edge/service/local_workers.h"
#include "edge/service/log_report.h"
#include "edge/service/service.h"

namespace fluvial::edge {

// Whom the identity in a data folder makes of this site.
struct Member {
  identity::PeerIdentity self;
  identity::Credentials credentials;
  std::shared_ptr<identity::LiveTls> tls;
};

// kNotFound: the folder is not enrolled; kFailedPrecondition: it is not a site's.
Result<Member> load_member(const config::EdgeSettings& settings);

// A site as the process sees it that has it. On the strand, but for failure() once the process has run.
class HostedSite {
 public:
  virtual ~HostedSite() = default;
  virtual std::string status_json() const = 0;
  virtual Status failure() const = 0;  // why it ended of itself
  virtual void stop() = 0;             // once
};

class Site final : public HostedSite {
 public:
  struct Host {
    net::TaskGroup& tasks;
    bool alone = true;                      // else the process' figures are of other sites, too (log_report.h)
    CommonModels* models = nullptr;         // of those that are not alone
    std::function<void(bool)> set_ready;    // it has a parent, or none
    std::function<void()> request_stop;     // it cannot go on: failure() says why
    std::function<void(WallTime)> renewed;  // its certificate ends then
  };

  // From here on workers may attach, and it connects as soon as the process runs. What `runtime` refers to and what is
  // in `host` outlive it; everything that `host.tasks` runs ends before it goes. Blocks (files).
  static Result<std::unique_ptr<Site>> open(tree::Runtime runtime, const config::EdgeSettings& settings, Member member,
                                            Host host);

  const std::string& name() const { return name_; }
  const std::string& worker_socket() const { return settings_.worker_socket; }
  std::string status_json() const override { return report_->status_json(service_->status()); }
  Status failure() const override { return service_->failure(); }
  void stop() override { service_->stop(); }

 private:
  Site(tree::Runtime runtime, config::EdgeSettings settings, std::string name)
      : runtime_(std::move(runtime)), settings_(std::move(settings)), name_(std::move(name)) {}
  Status start(Member member, Host host);

  tree::Runtime runtime_;
  config::EdgeSettings settings_;
  std::string name_;
  std::unique_ptr<LocalWorkers> workers_;
  std::unique_ptr<LogReport> report_;
  std::unique_ptr<tree::Renewal> renewal_;
  std::unique_ptr<EdgeService> service_;
};

}  // namespace fluvial::edge
