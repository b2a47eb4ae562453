// The admin API: HTTP and JSON on a Unix socket, for those users of the machine that may ask (access.h), and over TLS
// for operators with a certificate. docs/operations/admin-api.md lists the calls; the command line is its client. What
// answers is in resources.h.
#pragma once

#include <memory>
#include <string>

#include "coordinator/service/admin/context.h"
#include "coordinator/service/admin/events.h"
#include "coordinator/service/admin/router.h"
#include "coordinator/service/admin/turns.h"
#include "core/net/https.h"
#include "core/net/signal.h"

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
  // The port. `tls` is asked for each connection, `renew` for an operator's next certificate.
  Result<std::uint16_t> open_network(net::TcpAddress listen, net::HttpsServer::Tls tls, admin::Renew renew);
  void with_admissions(AdmissionLog& log) { context_.admissions = &log; }  // without: no entry says who is admitted
  // Before open(). `changed` is called after each step from one authority to the next, on the strand: the coordinator's
  // own certificate is to follow.
  void with_authorities(Authorities& authorities, std::function<Status(WallTime now)> changed);
  net::Awaitable<void> run();
  net::Awaitable<void> run_network();
  net::Awaitable<void> run_events();
  net::Awaitable<void> run_uploads();  // gives up what is left half sent
  bool is_on_network() const { return network_ != nullptr; }
  void stop();

  std::string status_json() const;  // on the strand

 private:
  net::Awaitable<net::HttpResponse> handle(net::HttpRequest request);
  net::Awaitable<net::HttpResponse> handle_operator(net::HttpRequest request);
  net::Awaitable<net::HttpResponse> answer_operator(net::HttpRequest request);               // on the strand
  net::Awaitable<net::HttpResponse> answer(net::HttpRequest request, admin::Caller caller);  // on the strand

  admin::Context context_;
  admin::Router router_;
  admin::Events events_;
  admin::People people_;
  admin::Turns turns_;
  net::AsyncSignal stopped_;
  bool stopping_ = false;
  std::shared_ptr<net::HttpServer> server_;
  std::shared_ptr<net::HttpsServer> network_;  // none: the socket alone
};

}  // namespace fluvial::coordinator
