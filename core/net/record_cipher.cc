#include "core/net/record_cipher.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <memory>

namespace fluvial::net {
namespace {

constexpr std::size_t kTagBytes = 16;
constexpr std::size_t kNonceBytes = 12;

struct FreeContext {
  void operator()(EVP_CIPHER_CTX* context) const { EVP_CIPHER_CTX_free(context); }
};
using Context = std::unique_ptr<EVP_CIPHER_CTX, FreeContext>;

unsigned char* raw(MutableByteSpan bytes) { return reinterpret_cast<unsigned char*>(bytes.data()); }  // NOLINT

Result<Context> make_context(bool sealing) {
  constexpr std::array<unsigned char, 16> kKey = {};
  Context context(EVP_CIPHER_CTX_new());
  if (!context ||
      EVP_CipherInit_ex(context.get(), EVP_aes_128_gcm(), nullptr, kKey.data(), nullptr, sealing ? 1 : 0) != 1) {
    return Error{Code::kInternal, "OpenSSL has no AES-128-GCM"};
  }
  return context;
}

// The nonce of a record is its number, as in TLS.
bool transform(EVP_CIPHER_CTX* context, std::uint64_t number, MutableByteSpan record, bool sealing) {
  std::array<unsigned char, kNonceBytes> nonce = {};
  for (std::size_t i = 0; i < sizeof number; ++i)
    nonce[kNonceBytes - 1 - i] = static_cast<unsigned char>(number >> (8 * i));
  int count = 0;
  return EVP_CipherInit_ex(context, nullptr, nullptr, nullptr, nonce.data(), sealing ? 1 : 0) == 1 &&
         EVP_CipherUpdate(context, raw(record), &count, raw(record), static_cast<int>(record.size())) == 1;
}

}  // namespace

std::size_t record_tag_bytes(std::size_t bytes) { return (bytes + kRecordBytes - 1) / kRecordBytes * kTagBytes; }

Status seal_records(MutableByteSpan bytes, MutableByteSpan tags) {
  FLUVIAL_CHECK(tags.size() >= record_tag_bytes(bytes.size()), "room for a tag a record");
  FLUVIAL_ASSIGN(const Context context, make_context(true));
  for (std::size_t number = 0; number * kRecordBytes < bytes.size(); ++number) {
    const std::size_t first = number * kRecordBytes;
    const MutableByteSpan record = bytes.subspan(first, std::min(kRecordBytes, bytes.size() - first));
    int count = 0;
    if (!transform(context.get(), number, record, true) || EVP_CipherFinal_ex(context.get(), nullptr, &count) != 1 ||
        EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_GCM_GET_TAG, kTagBytes,
                            raw(tags.subspan(number * kTagBytes, kTagBytes))) != 1) {
      return Error{Code::kInternal, "OpenSSL did not seal a record"};
    }
  }
  return {};
}

Status open_records(MutableByteSpan bytes, ByteSpan tags) {
  FLUVIAL_CHECK(tags.size() >= record_tag_bytes(bytes.size()), "a tag a record");
  FLUVIAL_ASSIGN(const Context context, make_context(false));
  for (std::size_t number = 0; number * kRecordBytes < bytes.size(); ++number) {
    const std::size_t first = number * kRecordBytes;
    const MutableByteSpan record = bytes.subspan(first, std::min(kRecordBytes, bytes.size() - first));
    std::array<std::byte, kTagBytes> tag = {};
    std::copy_n(tags.data() + number * kTagBytes, kTagBytes, tag.data());
    int count = 0;
    if (!transform(context.get(), number, record, false) ||
        EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_GCM_SET_TAG, kTagBytes, tag.data()) != 1) {
      return Error{Code::kInternal, "OpenSSL did not open a record"};
    }
    if (EVP_CipherFinal_ex(context.get(), nullptr, &count) != 1) {
      return Error{Code::kDataLoss, "a record's tag does not fit its bytes"};
    }
  }
  return {};
}

}  // namespace fluvial::net
