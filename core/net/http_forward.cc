#include "core/net/http_forward.h"

#include <array>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <set>
#include <thread>
#include <utility>

#include "core/net/await_tuple.h"
#include "core/net/connector.h"
#include "core/net/deadline.h"
#include "core/net/greeting.h"
#include "core/net/http_fields.h"
#include "core/net/http_text.h"
#include "core/net/tls_bridge.h"

namespace fluvial::net {
namespace {

namespace http = boost::beast::http;
using Local = asio::local::stream_protocol;
using ErrorCode = boost::system::error_code;
using Parser = http::response_parser<http::buffer_body>;

constexpr Duration kSilenceMax = std::chrono::minutes(2);  // of a server that streams: its heartbeats come far sooner
constexpr std::size_t kForwardedLineBytesMax = 16u << 20;

std::string place_of(const HttpAddress& server) {
  if (const auto* tls = std::get_if<TlsAddress>(&server)) return to_string(HostPort{tls->at.host, tls->at.port});
  return std::get<UnixAddress>(server).path;
}

HttpResponse unreachable(const HttpAddress& server, const std::string& why) {
  return HttpResponse::from_error(
      {Code::kUnavailable, "no coordinator answers at " + place_of(server) + " (" + why + ")"});
}

// A request that is on its way, and the answer as far as it is here.
class Exchange {
 public:
  explicit Exchange(const Executor& executor) : socket_(executor) { parser_.body_limit(boost::none); }
  ~Exchange() {
    if (bridge_) bridge_->cut();
  }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  // Until the answer's header is here.
  Awaitable<Status> ask(HttpAddress server, http::request<http::string_body> request);
  const Parser::value_type& head() const { return parser_.get(); }
  bool is_done() const { return parser_.is_done(); }
  Awaitable<Result<std::string>> read_some();

 private:
  Awaitable<Status> reach(TlsAddress server);

