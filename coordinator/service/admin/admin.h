// The admin API: HTTP and JSON on a Unix socket that only the coordinator's user can open. docs/operations/admin-api.md
// lists the calls; the command line is its client. What answers is in resources.h.
#pragma once

#include <memory>
#include <string>

#include "coordinator/service/admin/context.h"
#include "coordinator/service/admin/events.h"
#include "coordinator/service/admin/router.h"

namespace fluvial::coordinator {

class Admin {
 public:
  Admin(tree::Runtime& runtime, store::CoordinatorJournal& journal, store::ModelStore& models, Root& root, Feed& feed,
        Epoch epoch);

  Status open(const std::string& socket, admin::Facts facts);
  net::Awaitable<void> run();
  net::Awaitable<void> run_events();
  void stop();

  std::string status_json() const;  // on the strand

 private:
  net::Awaitable<net::HttpResponse> handle(net::HttpRequest request);

  admin::Context context_;
  admin::Router router_;
  admin::Events events_;
  std::shared_ptr<net::HttpServer> server_;
};

}  // namespace fluvial::coordinator
