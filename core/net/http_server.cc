#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "core/net/deadline.h"
#include "core/net/greeting.h"
#include "core/net/http.h"
#include "core/net/http_fields.h"
#include "core/net/http_text.h"
#include "core/net/task_group.h"

namespace fluvial::net {
namespace {

namespace http = boost::beast::http;
using Tcp = asio::ip::tcp;
using Local = asio::local::stream_protocol;
using Socket = asio::generic::stream_protocol::socket;
using Parser = http::request_parser<http::string_body>;
using ErrorCode = boost::system::error_code;

constexpr auto kAwaitTuple = asio::as_tuple(asio::use_awaitable);
constexpr Duration kFinishDeadline = std::chrono::seconds(1);
constexpr Duration kPauseAfterFailedAccept = std::chrono::milliseconds(100);

Error cannot_listen(const std::string& path, const std::string& why) {
  return {Code::kUnavailable, "cannot listen on " + path + ": " + why};
}

// Removes the file of a server that is no more.
Status clear_stale_socket(const Executor& executor, const std::string& path) {
  struct stat found{};
  if (::lstat(path.c_str(), &found) != 0) {
    return errno == ENOENT ? Status() : cannot_listen(path, std::strerror(errno));
  }
  if (!S_ISSOCK(found.st_mode)) return cannot_listen(path, "a file that is no socket stands there");
  Local::socket probe(executor);
  ErrorCode error;
  probe.connect(Local::endpoint(path), error);
  if (!error) return cannot_listen(path, "another process listens there");
  if (error != asio::error::connection_refused) return cannot_listen(path, error.message());
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return cannot_listen(path, std::strerror(errno));
  return {};
}

Result<Local::acceptor> open_unix(const Executor& executor, const UnixAddress& address, int backlog) {
  const std::string& path = address.path;
  if (path.empty() || path.size() > 107) return cannot_listen(path, "a socket's path has 1 to 107 bytes");
  FLUVIAL_TRY(clear_stale_socket(executor, path));
  Local::acceptor acceptor(executor);
  ErrorCode error;
  acceptor.open(Local(), error);
  // On Linux the file takes its mode from the socket: there is no moment in which others may connect.
  if (!error && ::fchmod(acceptor.native_handle(), address.mode) != 0) return cannot_listen(path, std::strerror(errno));
  if (!error) acceptor.bind(Local::endpoint(path), error);
  // The process' umask has a say in what the file got: what more it is to have, it gets now.
  if (!error && ::chmod(path.c_str(), address.mode) != 0) return cannot_listen(path, std::strerror(errno));
  if (!error) acceptor.listen(backlog, error);
  if (error) return cannot_listen(path, error.message());
  return acceptor;
}

std::string remote_of(const Tcp::socket& socket) {
  ErrorCode error;
  const Tcp::endpoint endpoint = socket.remote_endpoint(error);
  return error ? "a client that left" : describe(endpoint);
}
std::string remote_of(const Local::socket&) { return "unix"; }

std::optional<UnixPeer> peer_of(Tcp::socket&) { return std::nullopt; }
std::optional<UnixPeer> peer_of(Local::socket& socket) {
  ucred known{};
  socklen_t size = sizeof known;
  if (::getsockopt(socket.native_handle(), SOL_SOCKET, SO_PEERCRED, &known, &size) != 0) return std::nullopt;
  UnixPeer peer{known.uid, known.gid, known.pid, {}};
  std::vector<gid_t> groups(64);
  for (;;) {
    size = static_cast<socklen_t>(groups.size() * sizeof(gid_t));
    if (::getsockopt(socket.native_handle(), SOL_SOCKET, SO_PEERGROUPS, groups.data(), &size) == 0) break;
    if (errno != ERANGE) return peer;  // a kernel before 4.13
    groups.resize(size / sizeof(gid_t));
  }
  groups.resize(size / sizeof(gid_t));
  peer.groups.assign(groups.begin(), groups.end());
  return peer;
}

// One connection. All of it on its strand.
class Connection final : public LineWriter, public std::enable_shared_from_this<Connection> {
 public:
  Connection(Socket socket, std::string remote, std::optional<UnixPeer> peer, HttpSettings settings)
      : socket_(std::move(socket)), remote_(std::move(remote)), peer_(std::move(peer)), settings_(settings) {}

  const std::string& remote() const { return remote_; }
  Executor executor() { return socket_.get_executor(); }

