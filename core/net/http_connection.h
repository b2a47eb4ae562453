// Inside: one connection of an HTTP server. All of it on its strand.
#pragma once

#include <atomic>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "core/net/deadline.h"
#include "core/net/http.h"

namespace fluvial::net {

class HttpConnection final : public LineWriter, public std::enable_shared_from_this<HttpConnection> {
 public:
  using Socket = asio::generic::stream_protocol::socket;
  using ErrorCode = boost::system::error_code;

  // Who is at the other end: a process of this machine, or the holder of a certificate.
  struct From {
    std::string remote;
    std::optional<UnixPeer> peer = {};
    std::optional<identity::PeerIdentity> certificate = {};
  };
  HttpConnection(Socket socket, From from, HttpSettings settings)
      : socket_(std::move(socket)), from_(std::move(from)), settings_(settings) {}

  const std::string& remote() const { return from_.remote; }
  Executor executor() { return socket_.get_executor(); }

  void stop() {  // thread safe: an idle connection ends now, a busy one after its answer
    asio::dispatch(executor(), [self = shared_from_this()] {
      self->stopping_ = true;
      ErrorCode ignored;  // closing what is closed is fine
      if (self->idle_) self->socket_.close(ignored);
    });
  }

  void close() {        // on its strand
    ErrorCode ignored;  // closing what is closed is fine
    socket_.close(ignored);
  }

  // Nobody waits for an answer on it, or takes the one that there is: since when. A newcomer takes the place of the one
  // that is still longest.
  std::optional<TimePoint> still_since() const {
    const std::int64_t since = still_since_.load(std::memory_order_relaxed);
    if (since != kBusy) return TimePoint(Duration(since));
    const std::int64_t writing = writing_since_.load(std::memory_order_relaxed);
    if (writing == kBusy || SystemClock().now() - TimePoint(Duration(writing)) < kTakesNothing) return std::nullopt;
    return TimePoint(Duration(writing));
  }
  void give_way() {  // thread safe: unless it has become busy meanwhile
    asio::dispatch(executor(), [self = shared_from_this()] {
      ErrorCode ignored;  // closing what is closed is fine
      if (self->still_since()) self->socket_.close(ignored);
    });
  }

  void end() {  // thread safe: whatever it does
    asio::dispatch(executor(), [self = shared_from_this()] { self->close(); });
  }

  // The next request; an answer to send instead where it is malformed; nothing when the client is done.
  struct Incoming {
    std::optional<HttpRequest> request;
    std::optional<HttpResponse> refusal;
  };
  Awaitable<Incoming> next_request();
  Awaitable<bool> respond(HttpResponse response);  // may the connection go on?
  Awaitable<Status> write_line(std::string line) override;
  const Status& lost() const { return lost_; }  // an answer, or the rest of one; ok: none was
  // Closing with unread bytes would reset the connection, and the client might never read its answer.
  Awaitable<void> finish();

 private:
  static constexpr std::int64_t kBusy = -1;
  static constexpr Duration kTakesNothing = std::chrono::milliseconds(250);
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;
  Awaitable<ErrorCode> read_header(Parser* parser);
  Awaitable<ErrorCode> read(Parser* parser);
  Awaitable<Result<ErrorCode>> read_request(Parser* parser);
  static std::int64_t now() { return SystemClock().now().time_since_epoch().count(); }
  void become_still() { still_since_ = now(); }
  Awaitable<Status> writing(Awaitable<ErrorCode> write);  // within the deadline
  Awaitable<bool> respond_with_lines(boost::beast::http::response<boost::beast::http::empty_body> head,
                                     LineProducer producer);
  static Incoming refuse(int status, std::string text) {
    return {.request = {}, .refusal = HttpResponse::text(status, std::move(text))};
  }

  Socket socket_;
  const From from_;
  const HttpSettings settings_;
  boost::beast::flat_buffer buffer_;
  Status lost_;
  bool idle_ = false;
  bool stopping_ = false;
  bool keep_alive_ = false;
  bool is_first_ = true;                             // no request has come yet
  std::atomic<std::int64_t> writing_since_ = kBusy;  // a part of an answer
  std::atomic<std::int64_t> still_since_ = SystemClock().now().time_since_epoch().count();
};

// Answers what comes on it until one side has enough. An exception of the handler's is told to the hooks, the client
// gets a 500.
Awaitable<void> serve_http(std::shared_ptr<HttpConnection> connection, HttpServer::Handler handler,
                           std::shared_ptr<NetHooks> hooks);

}  // namespace fluvial::net
