// What OpenSSL reports about a peer, as a counter's label and one plain line.
#pragma once

#include <string_view>

#include "core/base/result.h"

struct ssl_st;

namespace fluvial::net {

struct TlsFault {
  std::string_view reason;  // hooks.h
  Error error;
};

// Call it right after the failing call, on the same thread; leaves OpenSSL's error queue empty. `what` begins the
// line: "handshake with 192.0.2.7:443".
TlsFault explain_tls_failure(ssl_st* ssl, std::string_view what);

}  // namespace fluvial::net
