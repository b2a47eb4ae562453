// The HTTP server for people with a certificate: TLS 1.3 with a client's certificate, and then HTTP/1.1. Each request
// says whose it is (HttpRequest::certificate).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "core/base/clock.h"
#include "core/identity/tls.h"
#include "core/net/awaitable.h"
#include "core/net/hooks.h"
#include "core/net/http.h"
#include "core/net/listener.h"

namespace fluvial::net {

struct HttpsSettings {
  HttpSettings http;
  std::size_t strangers_max = 128;              // connections in their handshake; a further one ends the stillest
  std::size_t strangers_per_address_max = 32;   // of an IPv4 address or an IPv6 /64
  std::size_t connections_per_client_max = 24;  // of one certificate's holder; a further one is refused
  std::uint32_t key_updates_max = 4;            // of a client, beyond one for each MiB of data
  Duration handshake_deadline = std::chrono::seconds(5);
  double accepts_per_s = 200;
  double accepts_burst = 64;
  const Clock* clock = nullptr;  // outlives the server; none: the machine's
};

// Thread safe. Nobody without a certificate of the authority gets as far as HTTP. One whose certificate is good and who
// is not admitted hears why, as a 403, and is counted (hooks.h). No connection outlives its client's certificate.
class HttpsServer {
 public:
  // Asked for each new connection: its certificate may have been renewed since the one before.
  using Tls = std::function<std::shared_ptr<const identity::TlsContext>()>;

  static Result<std::shared_ptr<HttpsServer>> open(Executor executor, TcpAddress address, Tls tls,
                                                   HttpsSettings settings, std::shared_ptr<NetHooks> hooks,
                                                   Admission admission);
  ~HttpsServer();

  Awaitable<void> run(HttpServer::Handler handler);  // until stop(); returns when every connection has ended. Once
  void stop();
  void admit_again();  // asks the admission about everybody who is here, and cuts off who is not admitted any more
  std::uint16_t port() const;

 private:
  class Impl;
  explicit HttpsServer(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace fluvial::net
