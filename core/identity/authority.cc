#include "core/identity/authority.h"

#include <openssl/rand.h>

#include <algorithm>
#include <array>

#include "core/digest/sha256.h"
#include "core/identity/csr.h"
#include "core/identity/errors.h"
#include "core/identity/files.h"
#include "core/identity/openssl_internal.h"
#include "core/identity/random.h"
#include "core/identity/verify.h"

namespace fluvial::identity {
namespace {

constexpr std::size_t kServerNamesMax = 16;

// The two top bits are fixed (RFC 5280: positive, at most 20 octets), so that every serial has 16 bytes.
Serial in_form(Serial serial) {
  serial[0] = (serial[0] & std::byte{0x3f}) | std::byte{0x40};
  return serial;
}

Serial random_serial() {
  Serial serial;
  random_bytes(serial);
  return in_form(serial);
}

bool set_serial(X509* certificate, const Serial& serial) {
  return ASN1_STRING_set(X509_get_serialNumber(certificate), serial.data(), static_cast<int>(serial.size())) == 1;
}

NamePtr make_name(std::string_view unit, const std::string& common_name) {
  NamePtr name(X509_NAME_new());
  const auto add = [&](const char* field, std::string_view value) {
    return X509_NAME_add_entry_by_txt(name.get(), field, MBSTRING_ASC, as_uchar(value.data()),
                                      static_cast<int>(value.size()), -1, 0) == 1;
  };
  const bool good = name != nullptr && add("O", "Fluvial") && add("OU", unit) && add("CN", common_name);
  return good ? std::move(name) : nullptr;
}

bool add_extension(X509* certificate, X509* issuer, int nid, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const ExtensionPtr extension(X509V3_EXT_conf_nid(nullptr, &context, nid, value));
  return extension != nullptr && X509_add_ext(certificate, extension.get(), -1) == 1;
}

bool push(GENERAL_NAMES* names, int type, ASN1_STRING* value) {
  if (value == nullptr) return false;
  GeneralNamePtr name(GENERAL_NAME_new());
  if (name == nullptr) {
    ASN1_STRING_free(value);
    return false;
  }
  GENERAL_NAME_set0_value(name.get(), type, value);
  GENERAL_NAME* const given = name.release();  // owned by the list from here on
  if (sk_GENERAL_NAME_push(names, given) > 0) return true;
  GENERAL_NAME_free(given);
  return false;
}

bool push_text(GENERAL_NAMES* names, int type, std::string_view text) {
  ASN1_STRING* const value = ASN1_IA5STRING_new();
  if (value != nullptr && ASN1_STRING_set(value, text.data(), static_cast<int>(text.size())) != 1) {
    ASN1_STRING_free(value);
    return false;
  }
  return push(names, type, value);
}

Status add_alternative_names(X509* certificate, const Grant& grant) {
  const GeneralNamesPtr names(GENERAL_NAMES_new());
  bool good = names != nullptr && push_text(names.get(), GEN_URI, member_uri(grant.member));
  for (const std::string& name : grant.dns_names) {
    if (!is_host_name(name)) return Error{Code::kInvalidArgument, "not a host name: " + name};
    good = good && push_text(names.get(), GEN_DNS, name);
  }
  for (const std::string& address : grant.ip_addresses) {
    ASN1_OCTET_STRING* const octets = a2i_IPADDRESS(address.c_str());
    if (octets == nullptr) return openssl_error("not an IP address: " + address, Code::kInvalidArgument);
    good = good && push(names.get(), GEN_IPADD, octets);
  }
  if (!good || X509_add1_ext_i2d(certificate, NID_subject_alt_name, names.get(), 0, X509V3_ADD_DEFAULT) != 1) {
    return openssl_error("cannot add the names to a certificate");
  }
  return {};
}

const char* key_usage_of(Role role) {
  return role == Role::kSite || role == Role::kOperator ? "clientAuth" : "clientAuth,serverAuth";
}

Status check_grant(const Grant& grant) {
  FLUVIAL_TRY(check_node_name(grant.member.name));
  if (grant.member.node == NodeId()) return Error{Code::kInvalidArgument, "node 0 is nobody"};
  if (grant.validity <= std::chrono::seconds(0)) {
    return Error{Code::kInvalidArgument, "a certificate's validity must be above zero"};
  }
  if (grant.dns_names.size() + grant.ip_addresses.size() > kServerNamesMax) {
    return Error{Code::kInvalidArgument, "more than 16 host names and addresses for one certificate"};
  }
  return {};
}

// The request's public key, once its owner has proved the private one. Nothing else of the request is read.
Result<KeyPtr> key_of_request(ByteSpan der) {
  const Error refused{Code::kInvalidArgument, "the certificate request is not whole DER of at most 4096 bytes"};
  if (der.empty() || der.size() > kCsrBytesMax) return refused;
  const unsigned char* at = as_uchar(der.data());
  const RequestPtr request(d2i_X509_REQ(nullptr, &at, static_cast<long>(der.size())));
  if (request == nullptr) return openssl_error("the certificate request does not parse", Code::kInvalidArgument);
  if (at != as_uchar(der.data()) + der.size()) return refused;
  KeyPtr key(X509_REQ_get_pubkey(request.get()));
  if (key == nullptr) return openssl_error("the certificate request's key does not parse", Code::kInvalidArgument);
  if (const Status good = check_key_type(key.get()); !good.ok()) {
    return Error{good.error().code, "the certificate request is refused: " + good.error().message};
  }
  if (X509_REQ_verify(request.get(), key.get()) != 1) {
    return openssl_error("the certificate request's signature does not verify", Code::kInvalidArgument);
  }
  return key;
}

// A certificate with everything but names, usages and signature.
Result<CertificatePtr> start_certificate(EVP_PKEY* key, X509_NAME* subject, const Serial& serial, WallTime from,
                                         WallTime until) {
  CertificatePtr certificate(X509_new());
  if (certificate == nullptr || subject == nullptr || X509_set_version(certificate.get(), X509_VERSION_3) != 1 ||
      !set_serial(certificate.get(), serial) || X509_set_subject_name(certificate.get(), subject) != 1 ||
      X509_set_pubkey(certificate.get(), key) != 1 ||
      ASN1_TIME_set(X509_getm_notBefore(certificate.get()), to_time_t(from)) == nullptr ||
      ASN1_TIME_set(X509_getm_notAfter(certificate.get()), to_time_t(until)) == nullptr) {
    return openssl_error("cannot fill a certificate");
  }
  return certificate;
}

// Of 16 bytes that follow from what the certificate is for and from its key.
Result<Serial> serial_of(const Digest& purpose, EVP_PKEY* key) {
  unsigned char* encoded = nullptr;
  const int size = i2d_PUBKEY(key, &encoded);
  if (size <= 0) return openssl_error("cannot encode a public key");
  Sha256 hash;
  hash.update(purpose);
  hash.update({reinterpret_cast<const std::byte*>(encoded), static_cast<std::size_t>(size)});
  OPENSSL_free(encoded);
  const Digest digest = hash.finish();
  Serial serial;
  std::copy_n(digest.begin(), serial.size(), serial.begin());
  return in_form(serial);
}

// Nothing in it is drawn: the same key makes the same certificate at the same time.
Result<Certificate> make_authority(const PrivateKey& key, const std::string& federation, WallTime now,
                                   std::chrono::seconds validity) {
  FLUVIAL_TRY(check_node_name(federation));
  const NamePtr name = make_name("authority", federation);
  const std::string purpose = "authority of " + federation + " from " +
                              std::to_string(std::chrono::floor<std::chrono::seconds>(now).time_since_epoch().count());
  FLUVIAL_ASSIGN(const Serial serial, serial_of(sha256(as_byte_span(purpose)), key.native()));
  FLUVIAL_ASSIGN(CertificatePtr certificate,
                 start_certificate(key.native(), name.get(), serial, now - kBackdated, now + validity));
  X509* const raw = certificate.get();
  if (X509_set_issuer_name(raw, name.get()) != 1 ||
      !add_extension(raw, raw, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") ||
      !add_extension(raw, raw, NID_key_usage, "critical,keyCertSign,cRLSign") ||
      !add_extension(raw, raw, NID_subject_key_identifier, "hash") ||
      !add_extension(raw, raw, NID_authority_key_identifier, "keyid:always") ||
      X509_sign(raw, key.native(), signing_digest(key.native())) <= 0) {
    return openssl_error("cannot make the certificate authority");
  }
  return Certificate(std::shared_ptr<X509>(std::move(certificate)));
}

Result<std::vector<Certificate>> open_authority(const PrivateKey& key, const std::string& path, WallTime now) {
  FLUVIAL_ASSIGN(std::vector<Certificate> chain, Certificate::load_chain(path));
  if (X509_check_ca(chain.front().native()) != 1) {
    return Error{Code::kDataLoss, path + " holds no authority's certificate"};
  }
  if (X509_check_private_key(chain.front().native(), key.native()) != 1) {
    return openssl_error(path + " does not belong to the key beside it", Code::kDataLoss);
  }
  if (end_of(chain) < now) return Error{Code::kFailedPrecondition, path + " has expired"};
  return chain;
}

}  // namespace

Result<Issuer> make_issuer(const std::string& federation, WallTime now, std::chrono::seconds validity) {
  FLUVIAL_ASSIGN(PrivateKey key, PrivateKey::generate());
  return make_issuer(std::move(key), federation, now, validity);
}

Result<Issuer> make_issuer(PrivateKey key, const std::string& federation, WallTime now, std::chrono::seconds validity) {
  FLUVIAL_ASSIGN(Certificate certificate, make_authority(key, federation, now, validity));
  return Issuer{std::move(key), {std::move(certificate)}};
}

Result<PublicKey> key_of_csr(ByteSpan csr_der) {
  FLUVIAL_ASSIGN(KeyPtr key, key_of_request(csr_der));
  return PublicKey(std::shared_ptr<EVP_PKEY>(std::move(key)));
}

bool is_host_name(std::string_view name) {
  return !name.empty() && name.size() <= 253 && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-';
  });
}

