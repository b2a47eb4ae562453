#include "coordinator/service/admin/router.h"

#include <gmock/gmock.h>

#include <boost/asio/awaitable.hpp>

#include "coordinator/service/admin/resources.h"
#include "core/net/test_support.h"

namespace fluvial::coordinator::admin {
namespace {

using testing::HasSubstr;

net::Awaitable<Reply> list(Context*, Call call) { co_return "list " + call.text("all"); }
net::Awaitable<Reply> watch(Context*, Call) { co_return std::string("watch"); }
net::Awaitable<Reply> show(Context*, Call call) { co_return "show " + call.names[0]; }
net::Awaitable<Reply> revoke(Context*, Call call) { co_return "revoke " + call.names[0] + call.request.body; }
net::Awaitable<Reply> fail(Context*, Call) { co_return Error{Code::kConflict, "no"}; }
net::Awaitable<net::HttpResponse> page(Context*, Call) { co_return net::HttpResponse::text(203, "<html>"); }

class RouterTest : public testing::Test {
 protected:
  RouterTest() {
    router_.get("/v1/nodes", list);
    router_.get("/v1/rounds/watch", watch);
    router_.get("/v1/rounds/{round}", show);
    router_.post("/v1/nodes/{name}/revoke", revoke);
    router_.post("/v1/fail", fail);
    router_.post_own("/v1/renew", list);
    router_.put("/v1/uploads/{upload}", show);
    router_.get("/", page);
  }

  net::HttpResponse ask(std::string method, std::string path, Access access = Access::kFull) {
    net::HttpRequest request;
    request.method = std::move(method);
    request.path = std::move(path);
    request.query["all"] = "1";
    request.body = "!";
    return threads_.run(router_.answer(std::move(request), {.access = access}));
  }

  net::Threads threads_;
  Router router_{nullptr};
};

TEST_F(RouterTest, TheFirstRouteThatFitsAnswers) {
  EXPECT_EQ(ask("GET", "/v1/nodes").body, "list 1");
  EXPECT_EQ(ask("GET", "//v1//nodes/").body, "list 1");  // empty parts do not count
  EXPECT_EQ(ask("GET", "/v1/rounds/watch").body, "watch");
  EXPECT_EQ(ask("GET", "/v1/rounds/17").body, "show 17");
  EXPECT_EQ(ask("POST", "/v1/nodes/hospital-a/revoke").body, "revoke hospital-a!");
  EXPECT_EQ(ask("GET", "/").status, 203);
}

TEST_F(RouterTest, WhoeverMayOnlyLookMayRenewWhatIsTheirsAndNothingElse) {
  EXPECT_EQ(ask("POST", "/v1/renew", Access::kRead).status, 200);
  EXPECT_EQ(ask("PUT", "/v1/uploads/a", Access::kRead).status, 403);
  EXPECT_EQ(ask("PUT", "/v1/uploads/a", Access::kFull).body, "show a");
  EXPECT_EQ(ask("POST", "/v1/renew", Access::kNone).status, 403);
}

TEST_F(RouterTest, AnErrorBecomesItsStatus) {
  const net::HttpResponse response = ask("POST", "/v1/fail");
  EXPECT_EQ(response.status, net::HttpResponse::from_error({Code::kConflict, "no"}).status);
  EXPECT_THAT(response.body, HasSubstr("\"message\": \"no\""));
}

TEST_F(RouterTest, WhatNoRouteFitsIsNotPartOfTheApi) {
  for (const char* path : {"/v1/nodes/hospital-a", "/v1", "/v1/rounds/1/2", "/v1/nodes/a/b/revoke"}) {
    const net::HttpResponse response = ask("GET", path);
    EXPECT_EQ(response.status, 404) << path;
    EXPECT_THAT(response.body, HasSubstr("is not part of the admin API")) << path;
  }
  EXPECT_EQ(ask("DELETE", "/v1/nodes").status, 404);
  EXPECT_EQ(ask("POST", "/v1/nodes").status, 404);
}

TEST_F(RouterTest, WhoMayOnlyLookChangesNothing) {
  EXPECT_EQ(ask("GET", "/v1/nodes", Access::kRead).body, "list 1");
  EXPECT_EQ(ask("POST", "/v1/nodes/hospital-a/revoke", Access::kRead).status, 403);
  EXPECT_EQ(ask("DELETE", "/v1/nodes", Access::kRead).status, 403);
  EXPECT_EQ(ask("GET", "/v1/nodes", Access::kNone).status, 403);
}

// No handler is reached: there is nothing that it could work with.
TEST(AdminRoutes, EveryOneThatChangesSomethingIsShutToReaders) {
  net::Threads threads;
  Router router(nullptr);
  add_all(router);
  std::size_t changing = 0;
  for (const Router::Path& route : router.paths()) {
    if (route.method == "GET") continue;
    EXPECT_EQ(route.own, route.path == "/v1/renew" || route.path == "/v1/plans/check")
        << route.path << ": concerns its caller alone";
    if (route.own) continue;
    ++changing;
    net::HttpRequest request;
    request.method = route.method;
    request.path = route.path;
    EXPECT_EQ(threads.run(router.answer(request, {.access = Access::kRead})).status, 403) << route.path;
  }
  EXPECT_GE(changing, 8U);
}

}  // namespace
}  // namespace fluvial::coordinator::admin
