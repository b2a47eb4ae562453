// The admin API: HTTP and JSON on a Unix socket, for those users of the machine that may ask (access.h).
// docs/operations/admin-api.md lists the calls; the command line is its client. What answers is in resources.h.
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

  struct AdminUsers {  // beside root and the coordinator's own user; the settings
    std::string users;
    std::string readers;
  };
  Status open(const std::string& socket, admin::Facts facts, const AdminUsers& admin_users);
  net::Awaitable<void> run();
  net::Awaitable<void> run_events();
  void stop();

  std::string status_json() const;  // on the strand

 private:
  net::Awaitable<net::HttpResponse> handle(net::HttpRequest request);
  net::Awaitable<net::HttpResponse> answer(net::HttpRequest request, admin::Caller caller);  // on the strand

  admin::Context context_;
  admin::Router router_;
  admin::Events events_;
  admin::People people_;
  std::shared_ptr<net::HttpServer> server_;
};

}  // namespace fluvial::coordinator
