// 32 secret bytes, wiped from memory when dropped. Never printed: there is no conversion to text here.
#pragma once

#include <array>
#include <cstddef>

#include "core/base/bytes.h"

namespace fluvial::identity {

class Secret {
 public:
  static constexpr std::size_t kSizeBytes = 32;

  Secret() = default;  // all zero: refused by every check
  static Secret random();
  static Result<Secret> from_bytes(ByteSpan bytes);  // kInvalidArgument unless 32 bytes

  Secret(const Secret&) = default;
  Secret& operator=(const Secret&) = default;
  ~Secret();

  ByteSpan bytes() const { return bytes_; }

 private:
  std::array<std::byte, kSizeBytes> bytes_ = {};
};

void wipe(MutableByteSpan bytes);  // for a copy of a secret that has to live elsewhere, such as in a message

}  // namespace fluvial::identity
