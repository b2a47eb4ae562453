// A small HTTP/1.1 server for administration, health and metrics, over TCP or a Unix socket, and a blocking client for
// the command line, over TLS as well. This server is not for the open internet: no TLS, no authentication but the Unix
// socket's file mode and what the kernel says of the process that connected. The one for operators is in https.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/clock.h"
#include "core/base/result.h"
#include "core/identity/certificate.h"
#include "core/identity/tls.h"
#include "core/net/awaitable.h"
#include "core/net/hooks.h"

namespace fluvial::net {

// The process at the other end of a Unix socket, as the kernel knows it since it connected.
struct UnixPeer {
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::int32_t pid = 0;
  std::vector<std::uint32_t> groups;  // beside gid
};

struct HttpRequest {
  std::string method;                        // "GET", "POST", ...
  std::string path;                          // decoded, without the query
  std::map<std::string, std::string> query;  // decoded
  std::string body;
  std::string remote;
  std::optional<UnixPeer> peer = {};                       // over a Unix socket
  std::optional<identity::PeerIdentity> certificate = {};  // over TLS: whose it is
  // By name in lower case; the values of a name that is there more than once stand behind each other, ", " between.
  std::map<std::string, std::string> headers;

  std::string_view header(const std::string& name) const;  // empty: it has none
};

// Writes the lines of a streaming answer. On the connection's executor.
class LineWriter {
 public:
  virtual ~LineWriter() = default;
  // Sends one line (a newline is added). An error when the client is gone or the server stops: then return.
  virtual Awaitable<Status> write_line(std::string line) = 0;
};
using LineProducer = std::function<Awaitable<void>(std::shared_ptr<LineWriter>)>;

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  LineProducer lines;  // when set, the answer is chunked and made by it; body is not sent
  std::vector<std::pair<std::string, std::string>> headers;  // beside the content's type and length

  static HttpResponse text(int status, std::string body);
  static HttpResponse json(std::string body);
  static HttpResponse from_error(const Error& error);  // {"code": ..., "message": ...} under a fitting status
};

struct HttpSettings {
  std::size_t header_bytes_max = 8 * 1024;
  std::size_t body_bytes_max = 1 << 20;
  std::size_t connections_max = 64;                    // a further one ends another, or is refused (http_places.h)
  Duration header_deadline = std::chrono::seconds(5);  // of a new connection's first byte, and of each request's header
  Duration request_deadline = std::chrono::seconds(10);  // from the first byte to the last of a request; and an answer
  Duration idle_deadline = std::chrono::seconds(60);     // between requests
  Duration stop_deadline = std::chrono::seconds(2);
};

// Where a server listens or a client connects.
struct TcpAddress {
  std::string host;
  std::uint16_t port = 0;
};
struct UnixAddress {
  std::string path;
  std::uint32_t mode = 0600;  // of the file that a server makes: who may connect
};
// A client's: the server must be the coordinator of the context's authority, whatever the host is called.
struct TlsAddress {
  TcpAddress at;
  std::shared_ptr<const identity::TlsContext> tls;
};
using HttpAddress = std::variant<TcpAddress, UnixAddress, TlsAddress>;

// Thread safe.
class HttpServer {
 public:
  using Handler = std::function<Awaitable<HttpResponse>(HttpRequest)>;

  // Binds and listens. A stale Unix socket file is replaced when nobody listens on it; kUnavailable when somebody does.
  static Result<std::shared_ptr<HttpServer>> open(Executor executor, HttpAddress address, HttpSettings settings,
                                                  std::shared_ptr<NetHooks> hooks);
  ~HttpServer();

  Awaitable<void> run(Handler handler);  // until stop(); returns when every connection has ended. Once
  void stop();                           // removes the Unix socket file
  std::uint16_t port() const;            // of a TCP server

 private:
  class Impl;
  explicit HttpServer(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

struct HttpReply {
  int status = 0;
  std::string body;
};

// One connection of the command line, blocking. Requests may follow each other before their answers come, so a long
// line is kept busy; so many that the answers stay within what sockets hold. Errors as http_request() has them.
class HttpPipe {
 public:
  // Connects; each call may take `deadline`.
  static Result<std::unique_ptr<HttpPipe>> open(const HttpAddress& address, Duration deadline);
  ~HttpPipe();

  Status send(std::string_view method, std::string_view target, std::string_view body);
  Result<HttpReply> receive();  // of the first request that has none yet

 private:
  struct Impl;
  explicit HttpPipe(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Blocking, for the command line: one request, one connection. kUnavailable when nobody answers there; over TLS
// kUnauthenticated when one of the two does not take the other for what it must be, in words.
Result<HttpReply> http_request(const HttpAddress& address, std::string_view method, std::string_view target,
                               std::string_view body, Duration deadline);

// GETs a streaming answer and hands over each line until the server ends it or `on_line` returns false. The reply's
// body is filled only for an answer that is no success.
Result<HttpReply> http_get_lines(const HttpAddress& address, std::string_view target,
                                 const std::function<bool(std::string_view line)>& on_line);

}  // namespace fluvial::net
