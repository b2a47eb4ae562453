#include "coordinator/service/admin/admin.h"

#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <limits>
#include <utility>

#include "coordinator/service/admin/resources.h"
#include "coordinator/service/backup.h"
#include "coordinator/service/machine_users.h"
#include "core/net/deadline.h"

namespace fluvial::coordinator {
namespace {

constexpr std::uint32_t kNobody = std::numeric_limits<std::uint32_t>::max();  // no user has this number

}  // namespace

void admin::add_all(Router& router) {
  for (const auto add : {add_status, add_nodes, add_tokens, add_runs, add_timeline, add_watch, add_rounds, add_models,
                         add_backup, add_events, add_page, add_audit}) {
    add(router);
  }
}

Admin::Admin(tree::Runtime& runtime, store::CoordinatorJournal& journal, store::ModelStore& models, Root& root,
             Feed& feed, Epoch epoch)
    : context_(runtime, journal, models, root, feed),
      router_(&context_),
      events_(runtime, epoch, [this](net::HttpRequest request) {
        return router_.answer(std::move(request), {.access = admin::Access::kRead});
      }) {
  context_.events = &events_;
  feed.also_to([this](const FeedLine& line) { events_.publish(line); });
  admin::add_all(router_);
}

Status Admin::open(const std::string& socket, admin::Facts facts, const AdminUsers& admin_users) {
  context_.facts = std::move(facts);
  tree::Runtime& runtime = context_.runtime;
  FLUVIAL_ASSIGN(people_, admin::People::of(::geteuid(), admin_users.users, admin_users.readers));
  context_.set_last_backup(last_backup(runtime.files, context_.facts.data_dir));
  FLUVIAL_ASSIGN(
      server_, net::HttpServer::open(runtime.io, net::UnixAddress{socket, people_.are_more_than_own() ? 0666U : 0600U},
                                     {}, runtime.hooks));
  return {};
}

net::Awaitable<void> Admin::run() {
  co_await server_->run([this](net::HttpRequest request) { return handle(std::move(request)); });
}

net::Awaitable<void> Admin::run_events() { return events_.run(); }

void Admin::stop() {
  events_.close();
  if (server_) server_->stop();
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

net::Awaitable<net::HttpResponse> Admin::handle(net::HttpRequest request) {
  const net::UnixPeer peer = request.peer.value_or(net::UnixPeer{kNobody, kNobody, 0, {}});
  request.peer = peer;
  admin::Caller caller{people_.access_of(peer), store::AuditUser{peer.uid, peer.pid, {}}, request.remote};
  if (request.method != "GET" && caller.access == admin::Access::kFull) {  // it will stand in the audit log
    const auto look_up = [&]() -> Result<std::string> { return user_name(peer.uid); };
    const Result<std::string> name = co_await context_.runtime.pool.run(look_up);
    if (name.ok()) caller.user->name = *name;
  }
  std::optional<net::HttpResponse> response;
  co_await net::asio::co_spawn(context_.runtime.strand,
                               net::detail::store(answer(std::move(request), std::move(caller)), &response),
                               net::asio::use_awaitable);
  co_return std::move(*response);
}

}  // namespace fluvial::coordinator
