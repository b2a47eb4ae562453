#include "core/identity/seeded_key.h"

#include <openssl/evp.h>

#include "core/identity/errors.h"
#include "core/identity/openssl_internal.h"

namespace fluvial::identity {

Result<PrivateKey> seeded_key(const Digest& seed) {
  std::shared_ptr<EVP_PKEY> key(
      EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr, as_uchar(seed.data()), seed.size()), EVP_PKEY_free);
  if (key == nullptr) return openssl_error("cannot make a key of a seed");
  return PrivateKey(std::move(key));
}

}  // namespace fluvial::identity
