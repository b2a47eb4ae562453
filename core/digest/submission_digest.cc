#include "core/digest/submission_digest.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>

#include "core/digest/sha256_lanes.h"

namespace fluvial {
namespace {

constexpr std::string_view kPartTag{"fluvial part 1\0\0", 16};
constexpr std::string_view kTreeTag{"fluvial tree 1\0\0", 16};

// SHA-512/256: leaves, and all that a kStream hashes, are SHA-256. So no bytes that anybody sends are a node's.
class Node {
 public:
  Node(std::string_view tag, std::uint64_t count) : context_(EVP_MD_CTX_new()) {
    static const EVP_MD* const algorithm = EVP_MD_fetch(nullptr, "SHA512-256", nullptr);
    FLUVIAL_CHECK(algorithm != nullptr, "OpenSSL offers no SHA-512/256");
    FLUVIAL_CHECK(context_ != nullptr && EVP_DigestInit_ex2(context_.get(), algorithm, nullptr) == 1,
                  "SHA-512/256 did not start");
    std::array<std::byte, sizeof count> bytes;
    store_le(bytes.data(), count);
    add(as_byte_span(tag));
    add(bytes);
  }
  void add(ByteSpan bytes) {
    FLUVIAL_CHECK(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1, "SHA-512/256 failed");
  }
  Digest finish() {
    Digest digest;
    unsigned int size = 0;
    auto* const out = reinterpret_cast<unsigned char*>(digest.data());  // NOLINT: as OpenSSL wants it
    FLUVIAL_CHECK(EVP_DigestFinal_ex(context_.get(), out, &size) == 1 && size == digest.size(),
                  "SHA-512/256 did not finish");
    return digest;
  }

 private:
  struct Free {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  };
  std::unique_ptr<EVP_MD_CTX, Free> context_;
};

}  // namespace

Digest tree_part_digest(ByteSpan bytes) {
  constexpr std::size_t kAtOnce = 64;  // leaves: their digests fit the stack
  Node node(kPartTag, bytes.size());
  while (bytes.size() >= kDigestLeafBytes) {
    std::array<Digest, kAtOnce> leaves;
    const std::size_t count = std::min(kAtOnce, bytes.size() / kDigestLeafBytes);
    const std::span<Digest> some = std::span(leaves).first(count);
    sha256_pieces(bytes.first(count * kDigestLeafBytes), kDigestLeafBytes, some);
    node.add(std::as_bytes(some));
    bytes = bytes.subspan(count * kDigestLeafBytes);
  }
  if (!bytes.empty()) node.add(sha256(bytes));
  return node.finish();
}

SubmissionDigest::SubmissionDigest(DigestKind kind, std::uint64_t chunk_count)
    : kind_(kind), parts_(kind == DigestKind::kTree ? chunk_count : 0) {}

void SubmissionDigest::side_by_side(std::uint64_t index, ByteSpan chunk) {
  if (kind_ == DigestKind::kTree) parts_.at(index) = {tree_part_digest(chunk), true};
}

void SubmissionDigest::in_order(ByteSpan chunk) {
  if (kind_ == DigestKind::kStream) stream_.update(chunk);
}

Digest SubmissionDigest::finish(ByteSpan trailer) {
  if (kind_ == DigestKind::kStream) {
    stream_.update(trailer);
    return stream_.finish();
  }
  Node node(kTreeTag, parts_.size() + 1);
  for (const Part& part : parts_) {
    FLUVIAL_CHECK(part.is_given, "a digest of a chunk that was not given");
    node.add(part.digest);
  }
  node.add(tree_part_digest(trailer));
  return node.finish();
}

}  // namespace fluvial
