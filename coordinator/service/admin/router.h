// Which handler answers which request. A path's parts are literal, or a name in braces that stands for any one part:
// "/v1/nodes/{name}/revoke". The first route that fits answers, so what is literal is added before what is not.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "coordinator/service/admin/request.h"
#include "core/net/awaitable.h"
#include "core/net/http.h"

namespace fluvial::coordinator::admin {

struct Context;

using Reply = Result<std::string>;  // the text of a JSON answer, or what became of the request instead
// A handler runs on the node's strand, and the context outlives it.
using Handler = net::Awaitable<Reply> (*)(Context*, Call);
// One whose answer is not a JSON text: it streams, or is a page.
using ResponseHandler = net::Awaitable<net::HttpResponse> (*)(Context*, Call);

class Router {
 public:
  explicit Router(Context* context) : context_(context) {}

  void get(std::string_view path, Handler handler) { add("GET", path, answer_with(handler)); }
  void get(std::string_view path, ResponseHandler handler) { add("GET", path, respond_with(handler)); }
  void post(std::string_view path, Handler handler) { add("POST", path, answer_with(handler)); }
  void put(std::string_view path, Handler handler) { add("PUT", path, answer_with(handler)); }
  void post(std::string_view path, ResponseHandler handler) { add("POST", path, respond_with(handler)); }

  // That concerns nobody but the caller: whoever may look may ask for it, too.
  void post_own(std::string_view path, Handler handler) { add("POST", path, answer_with(handler), true); }

  // kNotFound when no route fits; kPermissionDenied when it changes something and the caller may not.
  net::Awaitable<net::HttpResponse> answer(net::HttpRequest request, Caller caller) const;

  struct Path {
    std::string_view method;
    std::string path;
    bool own = false;
  };
  std::vector<Path> paths() const;  // of every route

 private:
  using Answer = std::function<net::Awaitable<net::HttpResponse>(Call)>;
  struct Route {
    std::string_view method;
    std::string path;
    std::vector<std::string> parts;
    Answer answer;
    bool own = false;
  };
  Answer answer_with(Handler handler) const;
  Answer respond_with(ResponseHandler handler) const;
  void add(std::string_view method, std::string_view path, Answer answer, bool own = false);

  Context* context_;
  std::vector<Route> routes_;
};

}  // namespace fluvial::coordinator::admin
