#include "core/net/http_forward.h"

#include <boost/asio/local/stream_protocol.hpp>

#include "core/base/testing.h"
#include "core/net/deadline.h"
#include "core/net/http_test_support.h"
#include "core/net/test_support.h"

namespace fluvial::net {
namespace {

Awaitable<void> say_three(std::shared_ptr<LineWriter> out) {
  for (const char* line : {"id: 1\ndata: a\n", ": still here\n", "id: 2\ndata: b\n"}) {
    const Status written = co_await out->write_line(line);
    if (!written.ok()) co_return;
  }
}

// What arrived, in words.
Awaitable<HttpResponse> tell(HttpRequest request) {
  if (request.path == "/stream") {
    HttpResponse response;
    response.content_type = "text/event-stream";
    response.lines = say_three;
    co_return response;
  }
  if (request.path == "/large") co_return HttpResponse::text(200, std::string(3u << 20, 'x'));
  std::string text = request.method + " " + request.path + " " + request.body;
  for (const auto& [key, value] : request.query) text += " " + key + "=" + value;
  for (const auto& [name, value] : request.headers) text += " " + name + ":" + value;
  HttpResponse response = HttpResponse::text(request.path == "/gone" ? 404 : 200, std::move(text));
  response.headers = {{"Cache-Control", "no-store"}, {"Set-Cookie", "of=theirs"}};
  co_return response;
}

class Forwarding : public ::testing::Test {
 protected:
  Forwarding() {
    auto server = HttpServer::open(threads_.executor(), UnixAddress{socket()}, {}, nullptr);
    EXPECT_TRUE(server.ok());
    server_ = std::move(*server);
    serving_ = asio::co_spawn(threads_.executor(), server_->run(tell), asio::use_future);
    auto forwarder = HttpForwarder::open({"127.0.0.1", 0}, UnixAddress{socket()}, {});
    EXPECT_TRUE(forwarder.ok());
    forwarder_ = std::move(*forwarder);
  }
  ~Forwarding() override {
    forwarder_.reset();
    end_server();
  }
  void end_server() {
    server_->stop();
    if (serving_.valid()) serving_.get();
  }
  std::string socket() const { return folder_ / "admin.sock"; }
  HttpAddress address() const { return TcpAddress{"127.0.0.1", forwarder_->port()}; }
  HttpReply ask(std::string_view method, std::string_view target, std::string_view body) const {
    auto reply = http_request(address(), method, target, body, kLong);
    EXPECT_TRUE(reply.ok()) << reply.error().to_string();
    return reply.ok() ? *reply : HttpReply{};
  }

  const TemporaryFolder folder_;
  Threads threads_;
  std::shared_ptr<HttpServer> server_;
  std::future<void> serving_;
  std::unique_ptr<HttpForwarder> forwarder_;
};

TEST_F(Forwarding, CarriesRequestsAndAnswers) {
  forwarder_->start([](const HttpRequest&) { return std::nullopt; });
  const HttpReply told = ask("POST", "/a%20b/c?x=1%262&y=", "hello");
  EXPECT_EQ(told.status, 200);
  EXPECT_TRUE(told.body.starts_with("POST /a b/c hello x=1&2 y=")) << told.body;
  EXPECT_EQ(ask("GET", "/gone", "").status, 404);
  EXPECT_EQ(ask("GET", "/large", "").body.size(), 3u << 20);
}

TEST_F(Forwarding, WhatTheGateAnswersGoesNoFurther) {
  forwarder_->start([](const HttpRequest& request) -> std::optional<HttpResponse> {
    if (request.path == "/open") return std::nullopt;
    return HttpResponse::text(403, "not here");
  });
  EXPECT_EQ(ask("GET", "/open", "").status, 200);
  const HttpReply refused = ask("GET", "/anything", "");
  EXPECT_EQ(refused.status, 403);
  EXPECT_EQ(refused.body, "not here");
}

TEST_F(Forwarding, CookiesStayHereAndTheServersOwnDoToo) {
  HttpRequest request;
  request.method = "GET";
  request.path = "/x";
  request.headers = {{"cookie", "session=secret"}, {"origin", "http://127.0.0.1:1"}, {"last-event-id", "7-1"}};
  const HttpResponse response = threads_.run(forward_request(UnixAddress{socket()}, request, kLong));
  EXPECT_EQ(response.body.find("secret"), std::string::npos) << response.body;
  EXPECT_EQ(response.body.find("origin"), std::string::npos) << response.body;
  EXPECT_NE(response.body.find("last-event-id:7-1"), std::string::npos) << response.body;
  const std::vector<std::pair<std::string, std::string>> kept = {{"cache-control", "no-store"}};
  EXPECT_EQ(response.headers, kept);
}

TEST_F(Forwarding, StreamsLineByLine) {
  forwarder_->start([](const HttpRequest&) { return std::nullopt; });
  std::vector<std::string> lines;
  const auto reply = http_get_lines(address(), "/stream", [&](std::string_view line) {
    lines.emplace_back(line);
    return true;
  });
  EXPECT_TRUE(reply.ok());
  const std::vector<std::string> expected = {"id: 1", "data: a", "", ": still here", "", "id: 2", "data: b", ""};
  EXPECT_EQ(lines, expected);
}

TEST_F(Forwarding, NobodyBehindItIsSaid) {
  forwarder_->start([](const HttpRequest&) { return std::nullopt; });
  end_server();
  const HttpReply reply = ask("GET", "/x", "");
  EXPECT_EQ(reply.status, 503);
  EXPECT_NE(reply.body.find("no coordinator answers at " + socket()), std::string::npos) << reply.body;
}

}  // namespace
}  // namespace fluvial::net
