#include "core/base/bytes.h"

#include <cstring>
#include <new>
#include <utility>

#include "core/base/buffer_pool.h"

namespace fluvial {
namespace {

constexpr std::align_val_t kAlignment{64};

bool is_pooled(std::size_t size_bytes) { return BufferPool::kServesBuffers && size_bytes >= BufferPool::kLeastBytes; }

std::byte* take(std::size_t size_bytes) {
  if (size_bytes == 0) return nullptr;
  if (is_pooled(size_bytes)) return BufferPool::shared().take(size_bytes);
  return static_cast<std::byte*>(::operator new(size_bytes, kAlignment));
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

Buffer::Buffer(std::size_t size_bytes) : data_(take(size_bytes), Free{size_bytes}), size_(size_bytes) {}

void Buffer::Free::operator()(std::byte* pointer) const {
  if (is_pooled(size_bytes)) return BufferPool::shared().give_back(pointer, size_bytes);
  ::operator delete(pointer, kAlignment);
}

Buffer Buffer::copy_of(ByteSpan bytes) {
  Buffer copy(bytes.size());
  if (!bytes.empty()) std::memcpy(copy.data(), bytes.data(), bytes.size());
  return copy;
}

void Buffer::shrink(std::size_t size_bytes) {
  FLUVIAL_CHECK(size_bytes <= size_, "a Buffer only shrinks");
  size_ = size_bytes;
}

SharedBytes SharedBytes::from(Buffer buffer) {
  auto owner = std::make_shared<const Buffer>(std::move(buffer));
  const ByteSpan bytes = owner->span();
  return {std::move(owner), bytes};
}

std::string to_hex(ByteSpan bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  hex.reserve(bytes.size() * 2);
  for (const std::byte b : bytes) {
    hex.push_back(kDigits[std::to_integer<unsigned>(b) >> 4]);
    hex.push_back(kDigits[std::to_integer<unsigned>(b) & 15]);
  }
  return hex;
}

Result<Buffer> from_hex(std::string_view hex) {
  if (hex.size() % 2 != 0) return Error{Code::kInvalidArgument, "hex text of odd length"};
  Buffer bytes(hex.size() / 2);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const int high = hex_digit(hex[2 * i]);
    const int low = hex_digit(hex[2 * i + 1]);
    if (high < 0 || low < 0) return Error{Code::kInvalidArgument, "not a hex digit"};
    bytes.data()[i] = static_cast<std::byte>(high * 16 + low);
  }
  return bytes;
}

Result<Digest> digest_from_hex(std::string_view hex) {
  FLUVIAL_ASSIGN(const Buffer bytes, from_hex(hex));
  return digest_from_bytes(bytes.span());
}

Result<Digest> digest_from_bytes(ByteSpan bytes) {
  Digest digest;
  if (bytes.size() != digest.size()) return Error{Code::kInvalidArgument, "a SHA-256 digest has 32 bytes"};
  std::memcpy(digest.data(), bytes.data(), digest.size());
  return digest;
}

}  // namespace fluvial
