// Certificate signing requests: a public key and the proof that its owner holds the private one. Names in a request
// mean nothing here; the token's record decides them.
#pragma once

#include "core/base/bytes.h"
#include "core/identity/key.h"

namespace fluvial::identity {

inline constexpr std::size_t kCsrBytesMax = 4096;

struct KeyAndCsr {
  PrivateKey key;
  Buffer csr_der;
};

Result<Buffer> make_csr(const PrivateKey& key);  // DER
Result<KeyAndCsr> make_key_and_csr();

}  // namespace fluvial::identity
