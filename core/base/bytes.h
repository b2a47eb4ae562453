// Bytes: spans that live within one synchronous call, a move-only Buffer that owns uninitialised memory, and shared
// immutable bytes for what is sent to many.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "core/base/result.h"

namespace fluvial {

using ByteSpan = std::span<const std::byte>;
using MutableByteSpan = std::span<std::byte>;

inline ByteSpan as_byte_span(std::string_view text) { return std::as_bytes(std::span(text.data(), text.size())); }
inline std::string_view as_text(ByteSpan bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};  // NOLINT: bytes as text
}

// Move-only memory of a fixed size, 64-byte aligned, not initialised. Resizing only shrinks the visible part. Memory of
// 64 KiB and more stays with the process for the next Buffer (buffer_pool.h). Any thread may drop it.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::size_t size_bytes);
  static Buffer copy_of(ByteSpan bytes);

  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  MutableByteSpan span() { return {data_.get(), size_}; }
  ByteSpan span() const { return {data_.get(), size_}; }
  void shrink(std::size_t size_bytes);

 private:
  struct Free {
    Free() : Free(0) {}
    explicit Free(std::size_t bytes) : size_bytes(bytes) {}
    void operator()(std::byte* pointer) const;
    std::size_t size_bytes;  // as it was taken
  };
  std::unique_ptr<std::byte, Free> data_;
  std::size_t size_ = 0;
};

// A Buffer of `count` values, not initialised: scratch by the chunk or the model, where a vector would be zeroed first.
template <typename T>
class Values {
 public:
  Values() = default;
  explicit Values(std::size_t count) : memory_(count * sizeof(T)) {}
  std::span<T> span() { return {reinterpret_cast<T*>(memory_.data()), memory_.size() / sizeof(T)}; }  // NOLINT
  bool empty() const { return memory_.empty(); }

 private:
  static_assert(std::is_trivially_copyable_v<T>);
  Buffer memory_;
};

// A part of immutable bytes that several owners share. The owner may be anything that keeps `bytes` alive.
struct SharedBytes {
  std::shared_ptr<const void> owner;
  ByteSpan bytes;

  static SharedBytes from(Buffer buffer);
  SharedBytes part(std::size_t offset, std::size_t size) const { return {owner, bytes.subspan(offset, size)}; }
};

using Digest = std::array<std::byte, 32>;  // SHA-256

std::string to_hex(ByteSpan bytes);                    // lower case
Result<Buffer> from_hex(std::string_view hex);         // kInvalidArgument unless an even number of hex digits
Result<Digest> digest_from_hex(std::string_view hex);  // kInvalidArgument unless 64 hex digits
Result<Digest> digest_from_bytes(ByteSpan bytes);      // kInvalidArgument unless 32 bytes

// Little-endian integers in byte strings (the only byte order on our wire and in our files).
template <typename T>
T load_le(const std::byte* from) {
  T value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) value = static_cast<T>(value | (static_cast<T>(from[i]) << (8 * i)));
  return value;
}
template <typename T>
void store_le(std::byte* to, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) to[i] = static_cast<std::byte>((value >> (8 * i)) & 0xff);
}

}  // namespace fluvial
