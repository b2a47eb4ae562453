#include "coordinator/service/admin/admin.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <utility>

#include "coordinator/service/admin/resources.h"
#include "coordinator/service/backup.h"
#include "core/net/deadline.h"

namespace fluvial::coordinator {

Admin::Admin(tree::Runtime& runtime, store::CoordinatorJournal& journal, store::ModelStore& models, Root& root,
             Feed& feed, Epoch epoch)
    : context_(runtime, journal, models, root, feed),
      router_(&context_),
      events_(runtime, epoch, [this](net::HttpRequest request) { return router_.answer(std::move(request)); }) {
  context_.events = &events_;
  feed.also_to([this](const FeedLine& line) { events_.publish(line); });
  admin::add_status(router_);
  admin::add_nodes(router_);
  admin::add_tokens(router_);
  admin::add_runs(router_);
  admin::add_timeline(router_);
  admin::add_watch(router_);
  admin::add_rounds(router_);
  admin::add_models(router_);
  admin::add_backup(router_);
  admin::add_events(router_);
  admin::add_page(router_);
}

Status Admin::open(const std::string& socket, admin::Facts facts) {
  context_.facts = std::move(facts);
  tree::Runtime& runtime = context_.runtime;
  context_.set_last_backup(last_backup(runtime.files, context_.facts.data_dir));
  FLUVIAL_ASSIGN(server_, net::HttpServer::open(runtime.io, net::UnixAddress{socket}, {}, runtime.hooks));
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

net::Awaitable<net::HttpResponse> Admin::handle(net::HttpRequest request) {
  std::optional<net::HttpResponse> response;
  co_await net::asio::co_spawn(context_.runtime.strand,
                               net::detail::store(router_.answer(std::move(request)), &response),
                               net::asio::use_awaitable);
  co_return std::move(*response);
}

}  // namespace fluvial::coordinator
