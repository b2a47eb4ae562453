#include "core/identity/secret.h"

#include <openssl/crypto.h>

#include <algorithm>

#include "core/identity/random.h"

namespace fluvial::identity {

Secret Secret::random() {
  Secret secret;
  random_bytes(secret.bytes_);
  return secret;
}

Result<Secret> Secret::from_bytes(ByteSpan bytes) {
  if (bytes.size() != kSizeBytes) {
    return Error{Code::kInvalidArgument, "a secret has 32 bytes, not " + std::to_string(bytes.size())};
  }
  Secret secret;
  std::copy(bytes.begin(), bytes.end(), secret.bytes_.begin());
  return secret;
}

Secret::~Secret() { wipe(bytes_); }

void wipe(MutableByteSpan bytes) { OPENSSL_cleanse(bytes.data(), bytes.size()); }

}  // namespace fluvial::identity
