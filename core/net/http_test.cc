#include "core/net/http.h"

#include <sys/stat.h>

#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "core/base/testing.h"
#include "core/net/deadline.h"
#include "core/net/http_test_support.h"
#include "core/net/http_text.h"
#include "core/net/test_support.h"

namespace fluvial::net {
namespace {

// Counts up to a number, one line each.
Awaitable<void> count_lines(std::shared_ptr<LineWriter> out, int count) {
  for (int i = 0; i < count; ++i) {
    const Status written = co_await out->write_line("line " + std::to_string(i));
    if (!written.ok()) co_return;
  }
}

Awaitable<HttpResponse> answer(HttpRequest request) {
  if (request.path == "/echo") co_return HttpResponse::text(200, request.method + " " + request.body);
  if (request.path == "/query") co_return HttpResponse::text(200, request.query["a b"]);
  if (request.path == "/throw") throw std::runtime_error("no such luck");
  if (request.path == "/slow") {
    co_await sleep_for(std::chrono::hours(10));
  }
  if (request.path == "/lines" || request.path == "/endless") {
    HttpResponse response;
    response.content_type = "application/x-ndjson";
    if (request.path == "/lines") {
      response.lines = [](std::shared_ptr<LineWriter> out) { return count_lines(std::move(out), 1000); };
    } else {
      response.lines = write_until_refused;
    }
    co_return response;
  }
  co_return HttpResponse::from_error({Code::kNotFound, "no \"page\" here"});
}

class HttpTestServer {
 public:
  HttpTestServer(Threads& threads, HttpAddress address, HttpSettings settings = {}) : address_(std::move(address)) {
    auto opened = HttpServer::open(threads.executor(), address_, settings, hooks_);
    EXPECT_TRUE(opened.ok()) << opened.error().to_string();
    server_ = std::move(*opened);
    if (auto* tcp = std::get_if<TcpAddress>(&address_)) tcp->port = server_->port();
    const auto count = [this](HttpRequest request) {
      ++asked_;
      return answer(std::move(request));
    };
    running_ = asio::co_spawn(threads.executor(), server_->run(count), asio::use_future);
  }
  ~HttpTestServer() { stop(); }
  void stop() {
    server_->stop();
    if (running_.valid()) running_.get();
  }
  const HttpAddress& address() const { return address_; }
  RecordingHooks& hooks() { return *hooks_; }
  int asked() const { return asked_; }  // requests so far
  HttpReply get(std::string_view target) const { return ask("GET", target, ""); }
  HttpReply ask(std::string_view method, std::string_view target, std::string_view body) const {
    auto reply = http_request(address_, method, target, body, kLong);
    EXPECT_TRUE(reply.ok()) << reply.error().to_string();
    return reply.ok() ? *reply : HttpReply{};
  }

