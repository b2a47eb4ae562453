#include "core/identity/signature.h"

#include <openssl/ec.h>
#include <openssl/ecdsa.h>
#include <openssl/err.h>

#include <algorithm>
#include <string>

#include "core/digest/sha256.h"
#include "core/identity/errors.h"
#include "core/identity/openssl_internal.h"

namespace fluvial::identity {
namespace {

using DigestContextPtr = std::unique_ptr<EVP_MD_CTX, FreeWith<EVP_MD_CTX_free>>;
using EcdsaPtr = std::unique_ptr<ECDSA_SIG, FreeWith<ECDSA_SIG_free>>;
constexpr int kHalf = 32;  // of a signature: r, or s

bool is_ecdsa(EVP_PKEY* key) { return EVP_PKEY_get_base_id(key) == EVP_PKEY_EC; }

std::string signed_bytes(std::string_view kind, ByteSpan statement) {
  std::string bytes(kind);
  bytes.push_back('\0');
  return bytes.append(as_text(statement));
}

Buffer der_of(EVP_PKEY* key) {
  const int size = i2d_PUBKEY(key, nullptr);
  FLUVIAL_CHECK(size > 0, "a public key does not encode");
  Buffer der(static_cast<std::size_t>(size));
  unsigned char* out = as_uchar(der.data());
  i2d_PUBKEY(key, &out);
  return der;
}

// OpenSSL writes ECDSA signatures as DER, whose length varies.
Result<Signature> raw_of(ByteSpan der) {
  const unsigned char* at = as_uchar(der.data());
  const EcdsaPtr pair(d2i_ECDSA_SIG(nullptr, &at, static_cast<long>(der.size())));
  Signature raw;
  if (pair == nullptr || BN_bn2binpad(ECDSA_SIG_get0_r(pair.get()), as_uchar(raw.data()), kHalf) != kHalf ||
      BN_bn2binpad(ECDSA_SIG_get0_s(pair.get()), as_uchar(raw.data() + kHalf), kHalf) != kHalf) {
    return openssl_error("cannot encode a signature");
  }
  return raw;
}

Result<Buffer> der_of(const Signature& raw) {
  const EcdsaPtr pair(ECDSA_SIG_new());
  BIGNUM* const r = BN_bin2bn(as_uchar(raw.data()), kHalf, nullptr);
  BIGNUM* const s = BN_bin2bn(as_uchar(raw.data() + kHalf), kHalf, nullptr);
  if (pair == nullptr || ECDSA_SIG_set0(pair.get(), r, s) != 1) {
    BN_free(r);
    BN_free(s);
    return openssl_error("cannot decode a signature");
  }
  const int size = i2d_ECDSA_SIG(pair.get(), nullptr);
  if (size <= 0) return openssl_error("cannot decode a signature");
  Buffer der(static_cast<std::size_t>(size));
  unsigned char* out = as_uchar(der.data());
  i2d_ECDSA_SIG(pair.get(), &out);
  return der;
}

}  // namespace

PublicKey::PublicKey(std::shared_ptr<evp_pkey_st> key) : key_(std::move(key)), id_(sha256(der_of(key_.get()).span())) {}

Result<PublicKey> PublicKey::from_der(ByteSpan der) {
  const unsigned char* at = as_uchar(der.data());
  KeyPtr key(d2i_PUBKEY(nullptr, &at, static_cast<long>(der.size())));
  if (key == nullptr) return openssl_error("not a public key", Code::kDataLoss);
  if (at != as_uchar(der.data()) + der.size()) return Error{Code::kDataLoss, "bytes follow a public key"};
  if (const Status good = check_key_type(key.get()); !good.ok()) return Error{Code::kDataLoss, good.error().message};
  return PublicKey(std::shared_ptr<EVP_PKEY>(std::move(key)));
}

PublicKey PublicKey::of(const PrivateKey& key) {
  const Buffer der = der_of(key.native());
  Result<PublicKey> made = from_der(der.span());
  FLUVIAL_CHECK(made.ok(), "a key of ours has a public half");
  return std::move(*made);
}

Buffer PublicKey::der() const { return key_ ? der_of(key_.get()) : Buffer(); }

Status PublicKey::verify(std::string_view kind, ByteSpan statement, const Signature& signature) const {
  if (!key_) return Error{Code::kUnauthenticated, "the signer's key is not known"};
  Buffer encoded = Buffer::copy_of(signature);
  if (is_ecdsa(key_.get())) {
    FLUVIAL_ASSIGN(encoded, der_of(signature));
  }
  const std::string bytes = signed_bytes(kind, statement);
  const DigestContextPtr context(EVP_MD_CTX_new());
  if (context == nullptr ||
      EVP_DigestVerifyInit(context.get(), nullptr, signing_digest(key_.get()), nullptr, key_.get()) != 1) {
    return openssl_error("cannot check a signature");
  }
  const int good =
      EVP_DigestVerify(context.get(), as_uchar(encoded.data()), encoded.size(), as_uchar(bytes.data()), bytes.size());
  if (good == 1) return {};
  ERR_clear_error();
  return Error{Code::kUnauthenticated, "the signature of a " + std::string(kind) + " is not its author's"};
}

Result<Signature> sign(const PrivateKey& key, std::string_view kind, ByteSpan statement) {
  const std::string bytes = signed_bytes(kind, statement);
  const DigestContextPtr context(EVP_MD_CTX_new());
  std::size_t size = 0;
  if (context == nullptr ||
      EVP_DigestSignInit(context.get(), nullptr, signing_digest(key.native()), nullptr, key.native()) != 1 ||
      EVP_DigestSign(context.get(), nullptr, &size, as_uchar(bytes.data()), bytes.size()) != 1) {
    return openssl_error("cannot sign");
  }
  Buffer made(size);
  if (EVP_DigestSign(context.get(), as_uchar(made.data()), &size, as_uchar(bytes.data()), bytes.size()) != 1) {
    return openssl_error("cannot sign");
  }
  made.shrink(size);
  if (is_ecdsa(key.native())) return raw_of(made.span());
  Signature raw;
  if (made.size() != raw.size()) return Error{Code::kInternal, "a signature of an unexpected length"};
  std::ranges::copy(made.span(), raw.begin());
  return raw;
}

}  // namespace fluvial::identity