Result<Serial> serial_of(const Digest& token_hash, ByteSpan csr_der) {
  FLUVIAL_ASSIGN(const KeyPtr key, key_of_request(csr_der));
  return serial_of(token_hash, key.get());
}

std::string federation_of(const Certificate& authority) {
  std::array<char, 64> name{};  // a node name, and the end
  const int size = X509_NAME_get_text_by_NID(X509_get_subject_name(authority.native()), NID_commonName, name.data(),
                                             static_cast<int>(name.size()));
  return size > 0 ? std::string(name.data()) : std::string();
}

std::string federation_of(const Credentials& credentials) {
  if (credentials.chain.size() > 1) return federation_of(credentials.chain[1]);
  const auto root = root_of(credentials.chain, credentials.authorities);
  return root.ok() ? federation_of(*root) : std::string();
}

CertificateAuthority::CertificateAuthority(Issuer issuer, std::vector<Certificate> authorities, std::uint64_t trust,
                                           std::shared_ptr<const CertificateAuthority> before)
    : key_(std::move(issuer.key)),
      certificate_(issuer.chain.front()),
      chain_(std::move(issuer.chain)),
      end_(end_of(chain_)),
      pin_(pin_of(chain_.back())),
      key_id_(PublicKey::of(key_).id()),
      authorities_(authorities.empty() ? std::vector<Certificate>{chain_.back()} : std::move(authorities)),
      trust_(trust),
      before_(std::move(before)) {}

