// Owning handles on OpenSSL objects, for the sources of this room alone.
#pragma once

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <chrono>
#include <ctime>
#include <memory>
#include <string>
#include <string_view>

#include "core/base/bytes.h"
#include "core/base/clock.h"
#include "core/base/result.h"

namespace fluvial::identity {

inline constexpr int kSecurityLevel =
    2;  // of OpenSSL: what keys and digests are strong enough, on the wire and in a chain

template <auto kFree>
struct FreeWith {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};

using BioPtr = std::unique_ptr<BIO, FreeWith<BIO_free_all>>;
using KeyPtr = std::unique_ptr<EVP_PKEY, FreeWith<EVP_PKEY_free>>;
using KeyContextPtr = std::unique_ptr<EVP_PKEY_CTX, FreeWith<EVP_PKEY_CTX_free>>;
using CertificatePtr = std::unique_ptr<X509, FreeWith<X509_free>>;
using RequestPtr = std::unique_ptr<X509_REQ, FreeWith<X509_REQ_free>>;
using ExtensionPtr = std::unique_ptr<X509_EXTENSION, FreeWith<X509_EXTENSION_free>>;
using GeneralNamePtr = std::unique_ptr<GENERAL_NAME, FreeWith<GENERAL_NAME_free>>;
using GeneralNamesPtr = std::unique_ptr<GENERAL_NAMES, FreeWith<GENERAL_NAMES_free>>;
using NamePtr = std::unique_ptr<X509_NAME, FreeWith<X509_NAME_free>>;

inline void free_stack(STACK_OF(X509) * stack) { sk_X509_free(stack); }  // not what is on it
using StackPtr = std::unique_ptr<STACK_OF(X509), FreeWith<free_stack>>;

inline std::time_t to_time_t(WallTime time) {
  return std::chrono::floor<std::chrono::seconds>(time).time_since_epoch().count();
}

inline unsigned char* as_uchar(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }
inline const unsigned char* as_uchar(const std::byte* bytes) { return reinterpret_cast<const unsigned char*>(bytes); }
inline const unsigned char* as_uchar(const char* text) { return reinterpret_cast<const unsigned char*>(text); }

// A memory BIO over text that outlives it.
BioPtr bio_over(std::string_view text);
std::string_view bio_text(BIO* bio);  // what was written to a memory BIO; lives as long as the BIO

// The accepted signature algorithms: ECDSA P-256 (named curve) and Ed25519. kInvalidArgument for any other.
Status check_key_type(EVP_PKEY* key);
const EVP_MD* signing_digest(EVP_PKEY* key);  // null for Ed25519, which hashes by itself

// Our own verdict on a peer, kept on its SSL object for handshake_error().
void set_verdict(SSL* ssl, std::string verdict);
const std::string* verdict_of(const SSL* ssl);

// The protocol that a context insists on, kept on the context for peer_identity().
void set_required_alpn(SSL_CTX* context, const std::string_view& protocol);  // a constant of tls.h
std::string_view required_alpn(SSL* ssl);
bool stands_for(std::string_view protocol, std::string_view required);  // it, or what other programs call the same

}  // namespace fluvial::identity
