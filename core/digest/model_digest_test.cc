#include "core/digest/model_digest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <thread>

#include "core/base/rng.h"

namespace fluvial {
namespace {

Buffer model_of(std::uint64_t size) {
  Buffer bytes(size);
  Rng rng(size);
  for (std::uint64_t i = 0; i < size; i += 997) bytes.data()[i] = static_cast<std::byte>(rng.next());
  return bytes;
}

// The definition, with the digest of submissions.
Digest expected(ByteSpan model) {
  const std::uint64_t parts = (model.size() + kModelPartBytes - 1) / kModelPartBytes;
  SubmissionDigest digest(DigestKind::kTree, parts);
  for (std::uint64_t part = 0; part < parts; ++part) {
    const std::uint64_t begin = part * kModelPartBytes;
    digest.side_by_side(part, model.subspan(begin, std::min<std::uint64_t>(kModelPartBytes, model.size() - begin)));
  }
  return digest.finish({});
}

TEST(ModelDigestTest, IsATreeOfPartsWhoseSizeDoesNotFollowThePlan) {
  Serial serial;
  for (const std::uint64_t size : {std::uint64_t{0}, std::uint64_t{1}, kModelPartBytes - 1, kModelPartBytes,
                                   kModelPartBytes + 1, 3 * kModelPartBytes + 12'345}) {
    const Buffer model = model_of(size);
    EXPECT_EQ(*model_tree_digest(serial, model.span()), expected(model.span())) << size;
  }
}

TEST(ModelDigestTest, BytesMayComeInAnyPiecesAndOrder) {
  const Buffer model = model_of(2 * kModelPartBytes + 100'001);
  Rng rng(3);
  std::vector<std::uint64_t> cuts{0, model.size()};
  for (int i = 0; i < 40; ++i) cuts.push_back(rng.next() % model.size());
  std::ranges::sort(cuts);
  std::vector<std::size_t> order(cuts.size() - 1);
  std::iota(order.begin(), order.end(), 0U);
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[rng.next() % i]);
  ModelDigest digest(model.size());
  for (const std::size_t piece : order) {
    const bool is_last = piece == order.back();
    EXPECT_EQ(digest.ready(model.span(), cuts[piece], cuts[piece + 1] - cuts[piece]), is_last);
  }
  EXPECT_EQ(digest.finish(), expected(model.span()));
}

TEST(ModelDigestTest, PiecesOfOnePartMayComeFromManyThreads) {
  constexpr std::uint64_t kThreads = 4;
  constexpr std::uint64_t kPiece = 65'536;
  const Buffer model = model_of(3 * kModelPartBytes + 5);
  ModelDigest digest(model.size());
  std::atomic<std::uint64_t> next = 0;
  std::atomic<int> last = 0;
  {
    std::vector<std::jthread> threads;
    for (std::uint64_t i = 0; i < kThreads; ++i) {
      threads.emplace_back([&] {
        for (std::uint64_t at = next.fetch_add(kPiece); at < model.size(); at = next.fetch_add(kPiece)) {
          if (digest.ready(model.span(), at, std::min(kPiece, model.size() - at))) ++last;
        }
      });
    }
  }
  EXPECT_EQ(last, 1) << "one call learns that all is there";
  EXPECT_EQ(digest.finish(), expected(model.span()));
}

}  // namespace
}  // namespace fluvial
