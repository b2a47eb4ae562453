#include "core/identity/testing.h"

#include "core/identity/csr.h"
#include "core/identity/openssl_internal.h"

namespace fluvial::identity {
namespace {

WallTime wall_now() { return SystemClock().wall_now(); }

CertificateAuthority new_authority(const std::string& federation) {
  return CertificateAuthority::create_in_memory(federation, wall_now()).value();
}

Credentials issue(const CertificateAuthority& authority, Member member, WallTime now) {
  auto made = make_key_and_csr().value();
  const Grant grant{std::move(member), std::chrono::hours(1), {"localhost"}, {"127.0.0.1"}};
  Certificate certificate = authority.issue(made.csr_der.span(), grant, now).value();
  return {std::move(made.key), {std::move(certificate)}, authority.certificate()};
}

Member some_site() { return {Role::kSite, NodeId(7), "hospital-a"}; }

}  // namespace

TestPki::TestPki() : authority_(new_authority("test")), foreign_(new_authority("foreign")) {}

Credentials TestPki::credentials(Role role, NodeId node, const std::string& name) const {
  return issue(authority_, {role, node, name}, wall_now());
}

Credentials TestPki::expired_credentials(Role role, NodeId node, const std::string& name) const {
  return issue(authority_, {role, node, name}, wall_now() - std::chrono::hours(2));
}

Credentials TestPki::foreign_credentials(Role role, NodeId node, const std::string& name) const {
  Credentials made = issue(foreign_, {role, node, name}, wall_now());
  made.authority = authority_.certificate();
  return made;
}

std::shared_ptr<const TlsContext> TestPki::member_server(Role role, NodeId node, const std::string& name) const {
  return TlsContext::member_server(credentials(role, node, name)).value();
}

std::shared_ptr<const TlsContext> TestPki::member_client(Role role, NodeId node, const std::string& name) const {
  return TlsContext::member_client(credentials(role, node, name)).value();
}

std::shared_ptr<const TlsContext> TestPki::enrol_server() const {
  return TlsContext::enrol_server(credentials(Role::kCoordinator, NodeId(1), "root")).value();
}

std::shared_ptr<const TlsContext> TestPki::enrol_client() const { return TlsContext::enrol_client(pin()).value(); }

std::shared_ptr<const TlsContext> TestPki::expired_server(Role role, NodeId node, const std::string& name) const {
  return TlsContext::member_server(expired_credentials(role, node, name)).value();
}

std::shared_ptr<const TlsContext> TestPki::expired_client(Role role, NodeId node, const std::string& name) const {
  return TlsContext::member_client(expired_credentials(role, node, name)).value();
}

std::shared_ptr<const TlsContext> TestPki::foreign_server(Role role, NodeId node, const std::string& name) const {
  return TlsContext::member_server(foreign_credentials(role, node, name)).value();
}

std::shared_ptr<const TlsContext> TestPki::foreign_client(Role role, NodeId node, const std::string& name) const {
  return TlsContext::member_client(foreign_credentials(role, node, name)).value();
}

std::shared_ptr<const TlsContext> TestPki::anonymous_client() const {
  const std::string offer = std::string(1, static_cast<char>(kMemberAlpn.size())) + std::string(kMemberAlpn);
  std::shared_ptr<SSL_CTX> context(SSL_CTX_new(TLS_client_method()), SSL_CTX_free);
  FLUVIAL_CHECK(context != nullptr, "out of memory");
  SSL_CTX_set_alpn_protos(context.get(), as_uchar(offer.data()), static_cast<unsigned int>(offer.size()));
  return std::make_shared<const TlsContext>(std::move(context), false);
}

std::shared_ptr<const TlsContext> TestPki::no_alpn_client() const {
  auto client = member_client(some_site().role, some_site().node, some_site().name);
  SSL_CTX_set_alpn_protos(client->native(), nullptr, 0);
  return client;
}

std::shared_ptr<const TlsContext> TestPki::other_alpn_client() const {
  constexpr std::string_view kOffer = "\x08http/1.1";
  auto client = member_client(some_site().role, some_site().node, some_site().name);
  SSL_CTX_set_alpn_protos(client->native(), as_uchar(kOffer.data()), static_cast<unsigned int>(kOffer.size()));
  return client;
}

std::shared_ptr<const TlsContext> TestPki::tls12_client() const {
  auto client = member_client(some_site().role, some_site().node, some_site().name);
  SSL_CTX_set_min_proto_version(client->native(), TLS1_2_VERSION);
  SSL_CTX_set_max_proto_version(client->native(), TLS1_2_VERSION);
  return client;
}

}  // namespace fluvial::identity
