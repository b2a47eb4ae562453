// Certificates, requests for them and public keys: any bytes, and ones that are formed and signed as they must be, with
// names, usages, dates and keys of any kind. Compared with OpenSSL's own readers: a certificate is issued for exactly
// the requests that prove an accepted key, and says what the grant says; an identity is read from exactly the
// certificates that have one.
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/identity/authority.h"
#include "core/identity/csr.h"
#include "core/identity/openssl_internal.h"
#include "core/identity/seeded_key.h"
#include "core/identity/signature.h"
#include "core/identity/verify.h"
#include "tests/fuzz/errors.h"
#include "tests/fuzz/input.h"

namespace fluvial::fuzz {
namespace {

using identity::Certificate;

const WallTime kNow{std::chrono::seconds(1'700'000'000)};

const identity::CertificateAuthority& authority() {
  static const auto made = identity::CertificateAuthority::create_in_memory("fuzz", kNow).value();
  return made;
}

// The accepted kinds, and others.
enum class KeyKind { kEd25519, kP256, kP384, kRsa, kCount };
EVP_PKEY* key_of(KeyKind kind) {
  static const auto keys = [] {
    std::vector<std::shared_ptr<EVP_PKEY>> made;
    Digest seed{};
    static const auto seeded = identity::seeded_key(seed).value();
    made.emplace_back(seeded.native(), [](EVP_PKEY*) {});
    made.emplace_back(EVP_EC_gen("P-256"), EVP_PKEY_free);
    made.emplace_back(EVP_EC_gen("P-384"), EVP_PKEY_free);
    made.emplace_back(EVP_RSA_gen(1024), EVP_PKEY_free);
    return made;
  }();
  return keys[static_cast<std::size_t>(kind)].get();
}
bool is_accepted(EVP_PKEY* key) {
  if (EVP_PKEY_is_a(key, "ED25519") == 1) return true;
  char group[64] = {};
  return EVP_PKEY_is_a(key, "EC") == 1 && EVP_PKEY_get_group_name(key, group, sizeof(group), nullptr) == 1 &&
         std::string_view(group) == "prime256v1" && EVP_PKEY_get_int_param(key, "decoded-from-explicit", nullptr) <= 1;
}
const EVP_MD* digest_for(EVP_PKEY* key) { return EVP_PKEY_is_a(key, "ED25519") == 1 ? nullptr : EVP_sha256(); }

template <typename T, typename Encode>
std::string encoded(T* object, Encode encode) {
  unsigned char* bytes = nullptr;
  const int size = encode(object, &bytes);
  if (size <= 0) return {};
  std::string der(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(size));  // NOLINT: bytes as text
  OPENSSL_free(bytes);
  return der;
}
const unsigned char* uchars(const std::string& text) {
  return reinterpret_cast<const unsigned char*>(text.data());  // NOLINT: bytes as text
}

// Some of its bytes, or its length, changed.
void damage(Input& input, std::string& der) {
  for (std::size_t changes = input.below(4); changes > 0 && !der.empty(); --changes) {
    der[input.number<std::uint16_t>() % der.size()] = static_cast<char>(input.byte());
  }
  if (input.below(16) == 0) der += input.text();
  if (input.below(16) == 0) der.resize(der.size() - std::min<std::size_t>(der.size(), input.byte()));
}

// ---- requests ----------------------------------------------------------------------------------------------------

// Whether it proves an accepted key, by OpenSSL's readers alone; then that key.
identity::KeyPtr proven_key(const std::string& der) {
  if (der.empty() || der.size() > identity::kCsrBytesMax) return nullptr;
  const unsigned char* at = uchars(der);
  const identity::RequestPtr request(d2i_X509_REQ(nullptr, &at, static_cast<long>(der.size())));
  if (!request || at != uchars(der) + der.size()) return nullptr;
  identity::KeyPtr key(X509_REQ_get_pubkey(request.get()));
  if (!key || !is_accepted(key.get()) || X509_REQ_verify(request.get(), key.get()) != 1) return nullptr;
  return key;
}

void check_issued(const Certificate& certificate, const identity::Grant& grant, EVP_PKEY* key) {
  const auto who = identity::identity_of(certificate);
  FLUVIAL_CHECK(
      who.ok() && who->role == grant.member.role && who->node == grant.member.node && who->name == grant.member.name,
      "a certificate that does not say what was granted");
  FLUVIAL_CHECK(EVP_PKEY_eq(X509_get0_pubkey(certificate.native()), key) == 1, "a certificate for another key");
  FLUVIAL_CHECK(X509_verify(certificate.native(), X509_get0_pubkey(authority().certificate().native())) == 1,
                "a certificate that its authority did not sign");
  FLUVIAL_CHECK(X509_check_ca(certificate.native()) == 0, "a member's certificate is an authority's");
  FLUVIAL_CHECK(certificate.not_after() <= authority().certificate().not_after(), "it outlives its authority");
  const auto verified = identity::verify_chain({certificate}, authority().authorities(), kNow, {});
  FLUVIAL_CHECK(verified.ok() && *verified == *who, "a handshake would refuse what was issued");
}

void request(const std::string& der, const identity::Grant& grant) {
  ERR_clear_error();
  const identity::KeyPtr key = proven_key(der);
  ERR_clear_error();
  const Result<Certificate> issued = authority().issue(as_byte_span(der), grant, kNow);
  const auto serial = identity::serial_of(Digest{}, as_byte_span(der));
  check_error(issued);
  check_error(serial);
  FLUVIAL_CHECK(serial.ok() == (key != nullptr), "a serial for a request that proves nothing");
  const bool is_granted = identity::check_node_name(grant.member.name).ok() && grant.member.node != NodeId();
  FLUVIAL_CHECK(issued.ok() == (key != nullptr && is_granted), "a certificate without a proof, or none with one");
  if (issued.ok()) check_issued(*issued, grant, key.get());
}

identity::Grant grant_of(Input& input) {
  identity::Grant grant;
  grant.member.role = static_cast<Role>(input.below(4));
  grant.member.node = NodeId(input.byte());
  grant.member.name = input.flag() ? "hospital-a" : input.text();
  grant.validity = std::chrono::seconds(1 + std::int64_t{input.number<std::uint32_t>()});
  return grant;
}

// Formed by its rules, with a subject and extensions that mean nothing; signed by its key, or by another.
void made_request(Input& input) {
  const identity::Grant grant = grant_of(input);
  EVP_PKEY* const key = key_of(static_cast<KeyKind>(input.below(static_cast<std::size_t>(KeyKind::kCount))));
  EVP_PKEY* const signer = input.below(4) == 0 ? key_of(KeyKind::kP256) : key;
  const identity::RequestPtr made(X509_REQ_new());
  X509_REQ_set_version(made.get(), input.below(8) == 0 ? input.byte() : X509_REQ_VERSION_1);
  X509_REQ_set_pubkey(made.get(), key);
  for (std::size_t names = input.below(3); names > 0; --names) {
    const std::string text = input.text();
    X509_NAME_add_entry_by_NID(X509_REQ_get_subject_name(made.get()), input.flag() ? NID_commonName : NID_serialNumber,
                               MBSTRING_ASC, uchars(text), static_cast<int>(text.size()), -1, 0);
  }
  X509_REQ_sign(made.get(), signer, digest_for(signer));
  std::string der =
      encoded(made.get(), [](X509_REQ* object, unsigned char** out) { return i2d_X509_REQ(object, out); });
  damage(input, der);
  request(der, grant);
}

// ---- certificates ------------------------------------------------------------------------------------------------

void check_certificate(const Certificate& certificate) {
  FLUVIAL_CHECK(!certificate.serial_hex().empty(), "a certificate has a serial");
  (void)certificate.not_before();
  (void)certificate.not_after();
  (void)identity::federation_of(certificate);
  FLUVIAL_CHECK(identity::check_pin(identity::pin_of(certificate)).ok(), "a pin has one form");
  const identity::PublicKey key = certificate.public_key();
  if (key) (void)key.verify("fuzz", {}, Signature{});
  const auto again = Certificate::from_der(certificate.der().span());
  FLUVIAL_CHECK(again.ok() && again->serial_hex() == certificate.serial_hex(), "a certificate is read again");
  const auto chain = Certificate::chain_from_pem(certificate.pem());
  FLUVIAL_CHECK(chain.ok() && chain->size() == 1 && X509_cmp(chain->front().native(), certificate.native()) == 0,
                "a certificate's PEM is another one");
  const auto who = identity::identity_of(certificate);
  check_error(who);
  if (!who.ok()) return;
  FLUVIAL_CHECK(identity::check_node_name(who->name).ok() && who->node != NodeId(), "somebody without a name");
}

void read_der(ByteSpan der) {
  const auto certificate = Certificate::from_der(der);
  check_error(certificate);
  if (certificate.ok()) check_certificate(*certificate);
}

void read_pem(std::string_view pem) {
  check_error(Certificate::authorities_from_pem(pem));
  const auto chain = Certificate::chain_from_pem(pem);
  check_error(chain);
  if (!chain.ok()) return;
  const auto verified = identity::verify_chain(*chain, authority().authorities(), kNow, {});
  check_error(verified);
  FLUVIAL_CHECK(!verified.ok(), "somebody whose certificate our authority has not issued");
  FLUVIAL_CHECK(!chain->empty() && chain->size() <= 16, "a chain has an end");
  std::string written;
  for (const Certificate& certificate : *chain) {
    check_certificate(certificate);
    written += certificate.pem();
  }
  const auto again = Certificate::chain_from_pem(written);
  FLUVIAL_CHECK(again.ok() && again->size() == chain->size(), "a chain is read again as another");
}

void read_key(ByteSpan der) {
  const auto key = identity::PublicKey::from_der(der);
  check_error(key);
  if (!key.ok()) return;
  const Buffer own = key->der();
  const auto again = identity::PublicKey::from_der(own.span());
  FLUVIAL_CHECK(*key && again.ok() && *again == *key, "a public key is read again as another");
  const unsigned char* at = identity::as_uchar(own.data());
  const identity::KeyPtr other(d2i_PUBKEY(nullptr, &at, static_cast<long>(own.size())));
  FLUVIAL_CHECK(other && is_accepted(other.get()), "a key of a kind that is not accepted");
  FLUVIAL_CHECK(!key->verify("fuzz", der, Signature{}).ok(), "a signature of zeros");
}

// What a made certificate says.
struct Said {
  std::vector<std::string> uris;
  bool has_usage = false;
  bool is_authority = false;
};

Said fill(Input& input, X509* certificate) {
  Said said;
  X509_set_version(certificate, X509_VERSION_3);
  const std::string serial = input.text();
  const BIGNUM* const number = BN_bin2bn(uchars(serial), static_cast<int>(serial.size()), nullptr);
  BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate));
  BN_free(const_cast<BIGNUM*>(number));  // NOLINT: owned here
  const std::string until = input.flag() ? input.text() : "20401231235959Z";
  ASN1_STRING_set(X509_getm_notBefore(certificate), "20231101000000Z", -1);
  X509_getm_notBefore(certificate)->type = V_ASN1_GENERALIZEDTIME;
  ASN1_STRING_set(X509_getm_notAfter(certificate), until.data(), static_cast<int>(until.size()));
  X509_getm_notAfter(certificate)->type = input.flag() ? V_ASN1_UTCTIME : V_ASN1_GENERALIZEDTIME;
  const identity::GeneralNamesPtr names(GENERAL_NAMES_new());
  for (std::size_t i = input.below(4); i > 0; --i) {
    const bool is_uri = input.below(4) != 0;
    const std::string text = input.flag() ? "fluvial://site/7/hospital-a" : input.text();
    GENERAL_NAME* const name = GENERAL_NAME_new();
    ASN1_IA5STRING* const value = ASN1_IA5STRING_new();
    ASN1_STRING_set(value, text.data(), static_cast<int>(text.size()));
    GENERAL_NAME_set0_value(name, is_uri ? GEN_URI : GEN_DNS, value);
    sk_GENERAL_NAME_push(names.get(), name);
    if (is_uri) said.uris.push_back(text);
  }
  if (sk_GENERAL_NAME_num(names.get()) > 0) {
    X509_add1_ext_i2d(certificate, NID_subject_alt_name, names.get(), 0, X509V3_ADD_DEFAULT);
  }
  const auto extend = [&](int nid, const char* text) {
    X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, nullptr, nid, text);
    X509_add_ext(certificate, extension, -1);
    X509_EXTENSION_free(extension);
  };
  said.has_usage = input.below(4) != 0;
  said.is_authority = input.below(4) == 0;
  if (said.has_usage) extend(NID_ext_key_usage, input.flag() ? "clientAuth" : "serverAuth");
  if (said.is_authority) extend(NID_basic_constraints, "critical,CA:TRUE");
  return said;
}

void made_certificate(Input& input) {
  EVP_PKEY* const key = key_of(static_cast<KeyKind>(input.below(static_cast<std::size_t>(KeyKind::kCount))));
  const identity::CertificatePtr made(X509_new());
  X509_set_pubkey(made.get(), key);
  const Said said = fill(input, made.get());
  if (X509_sign(made.get(), key_of(KeyKind::kEd25519), nullptr) <= 0) return;
  std::string der = encoded(made.get(), [](X509* object, unsigned char** out) { return i2d_X509(object, out); });
  const bool is_whole = input.flag();
  if (!is_whole) damage(input, der);
  read_der(as_byte_span(der));
  const auto certificate = Certificate::from_der(as_byte_span(der));
  if (!is_whole || !certificate.ok()) return;
  const auto who = identity::identity_of(*certificate);
  const auto member = said.uris.size() == 1 ? identity::member_from_uri(said.uris.front())
                                            : Result<identity::Member>(Error{Code::kInvalidArgument, "none"});
  FLUVIAL_CHECK(who.ok() == (member.ok() && said.has_usage && !said.is_authority),
                "an identity that the certificate does not state, or none where it states one");
  if (who.ok()) {
    FLUVIAL_CHECK(who->role == member->role && who->node == member->node && who->name == member->name,
                  "another identity than it states");
  }
}

void run(ByteSpan bytes) {
  Input input(bytes);
  switch (input.below(6)) {
    case 0: return read_der(input.rest());
    case 1: return read_pem(as_text(input.rest()));
    case 2: return read_key(input.rest());
    case 3: {
      const identity::Grant grant = grant_of(input);
      return request(std::string(as_text(input.rest())), grant);
    }
    case 4: return made_request(input);
    default: return made_certificate(input);
  }
}

}  // namespace
}  // namespace fluvial::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fluvial::fuzz::run(std::as_bytes(std::span(data, size)));
  return 0;
}
