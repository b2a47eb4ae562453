#include "core/net/tls_errors.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <string>

#include "core/identity/errors.h"
#include "core/net/hooks.h"

namespace fluvial::net {
namespace {

struct Known {
  int ssl_reason;
  std::string_view label;
  std::string_view line;  // empty: what core/identity says is better
  Code code = Code::kUnauthenticated;
};

// The peer's alerts arrive as reasons of their own.
constexpr Known kKnown[] = {
    {SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED, reason::kNoCertificate,
     "the server requires a certificate of this federation"},
    {SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED, reason::kBadCertificate,
     "the peer says that our certificate has expired (or its clock is wrong)"},
    {SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED, reason::kBadCertificate,
     "the peer says that our certificate has been revoked"},
    {SSL_R_TLSV1_ALERT_UNKNOWN_CA, reason::kBadCertificate,
     "the peer does not know the authority of our certificate: it belongs to another federation"},
    {SSL_R_SSLV3_ALERT_BAD_CERTIFICATE, reason::kBadCertificate, "the peer refuses our certificate"},
    {SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE, reason::kBadCertificate,
     "the peer refuses our certificate: it was not issued for this use"},
    {SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN, reason::kBadCertificate, "the peer refuses our certificate"},
    {SSL_R_TLSV1_ALERT_NO_APPLICATION_PROTOCOL, reason::kWrongAlpn,
     "the server does not speak this protocol: is it the right port?"},
    {SSL_R_TLSV1_ALERT_PROTOCOL_VERSION, reason::kOldTls, "the peer speaks another version of TLS; 1.3 is required"},
    {SSL_R_UNSUPPORTED_PROTOCOL, reason::kOldTls, ""},
    {SSL_R_VERSION_TOO_LOW, reason::kOldTls, ""},
    {SSL_R_WRONG_VERSION_NUMBER, reason::kNotTls, "the peer does not speak TLS: is it the right port?"},
    {SSL_R_HTTP_REQUEST, reason::kPlainHttp, ""},
    {SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE, reason::kNoCertificate,
     "the client shows no certificate; one of this federation is required"},
    {SSL_R_CERTIFICATE_VERIFY_FAILED, reason::kBadCertificate, ""},
    {SSL_R_NO_APPLICATION_PROTOCOL, reason::kWrongAlpn, ""},
    {SSL_R_CALLBACK_FAILED, reason::kWrongAlpn, ""},  // core/identity's check of the offered protocols
    {SSL_R_DECRYPTION_FAILED_OR_BAD_RECORD_MAC, reason::kDamaged,
     "what came was changed on its way: a TLS record does not authenticate", Code::kDataLoss},
    {SSL_R_UNEXPECTED_EOF_WHILE_READING, reason::kClosedEarly, ""},
};

const Known* find_known(unsigned long code) {
  if (ERR_GET_LIB(code) != ERR_LIB_SSL) return nullptr;
  for (const Known& known : kKnown) {
    if (known.ssl_reason == ERR_GET_REASON(code)) return &known;
  }
  return nullptr;
}

}  // namespace

TlsFault explain_tls_failure(SSL* ssl, std::string_view what) {
  const Known* known = find_known(ERR_peek_error());
  if (known == nullptr) known = find_known(ERR_peek_last_error());
  Error error = identity::handshake_error(ssl, what);
  if (known == nullptr) {
    return {error.code == Code::kUnavailable ? reason::kClosedEarly : reason::kHandshakeFailed, std::move(error)};
  }
  if (!known->line.empty()) error = {known->code, std::string(what) + ": " + std::string(known->line)};
  return {known->label, std::move(error)};
}

}  // namespace fluvial::net
