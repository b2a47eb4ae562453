#include "core/net/http_connection.h"

#include <array>
#include <boost/asio/write.hpp>
#include <boost/system/system_error.hpp>

#include "core/net/await_tuple.h"
#include "core/net/deadline.h"
#include "core/net/http_fields.h"
#include "core/net/http_text.h"

namespace fluvial::net {
namespace {

namespace http = boost::beast::http;
using Socket = HttpConnection::Socket;
using ErrorCode = boost::system::error_code;

constexpr Duration kFinishDeadline = std::chrono::seconds(1);

Awaitable<ErrorCode> wait_for_bytes(Socket* socket) {
  const auto [error] = co_await socket->async_wait(Socket::wait_read, kAwaitTuple);
  co_return error;
}

Awaitable<ErrorCode> write_message(Socket* socket, http::response<http::string_body>* message) {
  const auto [error, count] = co_await http::async_write(*socket, *message, kAwaitTuple);
  co_return error;
}

Awaitable<ErrorCode> write_head(Socket* socket, http::response_serializer<http::empty_body>* serializer) {
  const auto [error, count] = co_await http::async_write_header(*socket, *serializer, kAwaitTuple);
  co_return error;
}

template <typename Buffers>
Awaitable<ErrorCode> write_buffers(Socket* socket, Buffers buffers) {
  const auto [error, count] = co_await asio::async_write(*socket, buffers, kAwaitTuple);
  co_return error;
}

void set_headers(http::fields& fields, const HttpResponse& response) {
  fields.set(http::field::content_type, response.content_type);
  for (const auto& [name, value] : response.headers) fields.set(name, value);
}

Awaitable<void> discard(Socket* socket) {
  std::array<char, 16 * 1024> dropped;
  for (;;) {
    const auto [error, count] = co_await socket->async_read_some(asio::buffer(dropped), kAwaitTuple);
    if (error) co_return;
  }
}

}  // namespace

Awaitable<ErrorCode> HttpConnection::read_header(Parser* parser) {
  const auto [error, count] = co_await http::async_read_header(socket_, buffer_, *parser, kAwaitTuple);
  co_return error;
}

Awaitable<ErrorCode> HttpConnection::read(Parser* parser) {
  const auto [error, count] = co_await http::async_read(socket_, buffer_, *parser, kAwaitTuple);
  co_return error;
}

Awaitable<Result<ErrorCode>> HttpConnection::read_request(Parser* parser) {
  const auto header = co_await with_deadline(read_header(parser), settings_.header_deadline);
  if (!header.ok() || *header) co_return header;
  co_return co_await with_deadline(read(parser), settings_.request_deadline);
}

Awaitable<HttpConnection::Incoming> HttpConnection::next_request() {
  if (stopping_) co_return Incoming{};
  become_still();
  if (buffer_.size() == 0) {
    idle_ = true;
    const Duration limit = is_first_ ? settings_.header_deadline : settings_.idle_deadline;
    const auto waited = co_await with_deadline(wait_for_bytes(&socket_), limit);
    idle_ = false;
    if (!waited.ok() || *waited) co_return Incoming{};
  }
  Parser parser;
  parser.header_limit(static_cast<std::uint32_t>(settings_.header_bytes_max));
  parser.body_limit(settings_.body_bytes_max);
  const auto read_error = co_await read_request(&parser);
  still_since_ = kBusy;
  is_first_ = false;
  keep_alive_ = false;
  const bool is_late = !read_error.ok() || *read_error == asio::error::operation_aborted;  // a read that was cut short
  if (is_late) co_return refuse(408, "the request was not complete in time\n");
  if (*read_error == http::error::header_limit) co_return refuse(431, "the request's header is too large\n");
  if (*read_error == http::error::body_limit) co_return refuse(413, "the request's body is too large\n");
  if (*read_error == http::error::end_of_stream) co_return Incoming{};
  if (read_error->category() == make_error_code(http::error::bad_method).category()) {
    co_return refuse(400, "this is not HTTP/1.1: " + read_error->message() + "\n");
  }
  if (*read_error) co_return Incoming{};
  keep_alive_ = parser.get().keep_alive();
  auto target = parse_target({parser.get().target().data(), parser.get().target().size()});
  if (!target.ok()) co_return refuse(400, target.error().message + "\n");
  co_return Incoming{.request = HttpRequest{.method = std::string(parser.get().method_string()),
                                            .path = std::move(target->path),
                                            .query = std::move(target->query),
                                            .body = std::move(parser.get().body()),
                                            .remote = from_.remote,
                                            .peer = from_.peer,
                                            .certificate = from_.certificate,
                                            .headers = headers_of(parser.get())},
                     .refusal = {}};
}

Awaitable<bool> HttpConnection::respond(HttpResponse response) {
  const auto status = static_cast<http::status>(response.status);
  const bool go_on = keep_alive_ && !stopping_;
  if (response.lines) {
    http::response<http::empty_body> head(status, 11);
    set_headers(head, response);
    co_return co_await respond_with_lines(std::move(head), std::move(response.lines));
  }
  http::response<http::string_body> message(status, 11);
  set_headers(message, response);
  message.body() = std::move(response.body);
  message.keep_alive(go_on);
  message.prepare_payload();
  const auto written = co_await writing(write_message(&socket_, &message));
  co_return written.ok() && go_on;
}

Awaitable<Status> HttpConnection::writing(Awaitable<ErrorCode> write) {
  writing_since_ = now();
  const auto written = co_await with_deadline(std::move(write), settings_.request_deadline);
  writing_since_ = kBusy;
  if (!written.ok()) {
    lost_ = Error{Code::kDeadlineExceeded, "the client does not read"};
  } else if (*written) {
    lost_ = Error{Code::kUnavailable, "the client is gone: " + written->message()};
  }
  co_return lost_;
}

Awaitable<void> HttpConnection::finish() {
  ErrorCode ignored;  // the client may be gone
  socket_.shutdown(Socket::shutdown_send, ignored);
  const Status drained = co_await with_deadline(discard(&socket_), kFinishDeadline);
  (void)drained;  // the connection ends either way
}

Awaitable<bool> HttpConnection::respond_with_lines(http::response<http::empty_body> head, LineProducer producer) {
  head.chunked(true);
  head.keep_alive(false);
  http::response_serializer<http::empty_body> serializer(head);
  const auto written = co_await writing(write_head(&socket_, &serializer));
  if (!written.ok()) co_return false;
  co_await producer(shared_from_this());
  const Status ended = co_await writing(write_buffers(&socket_, http::make_chunk_last()));
  (void)ended;  // the connection ends either way, and lost() says how
  co_return false;
}

Awaitable<Status> HttpConnection::write_line(std::string line) {
  if (stopping_) co_return Error{Code::kCancelled, "the server stops"};
  line.push_back('\n');
  co_return co_await writing(write_buffers(&socket_, http::make_chunk(asio::buffer(line))));
}

namespace {

Awaitable<HttpResponse> answer(const HttpServer::Handler* handler, NetHooks* hooks, HttpRequest request) {
  const std::string remote = request.remote;
  std::string failure;
  try {
    co_return co_await (*handler)(std::move(request));
  } catch (const boost::system::system_error& error) {
    if (error.code() == asio::error::operation_aborted) throw;  // we are being cancelled
    failure = error.what();
  } catch (const std::exception& error) {
    failure = error.what();
  }
  hooks->handler_failed(remote, failure);
  co_return HttpResponse::from_error({Code::kInternal, "the request failed; the server's log says why"});
}

}  // namespace

Awaitable<void> serve_http(std::shared_ptr<HttpConnection> connection, HttpServer::Handler handler,
                           std::shared_ptr<NetHooks> hooks) {
  for (bool go_on = true; go_on;) {
    HttpConnection::Incoming incoming = co_await connection->next_request();
    if (!incoming.request && !incoming.refusal) co_return;
    if (incoming.refusal) {
      co_await connection->respond(std::move(*incoming.refusal));
      co_await connection->finish();
      go_on = false;
    } else {
      HttpResponse response = co_await answer(&handler, hooks.get(), std::move(*incoming.request));
      go_on = co_await connection->respond(std::move(response));
    }
    if (!connection->lost().ok()) hooks->answer_lost(connection->remote(), connection->lost().error());
  }
}

}  // namespace fluvial::net