  Local::socket socket_;  // to the server, or to the bridge
  std::shared_ptr<TlsBridge> bridge_;
  boost::beast::flat_buffer buffer_;
  Parser parser_;
  std::array<char, 16 * 1024> block_;
};

Status failed(const ErrorCode& error) { return Error{Code::kUnavailable, error.message()}; }

// A certificate that the server refuses shows as an answer that ends before it has begun.
Awaitable<Status> Exchange::reach(TlsAddress server) {
  const Executor executor = socket_.get_executor();
  asio::ip::tcp::resolver resolver(executor);
  const auto [unknown, found] =
      co_await resolver.async_resolve(server.at.host, std::to_string(server.at.port), kAwaitTuple);
  if (unknown) co_return failed(unknown);
  asio::ip::tcp::socket socket(executor);
  const auto [not_connected, endpoint] = co_await asio::async_connect(socket, found, kAwaitTuple);
  if (not_connected) co_return failed(not_connected);
  FLUVIAL_CO_ASSIGN(Greeted greeted, co_await greet_server(std::move(socket), server.tls, describe(endpoint)));
  FLUVIAL_CO_TRY(identity::may_speak_as(*greeted.peer, Role::kCoordinator));
  FLUVIAL_CO_ASSIGN(bridge_, TlsBridge::make(std::move(greeted.stream)));
  socket_ = bridge_->take_plain();
  asio::co_spawn(executor, TlsBridge::carry(bridge_, kSilenceMax), asio::detached);
  co_return Status{};
}

Awaitable<Status> Exchange::ask(HttpAddress server, http::request<http::string_body> request) {
  if (const auto* tls = std::get_if<TlsAddress>(&server)) {
    FLUVIAL_CO_TRY(co_await reach(*tls));
  } else {
    const Local::endpoint endpoint(std::get<UnixAddress>(server).path);
    const auto [not_connected] = co_await socket_.async_connect(endpoint, kAwaitTuple);
    if (not_connected) co_return failed(not_connected);
  }
  const auto [not_written, written] = co_await http::async_write(socket_, request, kAwaitTuple);
  if (not_written) co_return failed(not_written);
  const auto [not_read, read] = co_await http::async_read_header(socket_, buffer_, parser_, kAwaitTuple);
  if (not_read) co_return failed(not_read);
  co_return Status{};
}

Awaitable<Result<std::string>> Exchange::read_some() {
  parser_.get().body().data = block_.data();
  parser_.get().body().size = block_.size();
  const auto [error, count] = co_await http::async_read_some(socket_, buffer_, parser_, kAwaitTuple);
  if (error && error != http::error::need_buffer) co_return Error{Code::kUnavailable, error.message()};
  co_return std::string(block_.data(), block_.size() - parser_.get().body().size);
}

// Hands on whole lines as they come.
Awaitable<void> hand_on_lines(std::shared_ptr<Exchange> exchange, std::shared_ptr<LineWriter> out) {
  std::string text;
  while (!exchange->is_done() && text.size() <= kForwardedLineBytesMax) {
    const Result<std::string> more = co_await with_deadline(exchange->read_some(), kSilenceMax);
    if (!more.ok()) co_return;
    text += *more;
    const std::size_t end = text.rfind('\n');
    if (end == std::string::npos) continue;
    const Status written = co_await out->write_line(text.substr(0, end));
    if (!written.ok()) co_return;  // the browser is gone; its connection says so
    text.erase(0, end + 1);
  }
}

Awaitable<Result<std::string>> read_all(std::shared_ptr<Exchange> exchange) {
  std::string text;
  while (!exchange->is_done()) {
    Result<std::string> more = co_await exchange->read_some();
    if (!more.ok()) co_return more.error();
    if (text.size() + more->size() > kForwardedBytesMax) {
      co_return Error{Code::kResourceExhausted, "the answer is larger than 64 MiB"};
    }
    text += *more;
  }
  co_return text;
}

http::request<http::string_body> message_of(HttpRequest request) {
  http::request<http::string_body> message;
  message.version(11);
  message.method_string(request.method);
  message.target(to_target({request.path, request.query}));
  message.set(http::field::host, "localhost");
  for (const char* name : {"accept", "last-event-id"}) {
    if (!request.header(name).empty()) message.set(name, request.header(name));
  }
  message.keep_alive(false);
  message.body() = std::move(request.body);
  message.prepare_payload();
  return message;
}

HttpResponse response_of(const Parser::value_type& head) {
  static const std::set<std::string> kOfThisConnection = {"connection", "content-length", "content-type",
                                                          "keep-alive", "set-cookie",     "transfer-encoding"};
  HttpResponse response;
  response.status = static_cast<int>(head.result_int());
  response.content_type = std::string(head[http::field::content_type]);
  for (const auto& [name, value] : headers_of(head)) {
    if (!kOfThisConnection.contains(name)) response.headers.emplace_back(name, value);
  }
  return response;
}

}  // namespace

Awaitable<HttpResponse> forward_request(HttpAddress server, HttpRequest request, Duration deadline) {
  const auto exchange = std::make_shared<Exchange>(co_await asio::this_coro::executor);
  const Status asked = co_await with_deadline(exchange->ask(server, message_of(std::move(request))), deadline);
  if (!asked.ok()) co_return unreachable(server, asked.error().message);
  HttpResponse response = response_of(exchange->head());
  if (exchange->head().chunked()) {
    response.lines = [exchange](std::shared_ptr<LineWriter> out) { return hand_on_lines(exchange, std::move(out)); };
    co_return response;
  }
  Result<std::string> body = co_await with_deadline(read_all(exchange), deadline);
  if (!body.ok()) co_return unreachable(server, body.error().message);
  response.body = std::move(*body);
  co_return response;
}

struct HttpForwarder::Impl {
  Impl(HttpAddress to, HttpSettings with) : address(std::move(to)), settings(with) {}

  Awaitable<HttpResponse> answer(HttpRequest request) {
    std::optional<HttpResponse> own = gate(request);
    if (own) co_return std::move(*own);
    co_return co_await forward_request(address, std::move(request), settings.request_deadline);
  }

  asio::io_context context{1};
  const HttpAddress address;
  const HttpSettings settings;
  Gate gate;
  std::shared_ptr<HttpServer> server;
  std::thread thread;
};

Result<std::unique_ptr<HttpForwarder>> HttpForwarder::open(TcpAddress listen, HttpAddress server,
                                                           HttpSettings settings) {
  auto impl = std::make_unique<Impl>(std::move(server), settings);
  FLUVIAL_ASSIGN(impl->server, HttpServer::open(impl->context.get_executor(), std::move(listen), settings, nullptr));
  return std::unique_ptr<HttpForwarder>(new HttpForwarder(std::move(impl)));
}

HttpForwarder::HttpForwarder(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

HttpForwarder::~HttpForwarder() {
  impl_->server->stop();
  if (impl_->thread.joinable()) impl_->thread.join();
}

std::uint16_t HttpForwarder::port() const { return impl_->server->port(); }

void HttpForwarder::start(Gate gate) {
  impl_->gate = std::move(gate);
  asio::co_spawn(impl_->context, impl_->server->run([impl = impl_.get()](HttpRequest request) {
    return impl->answer(std::move(request));
  }),
                 asio::detached);
  impl_->thread = std::thread([impl = impl_.get()] { impl->context.run(); });
}

}  // namespace fluvial::net
