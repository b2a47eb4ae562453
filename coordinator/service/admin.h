// The admin API: HTTP and JSON on a Unix socket that only the coordinator's user can open. docs/operations/admin-api.md
// lists the calls; the command line is its client.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "coordinator/service/feed.h"
#include "coordinator/service/registry.h"
#include "coordinator/service/run_service.h"
#include "core/net/http.h"

namespace fluvial::coordinator {

struct AdminFacts {
  std::string federation;
  std::string data_dir;
  std::string pin;
  std::string enrol_address;  // host:port, as tokens name it
  std::uint16_t member_port = 0;
  std::uint16_t enrol_port = 0;
  std::uint16_t metrics_port = 0;
  std::uint64_t token_ttl_s = 3'600;
};

// How far a watcher has come.
struct Replayed {
  std::shared_ptr<Watcher> watcher;
  RunId run;
  RoundId last;
  bool ended = false;
};

class Admin {
 public:
  Admin(tree::Runtime& runtime, store::CoordinatorJournal& journal, store::ModelStore& models, Registry& registry,
        RunService& runs, Feed& feed, tree::Hub& hub)
      : runtime_(runtime),
        journal_(journal),
        models_(models),
        registry_(registry),
        runs_(runs),
        feed_(feed),
        hub_(hub),
        last_backup_seconds_(runtime.metrics.gauge("last_backup_timestamp_seconds",
                                                   "When the last backup was made, since 1970; 0: nobody knows")) {}

  Status open(const std::string& socket, AdminFacts facts);
  net::Awaitable<void> run();
  void stop();

  std::string status_json() const;  // on the strand

 private:
  using Reply = Result<std::string>;
  net::Awaitable<net::HttpResponse> handle(net::HttpRequest request);
  net::Awaitable<net::HttpResponse> on_strand(net::HttpRequest request);
  net::Awaitable<Reply> route(const net::HttpRequest* request, std::vector<std::string> path);
  Reply nodes(bool all) const;
  net::Awaitable<Reply> revoke(std::string name);
  net::Awaitable<Reply> remove(std::string name);
  net::Awaitable<Reply> clear(std::string name);
  net::Awaitable<Reply> create_token(std::string body);
  net::Awaitable<Reply> list_tokens();
  net::Awaitable<Reply> revoke_token(std::string id);
  net::Awaitable<Reply> list_runs();
  net::Awaitable<Reply> show_run(RunId run);
  net::Awaitable<Reply> start_run(std::string body);
  net::Awaitable<Reply> command_run(RunId run, std::string command);
  net::Awaitable<Reply> list_rounds(const net::HttpRequest* request);
  net::Awaitable<Reply> copy_journal();
  net::Awaitable<Reply> backup_made(std::string body);
  void set_last_backup(std::optional<WallTime> made);
  net::Awaitable<Reply> find_model(RunId run, std::string round);
  net::Awaitable<Result<RunId>> run_or_latest(std::string text);
  net::Awaitable<void> watch(std::string run, std::string from, std::shared_ptr<net::LineWriter> out);
  net::Awaitable<Result<std::vector<std::string>>> replay(std::string run, RoundId from, Replayed* replayed);

  tree::Runtime& runtime_;
  store::CoordinatorJournal& journal_;
  store::ModelStore& models_;
  Registry& registry_;
  RunService& runs_;
  Feed& feed_;
  tree::Hub& hub_;
  AdminFacts facts_;
  bool copying_ = false;  // the journal, for a backup
  std::optional<WallTime> last_backup_;
  telemetry::Gauge last_backup_seconds_;
  std::shared_ptr<net::HttpServer> server_;
};

}  // namespace fluvial::coordinator
