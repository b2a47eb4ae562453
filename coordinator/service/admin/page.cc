// The console's page: `/` and `/console/NAME`.
#include <boost/asio/awaitable.hpp>
#include <utility>

#include "coordinator/console/files.h"
#include "coordinator/service/admin/resources.h"

namespace fluvial::coordinator::admin {
namespace {

// Nothing from elsewhere, nothing inline, in nobody's frame; text never becomes markup.
constexpr const char* kPolicy =
    "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'";

net::HttpResponse page(const std::string& name) {
  const console::File* file = console::find_file(name);
  if (file == nullptr) return net::HttpResponse::from_error({Code::kNotFound, "the console has no file " + name});
  net::HttpResponse response = net::HttpResponse::text(200, std::string(file->text));
  response.content_type = console::content_type_of(file->name);
  response.headers = {{"Content-Security-Policy", kPolicy},          {"Cache-Control", "no-store"},
                      {"X-Content-Type-Options", "nosniff"},         {"Referrer-Policy", "no-referrer"},
                      {"Cross-Origin-Opener-Policy", "same-origin"}, {"Cross-Origin-Resource-Policy", "same-origin"}};
  return response;
}

net::Awaitable<net::HttpResponse> index(Context*, Call) { co_return page("index.html"); }
net::Awaitable<net::HttpResponse> file(Context*, Call call) { co_return page(call.names[0]); }

}  // namespace

void add_page(Router& router) {
  router.get("/", index);
  router.get("/console/{name}", file);
}

}  // namespace fluvial::coordinator::admin
