// A tunnel through an HTTP proxy (CONNECT, RFC 9110, section 9.3.6). Inside this room only.
#pragma once

#include <boost/asio/ip/tcp.hpp>

#include "core/net/awaitable.h"
#include "core/net/proxy.h"

namespace fluvial::net {

// Asks the proxy at the other end of `socket` for a tunnel to `peer`. When this has ended well, the next byte to be
// read is the peer's. Reads at most kProxyAnswerBytesMax. The caller sets the deadline.
Awaitable<Status> open_tunnel(asio::ip::tcp::socket* socket, Proxy proxy, HostPort peer);

}  // namespace fluvial::net
