#include "coordinator/service/admin/router.h"

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <optional>

#include "core/base/printable.h"

namespace fluvial::coordinator::admin {
namespace {

std::vector<std::string> split_path(std::string_view path) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  while (begin < path.size()) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    if (end > begin) parts.emplace_back(path.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

bool is_placeholder(const std::string& part) { return part.front() == '{'; }

// What stands for the route's placeholders; none: the path is another.
std::optional<std::vector<std::string>> match(const std::vector<std::string>& route,
                                              const std::vector<std::string>& path) {
  if (route.size() != path.size()) return std::nullopt;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < route.size(); ++i) {
    if (is_placeholder(route[i])) {
      names.push_back(path[i]);
    } else if (route[i] != path[i]) {
      return std::nullopt;
    }
  }
  return names;
}

net::Awaitable<net::HttpResponse> as_json(net::Awaitable<Reply> made) {
  Reply reply = co_await std::move(made);
  if (!reply.ok()) co_return net::HttpResponse::from_error(reply.error());
  co_return net::HttpResponse::json(std::move(*reply));
}

}  // namespace

Router::Answer Router::answer_with(Handler handler) const {
  return [context = context_, handler](Call call) { return as_json(handler(context, std::move(call))); };
}

Router::Answer Router::respond_with(ResponseHandler handler) const {
  return [context = context_, handler](Call call) { return handler(context, std::move(call)); };
}

void Router::add(std::string_view method, std::string_view path, Answer answer, bool own) {
  routes_.push_back({method, std::string(path), split_path(path), std::move(answer), own});
}

std::vector<Router::Path> Router::paths() const {
  std::vector<Path> paths;
  for (const Route& route : routes_) paths.push_back({route.method, route.path, route.own});
  return paths;
}

net::Awaitable<net::HttpResponse> Router::answer(net::HttpRequest request, Caller caller) const {
  const bool may_change = caller.access == Access::kFull;
  if (caller.access == Access::kNone) co_return net::HttpResponse::from_error(may_not_change(caller));
  const std::vector<std::string> path = split_path(request.path);
  for (const Route& route : routes_) {
    if (route.method != request.method) continue;
    std::optional<std::vector<std::string>> names = match(route.parts, path);
    if (!names) continue;
    if (!may_change && request.method != "GET" && !route.own) break;
    Call call{std::move(request), std::move(*names), std::move(caller)};
    co_return co_await route.answer(std::move(call));
  }
  if (!may_change && request.method != "GET") co_return net::HttpResponse::from_error(may_not_change(caller));
  const Error unknown{Code::kNotFound, printable(request.method, 20) + " " + printable(request.path, 200) +
                                           " is not part of the admin API"};
  co_return net::HttpResponse::from_error(unknown);
}

}  // namespace fluvial::coordinator::admin
