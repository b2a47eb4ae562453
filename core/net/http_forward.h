// Carries HTTP requests from a TCP port of this machine on to a server on a Unix socket or behind TLS, those that a
// gate lets through.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/net/http.h"

namespace fluvial::net {

class HttpForwarder {
 public:
  // An answer of its own, or none: then the request goes on. Called on the forwarder's one thread.
  using Gate = std::function<std::optional<HttpResponse>(const HttpRequest& request)>;

  // Listens; nobody is answered before start(). The settings bound what comes in; what the server answers is bounded
  // by kForwardedBytesMax, except for a streaming answer, which passes line by line.
  static Result<std::unique_ptr<HttpForwarder>> open(TcpAddress listen, HttpAddress server, HttpSettings settings);
  ~HttpForwarder();  // ends every connection

  std::uint16_t port() const;
  void start(Gate gate);  // once

 private:
  struct Impl;
  explicit HttpForwarder(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

inline constexpr std::size_t kForwardedBytesMax = 64u << 20;

// Asks the server (not a TcpAddress: that would be in the clear) what `request` asks, with its method, path, query,
// body and the headers that an answer may depend on (Accept, Last-Event-ID): cookies and the like stay here. The
// server's answer, which streams when the server's does; 503 when nobody answers there.
Awaitable<HttpResponse> forward_request(HttpAddress server, HttpRequest request, Duration deadline);

}  // namespace fluvial::net
