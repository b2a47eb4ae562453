#include "core/digest/sha256.h"

#include <openssl/evp.h>

namespace fluvial {
namespace {

EVP_MD_CTX* as_context(void* context) { return static_cast<EVP_MD_CTX*>(context); }

// Fetched once: EVP_sha256() would look up the implementation for every digest.
const EVP_MD* algorithm() {
  static const EVP_MD* const fetched = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  FLUVIAL_CHECK(fetched != nullptr, "OpenSSL offers no SHA-256");
  return fetched;
}

void start(EVP_MD_CTX* context) {
  FLUVIAL_CHECK(EVP_DigestInit_ex2(context, algorithm(), nullptr) == 1, "SHA-256 did not start");
}

}  // namespace

void Sha256::Free::operator()(void* context) const { EVP_MD_CTX_free(as_context(context)); }

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  FLUVIAL_CHECK(context_ != nullptr, "out of memory");
  start(as_context(context_.get()));
}

void Sha256::update(ByteSpan bytes) {
  FLUVIAL_CHECK(EVP_DigestUpdate(as_context(context_.get()), bytes.data(), bytes.size()) == 1, "SHA-256 failed");
}

Digest Sha256::finish() {
  Digest digest;
  unsigned int size = 0;
  auto* const out = reinterpret_cast<unsigned char*>(digest.data());
  FLUVIAL_CHECK(EVP_DigestFinal_ex(as_context(context_.get()), out, &size) == 1 && size == digest.size(),
                "SHA-256 did not finish");
  start(as_context(context_.get()));
  return digest;
}

Digest sha256(ByteSpan bytes) {
  Sha256 running;
  running.update(bytes);
  return running.finish();
}

}  // namespace fluvial
