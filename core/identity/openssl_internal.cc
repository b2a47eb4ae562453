#include "core/identity/openssl_internal.h"

#include <openssl/core_names.h>

#include <array>

#include "core/identity/tls.h"

namespace fluvial::identity {
namespace {

void free_string(void*, void* data, CRYPTO_EX_DATA*, int, long, void*) { delete static_cast<std::string*>(data); }

int verdict_index() {
  static const int index = SSL_get_ex_new_index(0, nullptr, nullptr, nullptr, free_string);
  return index;
}

int alpn_index() {
  static const int index = SSL_CTX_get_ex_new_index(0, nullptr, nullptr, nullptr, nullptr);
  return index;
}

}  // namespace

BioPtr bio_over(std::string_view text) {
  FLUVIAL_CHECK(text.size() <= 0x7fffffff, "text for OpenSSL is too long");
  BioPtr bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
  FLUVIAL_CHECK(bio != nullptr, "out of memory");
  return bio;
}

std::string_view bio_text(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  return size <= 0 ? std::string_view() : std::string_view(data, static_cast<std::size_t>(size));
}

Status check_key_type(EVP_PKEY* key) {
  const Error refused{Code::kInvalidArgument, "the key is neither ECDSA P-256 nor Ed25519"};
  if (key == nullptr) return refused;
  const int type = EVP_PKEY_get_base_id(key);
  if (type == EVP_PKEY_ED25519) return {};
  if (type != EVP_PKEY_EC) return refused;
  std::array<char, 64> text = {};
  if (EVP_PKEY_get_group_name(key, text.data(), text.size(), nullptr) != 1 ||
      std::string_view(text.data()) != "prime256v1") {
    return refused;
  }
  // A curve spelled out by its parameters may hide another generator.
  text = {};
  if (EVP_PKEY_get_utf8_string_param(key, OSSL_PKEY_PARAM_EC_ENCODING, text.data(), text.size(), nullptr) != 1 ||
      std::string_view(text.data()) != OSSL_PKEY_EC_ENCODING_GROUP) {
    return refused;
  }
  return {};
}

const EVP_MD* signing_digest(EVP_PKEY* key) {
  return EVP_PKEY_get_base_id(key) == EVP_PKEY_ED25519 ? nullptr : EVP_sha256();
}

void set_verdict(SSL* ssl, std::string verdict) {
  delete static_cast<std::string*>(SSL_get_ex_data(ssl, verdict_index()));
  SSL_set_ex_data(ssl, verdict_index(), new std::string(std::move(verdict)));
}

const std::string* verdict_of(const SSL* ssl) {
  return static_cast<const std::string*>(SSL_get_ex_data(ssl, verdict_index()));
}

void set_required_alpn(SSL_CTX* context, const std::string_view& protocol) {
  SSL_CTX_set_ex_data(context, alpn_index(), const_cast<std::string_view*>(&protocol));
}

std::string_view required_alpn(SSL* ssl) {
  const void* const protocol = SSL_CTX_get_ex_data(SSL_get_SSL_CTX(ssl), alpn_index());
  return protocol == nullptr ? std::string_view() : *static_cast<const std::string_view*>(protocol);
}

bool stands_for(std::string_view protocol, std::string_view required) {
  return protocol == required || (required == kAdminAlpn && protocol == "http/1.1");
}

}  // namespace fluvial::identity
