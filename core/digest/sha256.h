// SHA-256 of one span or of a stream of them, by OpenSSL (SHA extensions where the processor has them).
#pragma once

#include <memory>

#include "core/base/bytes.h"

namespace fluvial {

// A running SHA-256. Movable, not copyable; one thread at a time. After finish() it starts anew, so one object may
// serve many digests without allocating again. A moved-from object may only be destroyed or assigned to.
class Sha256 {
 public:
  Sha256();
  Sha256(Sha256&&) noexcept = default;
  Sha256& operator=(Sha256&&) noexcept = default;
  ~Sha256() = default;

  void update(ByteSpan bytes);
  Digest finish();

 private:
  struct Free {
    void operator()(void* context) const;
  };
  std::unique_ptr<void, Free> context_;  // EVP_MD_CTX, kept out of this header
};

Digest sha256(ByteSpan bytes);

}  // namespace fluvial
