#include "core/identity/testing.h"

#include <atomic>

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
  return {std::move(made.key), {std::move(certificate)}, {authority.certificate()}};
}

bool add_extension(X509* certificate, X509* issuer, int nid, const std::string& value) {
  if (value.empty()) return true;
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const ExtensionPtr extension(X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str()));
  return extension != nullptr && X509_add_ext(certificate, extension.get(), -1) == 1;
}

// `above`: none makes it self-signed.
Certificate certify(const PrivateKey& key, const AuthoritySpec& spec, const Issuer* above) {
  CertificatePtr made(X509_new());
  X509* const raw = made.get();
  X509* const issuer = above == nullptr ? raw : above->chain.front().native();
  const PrivateKey& signer = above == nullptr ? key : above->key;
  X509_NAME* const name = X509_get_subject_name(raw);
  static std::atomic<long> serial{1000};
  const bool good =
      X509_set_version(raw, X509_VERSION_3) == 1 && ASN1_INTEGER_set(X509_get_serialNumber(raw), ++serial) == 1 &&
      X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, as_uchar(spec.name.data()),
                                 static_cast<int>(spec.name.size()), -1, 0) == 1 &&
      X509_set_issuer_name(raw, X509_get_subject_name(issuer)) == 1 && X509_set_pubkey(raw, key.native()) == 1 &&
      X509_gmtime_adj(X509_getm_notBefore(raw), -3600) != nullptr &&
      X509_gmtime_adj(X509_getm_notAfter(raw), static_cast<long>(spec.validity.count())) != nullptr &&
      add_extension(raw, issuer, NID_basic_constraints, spec.basic_constraints) &&
      add_extension(raw, issuer, NID_key_usage, spec.key_usage) &&
      add_extension(raw, issuer, NID_subject_key_identifier, "hash") &&
      add_extension(raw, issuer, NID_authority_key_identifier, "keyid:always") &&
      X509_sign(raw, signer.native(), EVP_sha256()) > 0;
  FLUVIAL_CHECK(good, "a test's authority");
  return Certificate(std::shared_ptr<X509>(std::move(made)));
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
  made.authorities = {authority_.certificate()};
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

Issuer make_test_root(const std::string& name, const std::string& basic_constraints) {
  PrivateKey key = PrivateKey::generate().value();
  Certificate root = certify(key, {.name = name, .basic_constraints = basic_constraints}, nullptr);
  return {std::move(key), {std::move(root)}};
}

Issuer make_test_authority(const Issuer& above, const AuthoritySpec& spec) {
  PrivateKey key = PrivateKey::generate().value();
  std::vector<Certificate> chain{certify(key, spec, &above)};
  chain.insert(chain.end(), above.chain.begin(), above.chain.end());
  return {std::move(key), std::move(chain)};
}

}  // namespace fluvial::identity
