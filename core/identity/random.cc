#include "core/identity/random.h"

#include <openssl/rand.h>

#include <algorithm>
#include <array>

#include "core/identity/openssl_internal.h"

namespace fluvial::identity {

void random_bytes(MutableByteSpan out) {
  constexpr std::size_t kStepBytes = 1 << 20;  // RAND_bytes counts in int
  while (!out.empty()) {
    const std::size_t step = std::min(out.size(), kStepBytes);
    FLUVIAL_CHECK(RAND_bytes(as_uchar(out.data()), static_cast<int>(step)) == 1, "no randomness from OpenSSL");
    out = out.subspan(step);
  }
}

std::uint64_t random_u64() {
  std::array<std::byte, 8> bytes;
  random_bytes(bytes);
  return load_le<std::uint64_t>(bytes.data());
}

}  // namespace fluvial::identity
