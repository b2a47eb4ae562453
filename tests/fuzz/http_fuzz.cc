// The admin API's texts: targets of requests, which handler a path means, numbers in queries, JSON bodies, and what the
// answer to any of it is. A target is read again as the same, a path's handler is the one that a reader of its own
// finds, and every answer is JSON that others can read.
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/json.hpp>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "coordinator/service/admin/request.h"
#include "coordinator/service/admin/router.h"
#include "core/net/http_text.h"
#include "core/store/plan_json.h"
#include "tests/fuzz/errors.h"
#include "tests/fuzz/input.h"

namespace fluvial::fuzz {
namespace {

namespace admin = coordinator::admin;
namespace json = boost::json;

std::string_view view(const json::string& text) { return {text.data(), text.size()}; }

// ---- targets -----------------------------------------------------------------------------------------------------

void read_target(std::string_view text) {
  const auto target = net::parse_target(text);
  check_error(target);
  if (!target.ok()) return;
  FLUVIAL_CHECK(target->path.size() + target->query.size() <= text.size(), "more than was asked for");
  const std::string own = net::to_target(*target);
  FLUVIAL_CHECK(own.find_first_of(" \r\n\t") == std::string::npos && own.starts_with("/"), "a target in one word");
  const auto again = net::parse_target(own);
  FLUVIAL_CHECK(again.ok() && again->path == target->path && again->query == target->query,
                "a target is read again as another");
}

// ---- answers -----------------------------------------------------------------------------------------------------

void check_answer(const net::HttpResponse& answer) {
  FLUVIAL_CHECK(answer.status >= 200 && answer.status < 600, "a status");
  FLUVIAL_CHECK(answer.body.size() < 16'384, "an answer as long as its request");
  json::error_code failed;
  const json::value said = json::parse(answer.body, failed);
  FLUVIAL_CHECK(!failed && said.is_object(), "an answer that is not JSON");
  if (answer.status == 200) return;
  const json::object& object = said.as_object();
  FLUVIAL_CHECK(object.contains("code") && !view(object.at("message").as_string()).empty(), "an error says what");
}

// Every error becomes an answer.
void answer_error(std::string_view message) {
  for (int code = 1; code <= static_cast<int>(Code::kConflict); ++code) {
    check_answer(net::HttpResponse::from_error({static_cast<Code>(code), "x" + std::string(message)}));
  }
}

// ---- routes ------------------------------------------------------------------------------------------------------

constexpr std::string_view kRoutes[] = {
    "/", "/v1/nodes", "/v1/rounds/watch", "/v1/rounds/{round}", "/v1/nodes/{name}/revoke", "/v1/runs/{run}/{command}"};

std::string answer_of(std::size_t route, const std::vector<std::string>& names) {
  json::array said;
  for (const std::string& name : names) said.emplace_back(to_hex(as_byte_span(name)));
  return json::serialize(json::object{{"route", route}, {"names", std::move(said)}});
}

template <std::size_t kRoute>
net::Awaitable<admin::Reply> answer(admin::Context*, admin::Call call) {
  co_return answer_of(kRoute, call.names);
}

admin::Router make_router() {
  admin::Router router(nullptr);
  router.get(kRoutes[0], answer<0>);
  router.get(kRoutes[1], answer<1>);
  router.get(kRoutes[2], answer<2>);
  router.get(kRoutes[3], answer<3>);
  router.post(kRoutes[4], answer<4>);
  router.post(kRoutes[5], answer<5>);
  return router;
}

net::HttpResponse ask(net::HttpRequest request, admin::Access access) {
  static const admin::Router router = make_router();
  static boost::asio::io_context context;
  std::optional<net::HttpResponse> answered;
  context.restart();
  boost::asio::co_spawn(context, router.answer(std::move(request), {.access = access}),
                        [&](std::exception_ptr, net::HttpResponse response) { answered = std::move(response); });
  context.run();
  return std::move(answered).value();
}

std::vector<std::string> parts_of(std::string_view path) {
  std::vector<std::string> parts(1);
  for (const char c : path) {
    if (c != '/') {
      parts.back() += c;
    } else if (!parts.back().empty()) {
      parts.emplace_back();
    }
  }
  if (parts.back().empty()) parts.pop_back();
  return parts;
}

std::optional<std::string> expected(const net::HttpRequest& request) {
  const std::vector<std::string> path = parts_of(request.path);
  for (std::size_t i = 0; i < std::size(kRoutes); ++i) {
    const std::vector<std::string> route = parts_of(kRoutes[i]);
    if (request.method != (i < 4 ? "GET" : "POST") || route.size() != path.size()) continue;
    std::vector<std::string> names;
    bool fits = true;
    for (std::size_t j = 0; j < route.size(); ++j) {
      if (route[j].starts_with("{")) {
        names.push_back(path[j]);
      } else {
        fits = fits && route[j] == path[j];
      }
    }
    if (fits) return answer_of(i, names);
  }
  return std::nullopt;
}

void route(Input& input) {
  constexpr const char* kMethods[] = {"GET", "POST", "DELETE", "get"};
  net::HttpRequest request;
  request.method = input.below(16) == 0 ? input.text() : kMethods[input.below(4)];
  const auto access = static_cast<admin::Access>(input.below(3));
  for (std::size_t parts = input.below(6); parts > 0; --parts) {
    constexpr const char* kParts[] = {"v1", "nodes", "rounds", "watch", "revoke", "runs", "hospital-a", ""};
    request.path += "/" + (input.below(4) == 0 ? input.text() : kParts[input.below(std::size(kParts))]);
  }
  const std::optional<std::string> routed = expected(request);
  const bool may = access == admin::Access::kFull || (access == admin::Access::kRead && request.method == "GET");
  const net::HttpResponse answer = ask(request, access);
  check_answer(answer);
  FLUVIAL_CHECK((answer.status == 200) == (may && routed.has_value()),
                "answered to somebody else, or for another path");
  if (answer.status == 200) FLUVIAL_CHECK(answer.body == *routed, "another handler");
  if (!may) FLUVIAL_CHECK(answer.status == 403, "told what is there to whom it is shut");
}

// ---- queries and bodies ------------------------------------------------------------------------------------------

void read_number(const std::string& text) {
  const auto number = admin::to_number("since", text);
  check_error(number);
  const bool digits = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  FLUVIAL_CHECK(digits || !number.ok(), "a number that is none");
  if (!digits || text.size() > 19) return;
  FLUVIAL_CHECK(number.ok() && *number == std::strtoull(text.c_str(), nullptr, 10), "another number");
}

void read_body(const std::string& body) {
  const auto object = admin::parse_object(body);
  check_error(object);
  json::error_code failed;
  const json::value other = json::parse(body, failed);
  FLUVIAL_CHECK(object.ok() == (!failed && other.is_object()), "a body that is an object is refused, or another taken");
  if (!object.ok()) return;
  for (const char* key : {"name", "role", "region", "model", "reason"}) {
    const auto text = admin::text_of(*object, key, "otherwise");
    check_error(text);
    const json::value* const said = other.as_object().if_contains(key);
    const bool is_there = said != nullptr && !said->is_null();
    FLUVIAL_CHECK(text.ok() == (!is_there || said->is_string()), "a text that is none");
    if (text.ok()) FLUVIAL_CHECK(*text == (is_there ? view(said->as_string()) : "otherwise"), "another text");
  }
  for (const char* key : {"weight_max", "uses", "valid_s", "continue"}) {
    const auto number = admin::number_of(*object, key, 17);
    check_error(number);
    const json::value* const said = other.as_object().if_contains(key);
    if (number.ok() && said != nullptr && !said->is_null()) {
      FLUVIAL_CHECK(said->to_number<std::uint64_t>() == *number, "another number");
    }
  }
  if (object->contains("plan")) check_error(store::plan_from_json(json::serialize(object->at("plan"))));
}

void run(ByteSpan bytes) {
  Input input(bytes);
  switch (input.below(5)) {
    case 0: return read_target(as_text(input.rest()));
    case 1: return route(input);
    case 2: return answer_error(as_text(input.rest()));
    case 3: return read_number(std::string(as_text(input.rest())));
    default: return read_body(std::string(as_text(input.rest())));
  }
}

}  // namespace
}  // namespace fluvial::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fluvial::fuzz::run(std::as_bytes(std::span(data, size)));
  return 0;
}