 private:
  HttpAddress address_;
  std::atomic<int> asked_ = 0;
  std::shared_ptr<RecordingHooks> hooks_ = std::make_shared<RecordingHooks>();
  std::shared_ptr<HttpServer> server_;
  std::future<void> running_;
};

const HttpAddress kLoopback = TcpAddress{"127.0.0.1", 0};

TEST(Http, AnswersOverTcp) {
  Threads threads;
  HttpTestServer server(threads, kLoopback);
  EXPECT_EQ(server.ask("POST", "/echo", "hello").body, "POST hello");
  EXPECT_EQ(server.get("/query?a%20b=c%2Fd&x=y").body, "c/d");
  const HttpReply missing = server.get("/nothing");
  EXPECT_EQ(missing.status, 404);
  EXPECT_EQ(missing.body, "{\"code\": \"not_found\", \"message\": \"no \\\"page\\\" here\"}\n");
  EXPECT_EQ(server.get("/%zz").status, 400);
}

TEST(Http, AHandlersExceptionIsAnAnswerToo) {
  Threads threads;
  HttpTestServer server(threads, kLoopback);
  EXPECT_EQ(server.get("/throw").status, 500);
  server.hooks().wait([](const RecordingHooks& seen) { return seen.handlers_failed == 1; });
  EXPECT_EQ(server.get("/echo").status, 200);
}

TEST(Http, OversizeRequestsAreRefused) {
  Threads threads;
  HttpTestServer server(threads, kLoopback, {.header_bytes_max = 1000, .body_bytes_max = 1000});
  EXPECT_EQ(server.ask("POST", "/echo", std::string(1000, 'x')).status, 200);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(server.ask("POST", "/echo", std::string(1001 + 5'000 * i, 'x')).status, 413);
  EXPECT_EQ(server.get("/echo?" + std::string(2000, 'x')).status, 431);
}

TEST(Http, ConnectionsThatAskNothingGiveWayToThoseThatDo) {
  Threads threads;
  HttpTestServer server(threads, kLoopback, {.connections_max = 4});
  const auto& address = std::get<TcpAddress>(server.address());
  asio::io_context context;
  std::vector<asio::ip::tcp::socket> idle;
  for (int i = 0; i < 4; ++i) {
    idle.emplace_back(context).connect({asio::ip::address_v4::loopback(), address.port});
    if (i % 2 == 0) asio::write(idle.back(), asio::buffer(std::string_view("GET / HT")));
  }
  for (int i = 0; i < 10; ++i) EXPECT_EQ(server.get("/echo").status, 200);
  server.hooks().wait_refused(reason::kGaveWay);
  EXPECT_EQ(server.hooks().count(reason::kTooManySessions), 0);
}

TEST(Http, ConnectionsThatTakeNoAnswerGiveWayToThoseThatDo) {
  Threads threads;
  HttpTestServer server(threads, kLoopback, {.connections_max = 4});
  const auto& address = std::get<TcpAddress>(server.address());
  asio::io_context context;
  std::vector<asio::ip::tcp::socket> deaf;
  for (int i = 0; i < 4; ++i) {
    deaf.emplace_back(context).connect({asio::ip::address_v4::loopback(), address.port});
    asio::write(deaf.back(), asio::buffer(std::string_view("GET /endless HTTP/1.1\r\nHost: x\r\n\r\n")));
  }
  // Once the sockets' buffers are full nothing is taken any more.
  Result<HttpReply> reply = Error{Code::kUnavailable, "not asked yet"};
  look_until([&] {
    reply = http_request(server.address(), "GET", "/echo", "", std::chrono::seconds(2));
    return reply.ok();
  });
  EXPECT_EQ(reply->status, 200);
  server.hooks().wait_refused(reason::kGaveWay);
}

TEST(Http, OneAddressThatHoldsEveryPlaceKeepsNoOtherOut) {
  Threads threads;
  HttpTestServer server(threads, kLoopback, {.connections_max = 4, .stop_deadline = std::chrono::milliseconds(20)});
  const auto& address = std::get<TcpAddress>(server.address());
  const asio::ip::tcp::endpoint from(asio::ip::make_address_v4("127.0.0.66"), 0);
  asio::io_context context;
  std::vector<asio::ip::tcp::socket> greedy;
  for (int i = 0; i < 5; ++i) {
    greedy.emplace_back(context, from.protocol()).bind(from);
    greedy.back().connect({asio::ip::address_v4::loopback(), address.port});
    asio::write(greedy.back(), asio::buffer(std::string_view("GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")));
    if (i == 3) look_until([&] { return server.asked() == 4; });  // all of them are being answered
  }
  server.hooks().wait_refused(reason::kTooManySessions);
  EXPECT_EQ(server.get("/echo").status, 200);
  server.hooks().wait_refused(reason::kGaveWay);
  EXPECT_EQ(server.get("/echo").status, 200);
}

TEST(Http, AConnectionThatAsksNothingIsClosedSoon) {
  Threads threads;
  HttpTestServer server(threads, kLoopback, {.header_deadline = std::chrono::milliseconds(500)});
  const auto& address = std::get<TcpAddress>(server.address());
  asio::io_context context;
  for (const std::string_view start : {"", "GET / HT"}) {
    asio::ip::tcp::socket client(context);
    client.connect({asio::ip::address_v4::loopback(), address.port});
    if (!start.empty()) asio::write(client, asio::buffer(start));
    std::string answer;
    boost::system::error_code error;
    asio::read(client, asio::dynamic_buffer(answer), error);
    EXPECT_EQ(error, asio::error::eof);
    EXPECT_EQ(answer.find("408") != std::string::npos, !start.empty()) << answer;
  }
}

TEST(Http, StreamsLines) {
  Threads threads;
  HttpTestServer server(threads, kLoopback);
  int count = 0;
  const auto reply = http_get_lines(server.address(), "/lines", [&](std::string_view line) {
    EXPECT_EQ(line, "line " + std::to_string(count));
    ++count;
    return true;
  });
  ASSERT_TRUE(reply.ok()) << reply.error().to_string();
  EXPECT_EQ(reply->status, 200);
  EXPECT_EQ(count, 1000);
  const auto missing = http_get_lines(server.address(), "/nothing", [](std::string_view) { return true; });
  EXPECT_EQ(missing->status, 404);
  EXPECT_NE(missing->body.find("not_found"), std::string::npos);
}

TEST(Http, AReaderMayLeaveAStream) {
  Threads threads;
  HttpTestServer server(threads, kLoopback);
  int count = 0;
  const auto reply = http_get_lines(server.address(), "/endless", [&](std::string_view) { return ++count < 10; });
  EXPECT_TRUE(reply.ok());
  EXPECT_EQ(count, 10);
  EXPECT_EQ(server.get("/echo").status, 200);
}

TEST(Http, AUnixSocketIsForItsOwnerAlone) {
  Threads threads;
  const TemporaryFolder folder;
  const std::string path = folder / "admin.sock";
  {
    HttpTestServer server(threads, UnixAddress{path});
    struct stat found{};
    ASSERT_EQ(::stat(path.c_str(), &found), 0);
    EXPECT_EQ(found.st_mode & 0777, 0600u);
    EXPECT_EQ(server.ask("PUT", "/echo", "x").body, "PUT x");
    const auto second = HttpServer::open(threads.executor(), UnixAddress{path}, {}, nullptr);
    ASSERT_FALSE(second.ok());
    EXPECT_NE(second.error().message.find("another process listens there"), std::string::npos);
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(Http, AStaleUnixSocketIsReplacedAndAnyOtherFileIsNot) {
  Threads threads;
  const TemporaryFolder folder;
  const std::string path = folder / "admin.sock";
  {
    asio::io_context context;
    asio::local::stream_protocol::acceptor left_behind(context, path);  // closes, and leaves its file
  }
  ASSERT_TRUE(std::filesystem::exists(path));
  {
    HttpTestServer server(threads, UnixAddress{path});
  }
  std::ofstream(folder / "data") << "precious";
  EXPECT_FALSE(HttpServer::open(threads.executor(), UnixAddress{folder / "data"}, {}, nullptr).ok());
  EXPECT_TRUE(std::filesystem::exists(folder / "data"));
  const std::string long_path = folder / std::string(120, 'x');
  EXPECT_FALSE(HttpServer::open(threads.executor(), UnixAddress{long_path}, {}, nullptr).ok());
}

TEST(Http, RequestsFollowEachOtherBeforeTheirAnswers) {
  Threads threads;
  HttpTestServer server(threads, kLoopback);
  const auto pipe = HttpPipe::open(server.address(), kLong);
  ASSERT_TRUE(pipe.ok());
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE((*pipe)->send("PUT", "/echo", std::string(10'000, static_cast<char>('a' + i))).ok());
  }
  for (int i = 0; i < 20; ++i) {
    const Result<HttpReply> reply = (*pipe)->receive();
    ASSERT_TRUE(reply.ok()) << reply.error().to_string();
    EXPECT_EQ(reply->body, "PUT " + std::string(10'000, static_cast<char>('a' + i)));
  }
}

TEST(Http, AnAnswerThatIsLostIsTold) {
  Threads threads;
  HttpTestServer server(threads, kLoopback);
  int lines = 0;
  ASSERT_TRUE(http_get_lines(server.address(), "/endless", [&](std::string_view) { return ++lines < 10; }).ok());
  server.hooks().wait([](const RecordingHooks& seen) { return seen.answers_lost == 1; });
}

TEST(Http, NobodyThereIsUnavailable) {
  const TemporaryFolder folder;
  const auto none = http_request(UnixAddress{folder / "none.sock"}, "GET", "/", "", kLong);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, Code::kUnavailable);
  EXPECT_NE(none.error().message.find("none.sock"), std::string::npos);
}

TEST(Http, TheClientHasADeadline) {
  Threads threads;
  HttpTestServer server(threads, kLoopback, {.stop_deadline = std::chrono::milliseconds(20)});
  const auto late = http_request(server.address(), "GET", "/slow", "", std::chrono::milliseconds(20));
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code, Code::kDeadlineExceeded);
  server.stop();  // cancels what still runs
}

TEST(HttpText, WritesTargetsAsItReadsThem) {
  const HttpTarget target{"/a b/c?/\xc3\xa9", {{"x&y", "1=2"}, {"z", ""}}};
  EXPECT_EQ(to_target(target), "/a%20b/c%3F/%C3%A9?x%26y=1%3D2&z=");
  const auto back = parse_target(to_target(target));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->path, target.path);
  EXPECT_EQ(back->query, target.query);
}

TEST(HttpText, AnErrorsAnswerIsJsonWhateverItIsAbout) {
  const HttpResponse response = HttpResponse::from_error({Code::kNotFound, "GET /\xff\"\n\x1b is not there"});
  EXPECT_EQ(response.body, "{\"code\": \"not_found\", \"message\": \"GET /?\\\"   is not there\"}\n");
  EXPECT_LT(HttpResponse::from_error({Code::kNotFound, std::string(1 << 20, 'x')}).body.size(), 5'000U);
}

TEST(HttpText, ReadsTargets) {
  const auto target = parse_target("/a%2Fb/c?x=1&y=&z&%41=%42");
  ASSERT_TRUE(target.ok());
  EXPECT_EQ(target->path, "/a/b/c");
  EXPECT_EQ(target->query, (std::map<std::string, std::string>{{"x", "1"}, {"y", ""}, {"z", ""}, {"A", "B"}}));
  for (const std::string_view bad : {"", "a", "*", "http://x/", "/%", "/%1", "/%g0", "/?%", "/?a=%q"}) {
    EXPECT_FALSE(parse_target(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace fluvial::net
