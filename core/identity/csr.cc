#include "core/identity/csr.h"

#include "core/identity/errors.h"
#include "core/identity/openssl_internal.h"

namespace fluvial::identity {

Result<Buffer> make_csr(const PrivateKey& key) {
  const RequestPtr request(X509_REQ_new());
  if (request == nullptr || X509_REQ_set_version(request.get(), X509_REQ_VERSION_1) != 1 ||
      X509_REQ_set_pubkey(request.get(), key.native()) != 1 ||
      X509_REQ_sign(request.get(), key.native(), signing_digest(key.native())) <= 0) {
    return openssl_error("cannot sign a certificate request");
  }
  const int size = i2d_X509_REQ(request.get(), nullptr);
  if (size <= 0) return openssl_error("cannot encode a certificate request");
  Buffer der(static_cast<std::size_t>(size));
  unsigned char* out = as_uchar(der.data());
  FLUVIAL_CHECK(i2d_X509_REQ(request.get(), &out) == size, "a certificate request changed its size");
  return der;
}

Result<KeyAndCsr> make_key_and_csr() {
  FLUVIAL_ASSIGN(PrivateKey key, PrivateKey::generate());
  FLUVIAL_ASSIGN(Buffer csr, make_csr(key));
  return KeyAndCsr{std::move(key), std::move(csr)};
}

}  // namespace fluvial::identity
