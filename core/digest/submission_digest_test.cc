#include "core/digest/submission_digest.h"

#include <gtest/gtest.h>
#include <openssl/evp.h>

#include <algorithm>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fluvial {
namespace {

using Bytes = std::vector<std::byte>;

Bytes pattern(std::size_t size) {
  Bytes bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>((i * 7 + i / 251) % 256);
  return bytes;
}

// The oracle: docs/formats/frame.md#digests to the letter, by OpenSSL's one-shot calls.
Bytes hashed(const char* algorithm, const Bytes& bytes) {
  Bytes digest(32);
  std::size_t size = digest.size();
  EXPECT_EQ(EVP_Q_digest(nullptr, algorithm, nullptr, bytes.data(), bytes.size(),
                         reinterpret_cast<unsigned char*>(digest.data()), &size),  // NOLINT: as OpenSSL wants it
            1);
  return digest;
}
void append(Bytes& to, const Bytes& bytes) { to.insert(to.end(), bytes.begin(), bytes.end()); }
Bytes node(std::string_view tag, std::uint64_t count) {
  Bytes bytes(16);
  for (std::size_t i = 0; i < tag.size(); ++i) bytes[i] = static_cast<std::byte>(tag[i]);
  for (int shift = 0; shift < 64; shift += 8) bytes.push_back(static_cast<std::byte>(count >> shift));
  return bytes;
}
Bytes naive_part(const Bytes& bytes) {
  Bytes message = node("fluvial part 1", bytes.size());
  for (std::size_t at = 0; at < bytes.size(); at += 16384) {
    const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(at);
    const auto size = static_cast<std::ptrdiff_t>(std::min<std::size_t>(16384, bytes.size() - at));
    append(message, hashed("SHA256", Bytes(begin, begin + size)));
  }
  return hashed("SHA512-256", message);
}
std::string naive_tree(const std::vector<Bytes>& chunks, const Bytes& trailer) {
  Bytes message = node("fluvial tree 1", chunks.size() + 1);
  for (const Bytes& chunk : chunks) append(message, naive_part(chunk));
  append(message, naive_part(trailer));
  return to_hex(hashed("SHA512-256", message));
}

std::string digest_of(DigestKind kind, const std::vector<Bytes>& chunks, const Bytes& trailer) {
  SubmissionDigest digest(kind, chunks.size());
  for (std::size_t i = chunks.size(); i-- > 0;) digest.side_by_side(i, chunks[i]);
  for (const Bytes& chunk : chunks) digest.in_order(chunk);
  return to_hex(digest.finish(trailer));
}

// By Python's hashlib.
TEST(SubmissionDigest, KnownAnswers) {
  EXPECT_EQ(to_hex(tree_part_digest({})), "beb360649d374dd32b00bebc69d3b6cb500521d53c403bb444c7eaafc8106b45");
  EXPECT_EQ(to_hex(tree_part_digest(as_byte_span("abc"))),
            "7787c6a5649676b0ecf6e1ed0c2a2038c5251a8626833e2b41d9d38e39c71bce");
  EXPECT_EQ(to_hex(tree_part_digest(pattern(16384))),
            "36bca8862a418117f32f6ab38f084813f9bac6a4b254a14d2564fdeae8a8c3a9");
  EXPECT_EQ(to_hex(tree_part_digest(pattern(16385))),
            "bcfbfa74c2bd42a179c6b094b5ee8c9cdf941a48ef91fb7864ed1a9f682aca5c");
  EXPECT_EQ(to_hex(tree_part_digest(pattern(1200000))),
            "687113c63d6ae4cdbe8492e4874825bf803ac2d9408a22927cd11f7eff45fc4c");
  EXPECT_EQ(digest_of(DigestKind::kTree, {}, {}), "d0dc7371f7f63f6dabf76f5811f93291a75799498a61e913a1d447ee20e3ee15");
  const Bytes probe = {std::byte{0}, std::byte{0}, std::byte{0x80}, std::byte{0x3f}};
  EXPECT_EQ(digest_of(DigestKind::kTree, {pattern(40000), pattern(100)}, probe),
            "9f97e814460663b5d3f1390d7659f8749ae07da5561204117a06966c919118f4");
}

TEST(SubmissionDigest, ATreeIsWhatItsFormatSaysAtEveryLength) {
  for (const std::size_t leaves : {0, 1, 2, 9, 10, 15, 16, 17, 63, 64, 65, 128}) {
    for (const int more : {-1, 0, 1, 63, 64, 65}) {
      if (leaves == 0 && more < 0) continue;
      const Bytes bytes = pattern(leaves * kDigestLeafBytes + static_cast<std::size_t>(more));
      EXPECT_EQ(to_hex(tree_part_digest(bytes)), to_hex(naive_part(bytes))) << bytes.size();
    }
  }
  const std::vector<Bytes> chunks{pattern(70000), pattern(0), pattern(16384), pattern(5)};
  EXPECT_EQ(digest_of(DigestKind::kTree, chunks, pattern(12)), naive_tree(chunks, pattern(12)));
}

TEST(SubmissionDigest, AStreamIsTheSha256OfAllBytes) {
  const std::vector<Bytes> chunks{pattern(70000), pattern(0), pattern(5)};
  Bytes all;
  for (const Bytes& chunk : chunks) append(all, chunk);
  append(all, pattern(12));
  EXPECT_EQ(digest_of(DigestKind::kStream, chunks, pattern(12)), to_hex(hashed("SHA256", all)));
}

// A change of any byte, a byte that moves from one part to its neighbour, and parts that change places: other digests.
TEST(SubmissionDigest, OtherContentsHaveOtherDigests) {
  std::set<std::string> seen;
  const auto is_new = [&](const std::vector<Bytes>& chunks, const Bytes& trailer) {
    return seen.insert(digest_of(DigestKind::kTree, chunks, trailer)).second;
  };
  const Bytes first = pattern(3 * kDigestLeafBytes);
  const Bytes second(100, std::byte{9});
  EXPECT_TRUE(is_new({first, second}, {}));
  EXPECT_TRUE(is_new({second, first}, {}));
  EXPECT_TRUE(is_new({first}, second));
  EXPECT_TRUE(is_new({first, second, {}}, {}));
  for (const std::size_t at : {0UL, kDigestLeafBytes - 1, kDigestLeafBytes, first.size() - 1}) {
    Bytes changed = first;
    changed[at] ^= std::byte{1};
    EXPECT_TRUE(is_new({changed, second}, {})) << at;
  }
  Bytes shorter = first;
  Bytes longer = second;
  longer.insert(longer.begin(), shorter.back());
  shorter.pop_back();
  EXPECT_TRUE(is_new({shorter, longer}, {}));
  Bytes padded = second;  // as if zeros were there
  padded.push_back(std::byte{0});
  EXPECT_TRUE(is_new({first, padded}, {}));
}

// What a node hashes, sent as a content, has another digest than the node: at every level, and as a stream.
TEST(SubmissionDigest, NoContentIsTakenForANode) {
  const Bytes chunk = pattern(40000);
  Bytes root = node("fluvial tree 1", 2);
  append(root, naive_part(chunk));
  append(root, naive_part({}));
  const std::string tree = digest_of(DigestKind::kTree, {chunk}, {});
  ASSERT_EQ(to_hex(hashed("SHA512-256", root)), tree) << "this is what its root hashes";
  EXPECT_NE(digest_of(DigestKind::kStream, {root}, {}), tree);
  EXPECT_NE(digest_of(DigestKind::kTree, {root}, {}), tree);
  EXPECT_NE(to_hex(tree_part_digest(root)), tree);
  Bytes leaves = node("fluvial part 1", chunk.size());
  for (std::size_t at = 0; at < chunk.size(); at += kDigestLeafBytes) {
    const std::size_t size = std::min(kDigestLeafBytes, chunk.size() - at);
    const auto begin = chunk.begin() + static_cast<std::ptrdiff_t>(at);
    append(leaves, hashed("SHA256", Bytes(begin, begin + static_cast<std::ptrdiff_t>(size))));
  }
  ASSERT_EQ(tree_part_digest(chunk), *digest_from_bytes(hashed("SHA512-256", leaves)));
  EXPECT_NE(sha256(leaves), tree_part_digest(chunk)) << "a leaf of these bytes";
}

TEST(SubmissionDigestDeathTest, AChunkThatWasNotGivenStopsTheProcess) {
  SubmissionDigest digest(DigestKind::kTree, 2);
  digest.side_by_side(1, pattern(10));
  EXPECT_DEATH(digest.finish({}), "not given");
}

}  // namespace
}  // namespace fluvial