  void stop() {  // thread safe: an idle connection ends now, a busy one after its answer
    asio::dispatch(executor(), [self = shared_from_this()] {
      self->stopping_ = true;
      ErrorCode ignored;  // closing what is closed is fine
      if (self->idle_) self->socket_.close(ignored);
    });
  }

  // Nobody waits for an answer on it: since when. A newcomer takes the place of the one that says nothing longest.
  std::optional<TimePoint> still_since() const {
    const std::int64_t since = still_since_.load(std::memory_order_relaxed);
    return since == kBusy ? std::nullopt : std::optional(TimePoint(Duration(since)));
  }
  void give_way() {  // thread safe: unless it has become busy meanwhile
    asio::dispatch(executor(), [self = shared_from_this()] {
      ErrorCode ignored;  // closing what is closed is fine
      if (self->still_since()) self->socket_.close(ignored);
    });
  }

  // The next request; an answer to send instead where it is malformed; nothing when the client is done.
  struct Incoming {
    std::optional<HttpRequest> request;
    std::optional<HttpResponse> refusal;
  };
  Awaitable<Incoming> next_request();
  Awaitable<bool> respond(HttpResponse response);  // may the connection go on?
  Awaitable<Status> write_line(std::string line) override;
  // Closing with unread bytes would reset the connection, and the client might never read its answer.
  Awaitable<void> finish();

 private:
  static constexpr std::int64_t kBusy = -1;
  Awaitable<ErrorCode> read_header(Parser* parser);
  Awaitable<ErrorCode> read(Parser* parser);
  Awaitable<Result<ErrorCode>> read_request(Parser* parser);
  void become_still() { still_since_ = SystemClock().now().time_since_epoch().count(); }
  Awaitable<bool> respond_with_lines(http::response<http::empty_body> head, LineProducer producer);
  template <typename Buffers>
  Awaitable<Status> write_chunk(Buffers buffers);
  static Incoming refuse(int status, std::string text) {
    return {.request = {}, .refusal = HttpResponse::text(status, std::move(text))};
  }

  Socket socket_;
  const std::string remote_;
  const std::optional<UnixPeer> peer_;
  const HttpSettings settings_;
  boost::beast::flat_buffer buffer_;
  bool idle_ = false;
  bool stopping_ = false;
  bool keep_alive_ = false;
  bool is_first_ = true;  // no request has come yet
  std::atomic<std::int64_t> still_since_ = SystemClock().now().time_since_epoch().count();
};

Awaitable<ErrorCode> Connection::read_header(Parser* parser) {
  const auto [error, count] = co_await http::async_read_header(socket_, buffer_, *parser, kAwaitTuple);
  co_return error;
}

Awaitable<ErrorCode> Connection::read(Parser* parser) {
  const auto [error, count] = co_await http::async_read(socket_, buffer_, *parser, kAwaitTuple);
  co_return error;
}

Awaitable<ErrorCode> wait_for_bytes(Socket* socket) {
  const auto [error] = co_await socket->async_wait(Socket::wait_read, kAwaitTuple);
  co_return error;
}

Awaitable<Result<ErrorCode>> Connection::read_request(Parser* parser) {
  const auto header = co_await with_deadline(read_header(parser), settings_.header_deadline);
  if (!header.ok() || *header) co_return header;
  co_return co_await with_deadline(read(parser), settings_.request_deadline);
}

Awaitable<Connection::Incoming> Connection::next_request() {
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
                                            .remote = remote_,
                                            .peer = peer_,
                                            .headers = headers_of(parser.get())},
                     .refusal = {}};
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

Awaitable<bool> Connection::respond(HttpResponse response) {
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
  const auto written = co_await with_deadline(write_message(&socket_, &message), settings_.request_deadline);
  co_return written.ok() && !*written && go_on;
}

Awaitable<void> discard(Socket* socket) {
  std::array<char, 16 * 1024> dropped;
  for (;;) {
    const auto [error, count] = co_await socket->async_read_some(asio::buffer(dropped), kAwaitTuple);
    if (error) co_return;
  }
}

Awaitable<void> Connection::finish() {
  ErrorCode ignored;  // the client may be gone
  socket_.shutdown(Socket::shutdown_send, ignored);
  const Status drained = co_await with_deadline(discard(&socket_), kFinishDeadline);
  (void)drained;  // the connection ends either way
}

Awaitable<bool> Connection::respond_with_lines(http::response<http::empty_body> head, LineProducer producer) {
  head.chunked(true);
  head.keep_alive(false);
  http::response_serializer<http::empty_body> serializer(head);
  const auto written = co_await with_deadline(write_head(&socket_, &serializer), settings_.request_deadline);
  if (!written.ok() || *written) co_return false;
  co_await producer(shared_from_this());
  const Status ended = co_await write_chunk(http::make_chunk_last());
  (void)ended;  // the connection ends either way
  co_return false;
}

template <typename Buffers>
Awaitable<Status> Connection::write_chunk(Buffers buffers) {
  const auto written = co_await with_deadline(write_buffers(&socket_, buffers), settings_.request_deadline);
  if (!written.ok()) co_return Error{Code::kDeadlineExceeded, "the client does not read"};
  if (*written) co_return Error{Code::kUnavailable, "the client is gone: " + written->message()};
  co_return Status{};
}

Awaitable<Status> Connection::write_line(std::string line) {
  if (stopping_) co_return Error{Code::kCancelled, "the server stops"};
  line.push_back('\n');
  co_return co_await write_chunk(http::make_chunk(asio::buffer(line)));
}

}  // namespace

