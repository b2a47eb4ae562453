// The first moments of a connection, before it is a session: is this TLS at all, the handshake, who the peer is.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/base/result.h"
#include "core/identity/certificate.h"
#include "core/identity/tls.h"
#include "core/net/awaitable.h"
#include "core/net/tls_errors.h"
#include "core/net/tls_stream.h"

namespace fluvial::net {

struct Greeted {
  std::unique_ptr<TlsStream> stream;
  std::optional<identity::PeerIdentity> peer;
};

// `fault` is set as soon as the failure is known: telling the peer may take longer than the caller's deadline. `moved`
// is called when the client has brought its handshake further.
Awaitable<Result<Greeted>> greet_client(asio::ip::tcp::socket socket, std::shared_ptr<const identity::TlsContext> tls,
                                        std::string remote, std::shared_ptr<std::optional<TlsFault>> fault,
                                        std::function<void()> moved = {});
Awaitable<Result<Greeted>> greet_server(asio::ip::tcp::socket socket, std::shared_ptr<const identity::TlsContext> tls,
                                        std::string remote);

Result<asio::ip::tcp::acceptor> open_acceptor(Executor executor, const std::string& host, std::uint16_t port,
                                              int backlog);

}  // namespace fluvial::net
