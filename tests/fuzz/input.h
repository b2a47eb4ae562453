// A fuzzer's input, taken apart from the front: what is not there any more is zero or empty.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/base/bytes.h"

namespace fluvial::fuzz {

class Input {
 public:
  explicit Input(ByteSpan bytes) : bytes_(bytes) {}

  bool done() const { return bytes_.empty(); }
  std::size_t size() const { return bytes_.size(); }
  std::uint8_t byte() {
    if (done()) return 0;
    const auto value = std::to_integer<std::uint8_t>(bytes_.front());
    bytes_ = bytes_.subspan(1);
    return value;
  }
  bool flag() { return byte() % 2 != 0; }
  std::size_t below(std::size_t end) { return byte() % end; }  // end <= 256
  template <typename T>
  T number() {  // little-endian
    T value = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i) value = static_cast<T>(value | (static_cast<T>(byte()) << (8 * i)));
    return value;
  }
  ByteSpan take(std::size_t count) {
    const ByteSpan taken = bytes_.first(std::min(count, bytes_.size()));
    bytes_ = bytes_.subspan(taken.size());
    return taken;
  }
  ByteSpan bytes() { return take(byte()); }  // a length, then that many bytes
  std::string text() { return std::string(as_text(bytes())); }
  ByteSpan rest() { return take(bytes_.size()); }

 private:
  ByteSpan bytes_;
};

}  // namespace fluvial::fuzz
