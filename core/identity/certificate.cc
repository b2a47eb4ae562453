#include "core/identity/certificate.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <ctime>

#include "core/digest/sha256.h"
#include "core/identity/errors.h"
#include "core/identity/files.h"
#include "core/identity/openssl_internal.h"

namespace fluvial::identity {
namespace {

constexpr std::size_t kCertificateBytesMax = 16 * 1024;
WallTime to_wall_time(const ASN1_TIME* time) {
  std::tm parts = {};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return WallTime();  // unreadable: long expired
  return WallTime(std::chrono::seconds(::timegm(&parts)));
}

// OpenSSL reads a certificate's extensions when they are first asked for and writes what it finds into it: it is to be
// there before threads share the certificate. What is wrong with them is said by whoever verifies it.
Certificate complete(CertificatePtr certificate) {
  X509_check_purpose(certificate.get(), -1, 0);
  ERR_clear_error();
  return Certificate(std::shared_ptr<X509>(std::move(certificate)));
}

Result<std::vector<Certificate>> certificates_from_pem(std::string_view pem, std::size_t max) {
  if (pem.size() > max * 2 * kCertificateBytesMax) return Error{Code::kDataLoss, "a PEM chain is too large"};
  const BioPtr bio = bio_over(pem);
  std::vector<Certificate> chain;
  while (CertificatePtr next{PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)}) {
    if (chain.size() == max) {
      return Error{Code::kDataLoss, "more than " + std::to_string(max) + " certificates in a PEM chain"};
    }
    chain.push_back(complete(std::move(next)));
  }
  const unsigned long last = ERR_peek_last_error();
  const bool at_end = ERR_GET_LIB(last) == ERR_LIB_PEM && ERR_GET_REASON(last) == PEM_R_NO_START_LINE;
  if (!at_end || chain.empty()) return openssl_error("not a PEM certificate", Code::kDataLoss);
  ERR_clear_error();
  return chain;
}

Result<std::vector<Certificate>> load_certificates(const std::string& path, std::size_t max) {
  FLUVIAL_ASSIGN(const std::string pem, read_small_file(path));
  auto chain = certificates_from_pem(pem, max);
  if (!chain.ok()) return Error{chain.error().code, path + ": " + chain.error().message};
  return chain;
}

}  // namespace

Result<Certificate> Certificate::from_der(ByteSpan der) {
  if (der.size() > kCertificateBytesMax) return Error{Code::kDataLoss, "a certificate is larger than 16 KiB"};
  const unsigned char* at = as_uchar(der.data());
  CertificatePtr certificate(d2i_X509(nullptr, &at, static_cast<long>(der.size())));
  if (certificate == nullptr) return openssl_error("not a DER certificate", Code::kDataLoss);
  if (at != as_uchar(der.data()) + der.size()) return Error{Code::kDataLoss, "bytes follow a DER certificate"};
  return complete(std::move(certificate));
}

Result<std::vector<Certificate>> Certificate::chain_from_pem(std::string_view pem) {
  return certificates_from_pem(pem, kChainMax);
}
Result<std::vector<Certificate>> Certificate::load_chain(const std::string& path) {
  return load_certificates(path, kChainMax);
}
Result<std::vector<Certificate>> Certificate::authorities_from_pem(std::string_view pem) {
  return certificates_from_pem(pem, kAuthoritiesMax);
}
Result<std::vector<Certificate>> Certificate::load_authorities(const std::string& path) {
  return load_certificates(path, kAuthoritiesMax);
}

Status Certificate::save_chain(const std::vector<Certificate>& chain, const std::string& path) {
  return write_file(path, pem_of(chain), 0644);
}

Buffer Certificate::der() const {
  const int size = i2d_X509(native(), nullptr);
  FLUVIAL_CHECK(size > 0, "a certificate does not encode");
  Buffer der(static_cast<std::size_t>(size));
  unsigned char* out = as_uchar(der.data());
  FLUVIAL_CHECK(i2d_X509(native(), &out) == size, "a certificate changed its size");
  return der;
}

std::string Certificate::pem() const {
  const BioPtr bio(BIO_new(BIO_s_mem()));
  FLUVIAL_CHECK(bio != nullptr && PEM_write_bio_X509(bio.get(), native()) == 1, "a certificate does not encode");
  return std::string(bio_text(bio.get()));
}

std::string Certificate::pem_of(const std::vector<Certificate>& certificates) {
  std::string pem;
  for (const Certificate& certificate : certificates) pem += certificate.pem();
  return pem;
}

PublicKey Certificate::public_key() const {
  KeyPtr key(X509_get_pubkey(native()));
  return key == nullptr ? PublicKey() : PublicKey(std::shared_ptr<EVP_PKEY>(std::move(key)));
}

std::string Certificate::serial_hex() const {
  const ASN1_INTEGER* const serial = X509_get0_serialNumber(native());
  const auto* const bytes = reinterpret_cast<const std::byte*>(ASN1_STRING_get0_data(serial));
  const std::string hex = to_hex({bytes, static_cast<std::size_t>(ASN1_STRING_length(serial))});
  const std::size_t first = hex.find_first_not_of('0');
  return first == std::string::npos ? "0" : hex.substr(first);
}

WallTime Certificate::not_before() const { return to_wall_time(X509_get0_notBefore(native())); }
WallTime Certificate::not_after() const { return to_wall_time(X509_get0_notAfter(native())); }

std::string pin_of(const Certificate& authority) {
  const int size = i2d_X509_PUBKEY(X509_get_X509_PUBKEY(authority.native()), nullptr);
  FLUVIAL_CHECK(size > 0, "a public key does not encode");
  Buffer der(static_cast<std::size_t>(size));
  unsigned char* out = as_uchar(der.data());
  i2d_X509_PUBKEY(X509_get_X509_PUBKEY(authority.native()), &out);
  return std::string(kPinPrefix) + to_hex(sha256(der.span()));
}

Status check_pin(std::string_view pin) {
  const auto is_hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  if (pin.starts_with(kPinPrefix) && pin.size() == kPinPrefix.size() + 2 * sizeof(Digest) &&
      std::all_of(pin.begin() + kPinPrefix.size(), pin.end(), is_hex)) {
    return {};
  }
  return Error{Code::kInvalidArgument, "a pin is \"sha256:\" and 64 lower-case hex digits"};
}

}  // namespace fluvial::identity