CertificateAuthority CertificateAuthority::of(Issuer issuer, std::vector<Certificate> authorities, std::uint64_t trust,
                                              std::shared_ptr<const CertificateAuthority> before) {
  return {std::move(issuer), std::move(authorities), trust, std::move(before)};
}

Result<CertificateAuthority> CertificateAuthority::create_in_memory(const std::string& federation, WallTime now,
                                                                    std::chrono::seconds validity) {
  FLUVIAL_ASSIGN(Issuer issuer, make_issuer(federation, now, validity));
  return of(std::move(issuer));
}

Result<Issuer> open_or_make_issuer(const std::string& folder, const std::string& federation, WallTime now) {
  const std::string key_path = folder + "/ca-key.pem";
  const std::string certificate_path = folder + "/ca.pem";
  FLUVIAL_TRY(make_private_folder(folder));
  FLUVIAL_ASSIGN(const FolderLock lock, FolderLock::take(folder));
  FLUVIAL_TRY(
      sync_folder(folder));  // no signature may outlive its key: a process that wrote the key may have been killed
  auto key = PrivateKey::load(key_path);
  const bool first_start = !key.ok() && key.error().code == Code::kNotFound;
  if (first_start) {
    if (read_small_file(certificate_path).ok()) {
      return Error{Code::kDataLoss, certificate_path + " is there without " + key_path + ": restore the key file"};
    }
    key = PrivateKey::generate();
    if (key.ok()) FLUVIAL_TRY(key->save(key_path));
  }
  if (!key.ok()) return key.error();
  auto chain = open_authority(*key, certificate_path, now);
  if (!chain.ok() && chain.error().code == Code::kNotFound) {
    FLUVIAL_ASSIGN(Certificate made, make_authority(*key, federation, now, kAuthorityValidity));
    chain = std::vector<Certificate>{std::move(made)};
    FLUVIAL_TRY(Certificate::save_chain(*chain, certificate_path));
  }
  if (!chain.ok()) return chain.error();
  return Issuer{*std::move(key), *std::move(chain)};
}