class HttpServer::Impl : public std::enable_shared_from_this<HttpServer::Impl> {
 public:
  using Acceptor = std::variant<Tcp::acceptor, Local::acceptor>;

  Impl(Executor executor, Executor strand, Acceptor acceptor, std::string socket_path, HttpSettings settings,
       std::shared_ptr<NetHooks> hooks)
      : executor_(executor),
        strand_(strand),
        acceptor_(std::move(acceptor)),
        pause_(strand),
        socket_path_(std::move(socket_path)),
        settings_(settings),
        hooks_(hooks ? std::move(hooks) : std::make_shared<NetHooks>()),
        connections_(executor, [hooks = hooks_](const std::string& remote, const std::string& what) {
          hooks->handler_failed(remote, what);
        }) {
    if (const auto* tcp = std::get_if<Tcp::acceptor>(&acceptor_)) port_ = tcp->local_endpoint().port();
  }

  static Awaitable<void> run(std::shared_ptr<Impl> self, Handler handler) {
    self->handler_ = std::move(handler);
    co_await asio::co_spawn(self->strand_, accept_all(self), asio::use_awaitable);
    self->stop_connections();
    const Status ended = co_await with_deadline(self->connections_.join(), self->settings_.stop_deadline);
    if (ended.ok()) co_return;
    self->connections_.cancel();
    co_await self->connections_.join();
  }

  void stop() {
    asio::dispatch(strand_, [self = shared_from_this()] {
      if (std::exchange(self->stopping_, true)) return;
      ErrorCode ignored;  // closing what is closed is fine
      std::visit([&ignored](auto& acceptor) { acceptor.close(ignored); }, self->acceptor_);
      self->pause_.cancel();
      if (!self->socket_path_.empty()) ::unlink(self->socket_path_.c_str());
    });
  }

  std::uint16_t port() const { return port_; }

 private:
  static Awaitable<void> accept_all(std::shared_ptr<Impl> self) {
    while (!self->stopping_) {
      const ErrorCode error =
          self->acceptor_.index() == 0 ? co_await accept_one<Tcp>(self) : co_await accept_one<Local>(self);
      if (self->stopping_ || !error || error == asio::error::connection_aborted) continue;
      self->hooks_->accept_failed(error.message());
      self->pause_.expires_after(kPauseAfterFailedAccept);
      co_await self->pause_.async_wait(kAwaitTuple);
    }
  }

  template <typename Protocol>
  static Awaitable<ErrorCode> accept_one(std::shared_ptr<Impl> self) {
    typename Protocol::socket socket{Executor(asio::make_strand(self->executor_))};
    auto& acceptor = std::get<typename Protocol::acceptor>(self->acceptor_);
    const auto [error] = co_await acceptor.async_accept(socket, kAwaitTuple);
    if (error || self->stopping_) co_return error;
    std::string remote = remote_of(socket);
    if (self->connections_.size() >= self->settings_.connections_max && !self->make_room()) {
      self->hooks_->refused(reason::kTooManySessions, remote, remote + ": too many HTTP connections");
      co_return error;
    }
    std::optional<UnixPeer> peer = peer_of(socket);
    auto connection =
        std::make_shared<Connection>(Socket(std::move(socket)), std::move(remote), std::move(peer), self->settings_);
    {
      const std::lock_guard lock(self->mutex_);
      std::erase_if(self->known_, [](const std::weak_ptr<Connection>& known) { return known.expired(); });
      self->known_.push_back(connection);
    }
    self->connections_.spawn(connection->executor(), connection->remote(), serve(self, connection));
    co_return error;
  }

