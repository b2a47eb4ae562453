// Opens a session to a peer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/identity/tls.h"
#include "core/net/listener.h"
#include "core/net/session.h"

namespace fluvial::net {

// Resolves, connects (through the proxy of the settings, if one serves this peer: then it resolves the name) and shakes
// hands, each under its deadline. The session has a strand of its own on `executor`; the
// caller resumes where it was. The error is one line that says what happened and at which address. In TLS 1.3 a server
// refuses a client's certificate only after the client has finished: that error comes out of the session's first
// receive() (and close_reason()), in the same plain words.
Awaitable<Result<std::shared_ptr<Session>>> connect(Executor executor, std::string host, std::uint16_t port,
                                                    std::shared_ptr<const identity::TlsContext> tls,
                                                    SessionSettings settings, std::shared_ptr<NetHooks> hooks = {},
                                                    Admission admission = {});

// "host:port" or "[v6]:port".
struct HostPort {
  std::string host;
  std::uint16_t port = 0;
  bool operator==(const HostPort&) const = default;
};
Result<HostPort> parse_host_port(std::string_view text);  // kInvalidArgument says what was expected
std::string to_string(const HostPort& address);

}  // namespace fluvial::net
