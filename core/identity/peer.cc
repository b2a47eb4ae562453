// The identity of the other side: PeerIdentity in certificate.h.
#include <fmt/format.h>

#include "core/identity/authority.h"
#include "core/identity/certificate.h"
#include "core/identity/openssl_internal.h"

namespace fluvial::identity {
namespace {

Error unauthenticated(std::string message) { return {Code::kUnauthenticated, std::move(message)}; }

Result<Member> member_of(X509* certificate) {
  const GeneralNamesPtr names(
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  std::string_view uri;
  int uris = 0;
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type != GEN_URI) continue;
    const ASN1_STRING* const text = name->d.uniformResourceIdentifier;
    uri = {reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
           static_cast<std::size_t>(ASN1_STRING_length(text))};
    ++uris;
  }
  if (uris != 1) return unauthenticated(fmt::format("the certificate has {} URI names; a member has one", uris));
  auto member = member_from_uri(uri);
  if (!member.ok()) return unauthenticated("the certificate's URI name: " + member.error().message);
  return member;
}

}  // namespace

Result<PeerIdentity> identity_of(const Certificate& certificate) {
  const std::uint32_t flags = X509_get_extension_flags(certificate.native());
  if ((flags & EXFLAG_INVALID) != 0) return unauthenticated("the certificate's extensions are malformed");
  if ((flags & EXFLAG_CA) != 0) return unauthenticated("the certificate is an authority's, not a member's");
  if ((flags & EXFLAG_XKUSAGE) == 0) return unauthenticated("the certificate has no extended key usage");
  FLUVIAL_ASSIGN(Member member, member_of(certificate.native()));
  return PeerIdentity{member.role,
                      member.node,
                      std::move(member.name),
                      certificate.serial_hex(),
                      certificate.not_after(),
                      certificate.public_key(),
                      certificate.not_before() + kBackdated};
}

Result<PeerIdentity> peer_identity(SSL* ssl) {
  if (SSL_is_init_finished(ssl) != 1) return unauthenticated("the TLS handshake is not finished");
  const unsigned char* protocol = nullptr;
  unsigned int size = 0;
  SSL_get0_alpn_selected(ssl, &protocol, &size);
  const std::string_view selected(reinterpret_cast<const char*>(protocol), size);
  if (selected.empty() || !stands_for(selected, required_alpn(ssl))) {
    return unauthenticated(fmt::format("the peer does not speak {}", required_alpn(ssl)));
  }
  X509* const certificate = SSL_get1_peer_certificate(ssl);
  if (certificate == nullptr) return unauthenticated("the peer showed no certificate");
  const Certificate shown(std::shared_ptr<X509>(certificate, X509_free));
  const long verified = SSL_get_verify_result(ssl);
  if ((SSL_get_verify_mode(ssl) & SSL_VERIFY_PEER) == 0 || verified != X509_V_OK) {
    return unauthenticated(
        fmt::format("the peer's certificate is not verified: {}", X509_verify_cert_error_string(verified)));
  }
  return identity_of(shown);
}

std::string describe(const PeerIdentity& peer) { return describe(Member{peer.role, peer.node, peer.name}); }

Status may_speak_as(const PeerIdentity& peer, Role expected) {
  if (peer.role == expected) return {};
  return Error{Code::kPermissionDenied, fmt::format("{} may not act as {}: its certificate is for the role {}",
                                                    describe(peer), role_name(expected), role_name(peer.role))};
}

}  // namespace fluvial::identity
