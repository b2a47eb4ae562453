#include "coordinator/service/admin/admin.h"

#include <unistd.h>

#include <boost/asio/awaitable.hpp>
#include <limits>
#include <utility>

#include "coordinator/service/admin/resources.h"
#include "coordinator/service/backup.h"
#include "coordinator/service/machine_users.h"
#include "core/net/deadline.h"
#include "core/net/run_on.h"

namespace fluvial::coordinator {
namespace {

constexpr std::uint32_t kNobody = std::numeric_limits<std::uint32_t>::max();  // no user has this number
constexpr Duration kLookForUploads = std::chrono::minutes(1);

}  // namespace

void admin::add_all(Router& router) {
  for (const auto add :
       {add_status, add_nodes, add_tokens, add_plans, add_runs, add_timeline, add_watch, add_rounds, add_models,
        add_backup, add_events, add_page, add_audit, add_authority, add_operators, add_uploads}) {
    add(router);
  }
}

Admin::Admin(tree::Runtime& runtime, store::CoordinatorJournal& journal, store::ModelStore& models, Root& root,
             Feed& feed, Epoch epoch)
    : context_(runtime, journal, models, root, feed),
      router_(&context_),
      events_(runtime, epoch,
              [this](net::HttpRequest request) {
                return router_.answer(std::move(request), {.access = admin::Access::kRead});
              }),
      turns_(runtime.strand),
      stopped_(runtime.strand) {
  context_.events = &events_;
  feed.also_to([this](const FeedLine& line) { events_.publish(line); });
  admin::add_all(router_);
}

Status Admin::open(const std::string& socket, admin::Facts facts, const AdminUsers& admin_users) {
  context_.facts = std::move(facts);
  tree::Runtime& runtime = context_.runtime;
  FLUVIAL_ASSIGN(people_, admin::People::of(::geteuid(), admin_users.users, admin_users.readers));
  context_.uploads =
      admin::Uploads(store::join_path(context_.facts.data_dir, "uploads"), context_.facts.upload_bytes_max);
  FLUVIAL_TRY(admin::sweep_uploads(runtime.files, context_.uploads.folder()));
  context_.set_last_backup(last_backup(runtime.files, context_.facts.data_dir));
  FLUVIAL_ASSIGN(
      server_, net::HttpServer::open(runtime.io, net::UnixAddress{socket, people_.are_more_than_own() ? 0666U : 0600U},
                                     {}, runtime.hooks));
  return {};
}

Result<std::uint16_t> Admin::open_network(net::TcpAddress listen, net::HttpsServer::Tls tls, admin::Renew renew) {
  tree::Runtime& runtime = context_.runtime;
  net::HttpsSettings settings;
  settings.handshake_deadline = runtime.session.handshake_deadline;
  auto admission = [&deny = context_.root.deny()](const identity::PeerIdentity& peer) -> Status {
    FLUVIAL_TRY(identity::may_speak_as(peer, Role::kOperator));
    const Status allowed = deny.check(peer);
    if (allowed.ok()) return allowed;
    return Error{allowed.error().code,
                 allowed.error().message +
                     ": it was revoked, or has enrolled with another key since; ask for a token (fluvial token create "
                     "--role operator) and enrol with a new key"};
  };
  FLUVIAL_ASSIGN(network_, net::HttpsServer::open(runtime.administration, std::move(listen), std::move(tls), settings,
                                                  runtime.hooks, admission));
  context_.renew = std::move(renew);
  context_.facts.admin_port = network_->port();
  context_.root.registry().on_shut_out([network = network_] { network->admit_again(); });
  return network_->port();
}

net::Awaitable<void> Admin::run_network() {
  co_await network_->run([this](net::HttpRequest request) { return handle_operator(std::move(request)); });
}

void Admin::with_authorities(Authorities& authorities, std::function<Status(WallTime now)> changed) {
  context_.authorities = &authorities;
  context_.authority_changed = std::move(changed);
}

net::Awaitable<void> Admin::run() {
  co_await server_->run([this](net::HttpRequest request) { return handle(std::move(request)); });
}

net::Awaitable<void> Admin::run_events() { return events_.run(); }

net::Awaitable<void> Admin::run_uploads() {
  while (!stopping_) {
    const Status stopped = co_await net::with_deadline(stopped_.wait(), kLookForUploads);
    if (!stopped.ok()) co_await admin::give_up_uploads(&context_);
  }
}

void Admin::stop() {
  stopping_ = true;
  stopped_.notify_all();
  events_.close();
  if (server_) server_->stop();
  if (network_) network_->stop();
}

std::string Admin::status_json() const { return admin::status_json(context_); }

net::Awaitable<net::HttpResponse> Admin::answer(net::HttpRequest request, admin::Caller caller) {
  if (caller.access == admin::Access::kNone) {
    context_.runtime.log.warn("a user who may not administer asked; nothing was answered or changed",
                              {{"uid", request.peer->uid}, {"pid", request.peer->pid}});
    co_return net::HttpResponse::from_error(admin::may_not_ask(*request.peer));
  }
  co_return co_await router_.answer(std::move(request), std::move(caller));
}

// Asked again with each request: whoever was revoked since the one before is not answered.
net::Awaitable<net::HttpResponse> Admin::answer_operator(net::HttpRequest request) {
  const identity::PeerIdentity who = *request.certificate;
  const auto turn = co_await turns_.take(who.node);
  const Result<Access> access = co_await context_.root.registry().admit_operator(who);
  if (!access.ok()) {
    context_.runtime.log.warn("an operator was refused; nothing was answered or changed",
                              {{"operator", who.name}, {"remote", request.remote}, {"reason", access.error().message}});
    co_return net::HttpResponse::from_error(access.error());
  }
  if (context_.admissions != nullptr) {
    const Status admitted = co_await context_.admissions->admitted(who, 0, request.remote);
    if (!admitted.ok()) co_return net::HttpResponse::from_error(admitted.error());
  }
  admin::Caller caller{.access = *access, .person = who, .from = request.remote};
  co_return co_await router_.answer(std::move(request), std::move(caller));
}

net::Awaitable<net::HttpResponse> Admin::handle_operator(net::HttpRequest request) {
  if (const Status asks = admin::check_no_page(request); !asks.ok()) {
    co_return net::HttpResponse::from_error(asks.error());
  }
  co_return co_await net::run_on(context_.runtime.strand, answer_operator(std::move(request)));
}

net::Awaitable<net::HttpResponse> Admin::handle(net::HttpRequest request) {
  const net::UnixPeer peer = request.peer.value_or(net::UnixPeer{kNobody, kNobody, 0, {}});
  request.peer = peer;
  admin::Caller caller{people_.access_of(peer), store::AuditUser{peer.uid, peer.pid, {}}, {}, request.remote};
  if (request.method != "GET" && caller.access == admin::Access::kFull) {  // it will stand in the audit log
    const auto look_up = [&]() -> Result<std::string> { return user_name(peer.uid); };
    const Result<std::string> name = co_await context_.runtime.pool.run(look_up);
    if (name.ok()) caller.user->name = *name;
  }
  co_return co_await net::run_on(context_.runtime.strand, answer(std::move(request), std::move(caller)));
}

}  // namespace fluvial::coordinator