  static Awaitable<void> serve(std::shared_ptr<Impl> self, std::shared_ptr<Connection> connection) {
    for (bool go_on = true; go_on;) {
      Connection::Incoming incoming = co_await connection->next_request();
      if (!incoming.request && !incoming.refusal) co_return;
      if (incoming.refusal) {
        co_await connection->respond(std::move(*incoming.refusal));
        co_await connection->finish();
        co_return;
      }
      HttpResponse response = co_await answer(self, std::move(*incoming.request));
      go_on = co_await connection->respond(std::move(response));
    }
  }

  static Awaitable<HttpResponse> answer(std::shared_ptr<Impl> self, HttpRequest request) {
    const std::string remote = request.remote;
    std::string failure;
    try {
      co_return co_await self->handler_(std::move(request));
    } catch (const boost::system::system_error& error) {
      if (error.code() == asio::error::operation_aborted) throw;  // we are being cancelled
      failure = error.what();
    } catch (const std::exception& error) {
      failure = error.what();
    }
    self->hooks_->handler_failed(remote, failure);
    co_return HttpResponse::from_error({Code::kInternal, "the request failed; the server's log says why"});
  }

  // False: all of them are being answered, or those that were sent away are still here in numbers.
  bool make_room() {
    const std::lock_guard lock(mutex_);
    if (connections_.size() >= 2 * settings_.connections_max) return false;
    std::shared_ptr<Connection> stillest;
    std::optional<TimePoint> since;
    for (const std::weak_ptr<Connection>& known : known_) {
      auto connection = known.lock();
      // Asked once: it may become busy on another thread at any moment.
      const std::optional<TimePoint> its = connection == nullptr ? std::nullopt : connection->still_since();
      if (!its || (since && *its >= *since)) continue;
      since = its;
      stillest = std::move(connection);
    }
    if (stillest == nullptr) return false;
    hooks_->refused(reason::kGaveWay, stillest->remote(),
                    stillest->remote() + ": an HTTP connection without a request gave way to a newcomer");
    stillest->give_way();
    std::erase_if(known_, [&](const std::weak_ptr<Connection>& known) { return known.lock() == stillest; });
    return true;
  }

  void stop_connections() {
    const std::lock_guard lock(mutex_);
    for (const std::weak_ptr<Connection>& known : known_) {
      if (const auto connection = known.lock()) connection->stop();
    }
  }

  const Executor executor_;
  const Executor strand_;
  Acceptor acceptor_;  // with pause_ and stopping_ on strand_
  asio::steady_timer pause_;
  bool stopping_ = false;
  const std::string socket_path_;
  const HttpSettings settings_;
  const std::shared_ptr<NetHooks> hooks_;
  Handler handler_;
  TaskGroup connections_;
  std::uint16_t port_ = 0;
  std::mutex mutex_;
  std::vector<std::weak_ptr<Connection>> known_;
};

Result<std::shared_ptr<HttpServer>> HttpServer::open(Executor executor, HttpAddress address, HttpSettings settings,
                                                     std::shared_ptr<NetHooks> hooks) {
  constexpr int kBacklog = 128;
  const Executor strand = asio::make_strand(executor);
  std::optional<Impl::Acceptor> acceptor;
  std::string path;
  if (const auto* tcp = std::get_if<TcpAddress>(&address)) {
    FLUVIAL_ASSIGN(acceptor, open_acceptor(strand, tcp->host, tcp->port, kBacklog));
  } else {
    const auto& at = std::get<UnixAddress>(address);
    path = at.path;
    FLUVIAL_ASSIGN(acceptor, open_unix(strand, at, kBacklog));
  }
  return std::shared_ptr<HttpServer>(new HttpServer(std::make_shared<Impl>(
      std::move(executor), strand, std::move(*acceptor), std::move(path), settings, std::move(hooks))));
}

HttpServer::HttpServer(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() { impl_->stop(); }
Awaitable<void> HttpServer::run(Handler handler) { return Impl::run(impl_, std::move(handler)); }
void HttpServer::stop() { impl_->stop(); }
std::uint16_t HttpServer::port() const { return impl_->port(); }

}  // namespace fluvial::net