Result<CertificateAuthority> CertificateAuthority::create_or_open(const std::string& folder,
                                                                  const std::string& federation, WallTime now) {
  FLUVIAL_ASSIGN(Issuer issuer, open_or_make_issuer(folder, federation, now));
  return of(std::move(issuer));
}

Result<Certificate> CertificateAuthority::issue(ByteSpan csr_der, const Grant& grant, WallTime now) const {
  FLUVIAL_TRY(check_grant(grant));
  if (end_ <= now) {
    return Error{Code::kFailedPrecondition, "the certificate authority has expired"};
  }
  FLUVIAL_ASSIGN(const KeyPtr key, key_of_request(csr_der));
  const NamePtr subject = make_name(role_name(grant.member.role), grant.member.name);
  // Compared as a distance in seconds: a huge validity must not overflow.
  const bool clipped = grant.validity >= std::chrono::floor<std::chrono::seconds>(end_ - now);
  const WallTime until = clipped ? end_ : now + grant.validity;
  FLUVIAL_ASSIGN(CertificatePtr certificate,
                 start_certificate(key.get(), subject.get(), grant.serial ? *grant.serial : random_serial(),
                                   now - kBackdated, until));
  X509* const raw = certificate.get();
  FLUVIAL_TRY(add_alternative_names(raw, grant));
  if (X509_set_issuer_name(raw, X509_get_subject_name(certificate_.native())) != 1 ||
      !add_extension(raw, certificate_.native(), NID_basic_constraints, "critical,CA:FALSE") ||
      !add_extension(raw, certificate_.native(), NID_key_usage, "critical,digitalSignature") ||
      !add_extension(raw, certificate_.native(), NID_ext_key_usage, key_usage_of(grant.member.role)) ||
      !add_extension(raw, certificate_.native(), NID_subject_key_identifier, "hash") ||
      !add_extension(raw, certificate_.native(), NID_authority_key_identifier, "keyid:always") ||
      X509_sign(raw, key_.native(), signing_digest(key_.native())) <= 0) {
    return openssl_error("cannot sign a certificate");
  }
  return Certificate(std::shared_ptr<X509>(std::move(certificate)));
}

Result<std::vector<Certificate>> CertificateAuthority::issue_chain(ByteSpan csr_der, const Grant& grant,
                                                                   WallTime now) const {
  FLUVIAL_ASSIGN(Certificate certificate, issue(csr_der, grant, now));
  std::vector<Certificate> chain{std::move(certificate)};
  chain.insert(chain.end(), chain_.begin(), chain_.end() - 1);  // members have the root
  return chain;
}

}  // namespace fluvial::identity
