// TLS 1.3 contexts for the three kinds of port a federation has.
//
//   member   ALPN "fluvial/1": both sides show a certificate that leads to one of the federation's authorities
//   enrol    ALPN "fluvial-enrol/1": the server is known by the authority's pin, the client by its token alone. The
//            client offers "fluvial-pin/" and the first 32 digits of the pin, too, which is never selected
//   admin    ALPN "fluvial-admin/1" or "http/1.1": as member; the client is an operator
//
// A handshake fails, before a byte reaches any parser of ours, on: TLS below 1.3, no or another ALPN, and (where asked
// for) a certificate that is missing, expired, from another authority or for the other purpose. Tickets, resumption
// and early data are off: every session is a full handshake against the current certificates.
//
// After the handshake: peer_identity(ssl), may_speak_as(...), DenyList::check(...). After a failure: handshake_error().
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/identity/credentials.h"

struct ssl_ctx_st;
struct ssl_st;

namespace fluvial::identity {

inline constexpr std::string_view kMemberAlpn = "fluvial/1";
inline constexpr std::string_view kEnrolAlpn = "fluvial-enrol/1";
inline constexpr std::string_view kAdminAlpn = "fluvial-admin/1";  // HTTP/1.1; a server takes "http/1.1" for it, too

struct FreeSsl {
  void operator()(ssl_st* ssl) const;
};
using SslPtr = std::unique_ptr<ssl_st, FreeSsl>;

// Immutable once shared; thread safe. Makes SSL objects in the right state; the caller gives them their BIOs.
class TlsContext {
 public:
  static Result<std::shared_ptr<const TlsContext>> member_server(const Credentials& credentials);
  static Result<std::shared_ptr<const TlsContext>> member_client(const Credentials& credentials);
  // Shows the authorities, too: tokens name one. While two authorities issue there are credentials of each: a client is
  // shown those of the authority that it names, or the first.
  static Result<std::shared_ptr<const TlsContext>> enrol_server(const Credentials& credentials);
  static Result<std::shared_ptr<const TlsContext>> enrol_server(const std::vector<Credentials>& credentials);
  static Result<std::shared_ptr<const TlsContext>> enrol_client(std::string_view authority_pin);
  // Of a member, which trusts several: 1 to kAuthoritiesMax pins.
  static Result<std::shared_ptr<const TlsContext>> enrol_client(const std::vector<std::string>& authority_pins);

  static Result<std::shared_ptr<const TlsContext>> admin_server(const Credentials& credentials);
  static Result<std::shared_ptr<const TlsContext>> admin_client(const Credentials& credentials);

  Result<SslPtr> new_session() const;  // in accept or connect state, without BIOs
  bool is_server() const { return is_server_; }
  ssl_ctx_st* native() const { return context_.get(); }

  TlsContext(std::shared_ptr<ssl_ctx_st> context, bool is_server)
      : context_(std::move(context)), is_server_(is_server) {}

 private:
  std::shared_ptr<ssl_ctx_st> context_;
  bool is_server_;
};

}  // namespace fluvial::identity
