// OpenSSL's error reports, as one line.
#pragma once

#include <string_view>

#include "core/base/result.h"

struct ssl_st;

namespace fluvial::identity {

// "<what>: <reasons>", where the reasons are this thread's OpenSSL error queue, oldest first; leaves the queue empty.
// Call it right after the failing call, on the same thread.
Error openssl_error(std::string_view what, Code code = Code::kInternal);

// Why a handshake (or the first read after it) failed: our own verdict on the peer's certificate if there is one, else
// the error queue, which also names the peer's alert. kUnauthenticated, or kUnavailable when the connection was merely
// closed. In TLS 1.3 a client learns only from its first read that the server refused its certificate.
Error handshake_error(ssl_st* ssl, std::string_view what);

}  // namespace fluvial::identity
