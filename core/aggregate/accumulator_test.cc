#include "core/aggregate/accumulator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <thread>

#include "core/base/rng.h"
#include "kernels/reference/reference.h"
#include "kernels/test_values.h"

namespace fluvial::aggregate {
namespace {

using kernels::ChunkLayout;
using kernels::Codec;
using ::testing::HasSubstr;
namespace test_values = kernels::test_values;

constexpr ChunkLayout kShortLastChunk{.value_count = 5'300, .chunk_values = 1'000};
constexpr int kScale = 30;
constexpr std::size_t kIntegers = 3;

struct Contribution {
  std::unique_ptr<Codec> codec;
  test_values::Encoded encoded;
  std::uint32_t weight = 1;
  std::vector<std::int64_t> integers;
};

// Sites with different codecs and weights.
std::vector<Contribution> contributions(std::size_t count) {
  std::vector<Contribution> all(count);
  for (std::size_t site = 0; site < count; ++site) {
    Contribution& one = all[site];
    one.codec = test_values::codec_of(test_values::codec_texts()[site % test_values::codec_texts().size()]);
    const auto vector = test_values::adversarial(kShortLastChunk.value_count, site, 1000.0F);
    one.encoded =
        test_values::encode(*one.codec, vector, kShortLastChunk.chunk_values, {1, 1, static_cast<std::uint32_t>(site)});
    one.weight = static_cast<std::uint32_t>(1 + 37 * site);
    one.integers = {static_cast<std::int64_t>(site), -static_cast<std::int64_t>(site), 7};
  }
  return all;
}

void add(const Contribution& one, Accumulator& accumulator) {
  for (std::size_t chunk = 0; chunk < kShortLastChunk.chunk_count(); ++chunk) {
    const Status added = accumulator.add_chunk(*one.codec, chunk, one.encoded.chunks[chunk].span(), one.weight);
    ASSERT_TRUE(added.ok()) << added.error().message;
  }
  ASSERT_TRUE(accumulator.add_integers(one.integers).ok());
}

void merge(const Accumulator& child, Accumulator& parent) {
  for (std::size_t chunk = 0; chunk < kShortLastChunk.chunk_count(); ++chunk) {
    const Status merged = parent.merge_chunk(chunk, child.pack_chunk(chunk).span());
    ASSERT_TRUE(merged.ok()) << merged.error().message;
  }
  ASSERT_TRUE(parent.add_integers(child.integers()).ok());
}

// Sums contributions [from, to) through a random tree.
void sum_tree(std::span<const Contribution* const> leaves, Rng& rng, Accumulator& into) {
  if (leaves.size() <= 1 + rng.below(3)) {
    for (const Contribution* leaf : leaves) add(*leaf, into);
    return;
  }
  const std::size_t cut =
      rng.below(leaves.size() + 1);  // one side may be empty: an aggregator that closed with nothing
  for (const auto part : {leaves.first(cut), leaves.subspan(cut)}) {
    Accumulator child(kShortLastChunk, kIntegers, kScale);
    if (part.size() == leaves.size()) {
      for (const Contribution* leaf : part) add(*leaf, child);
    } else {
      sum_tree(part, rng, child);
    }
    merge(child, into);
  }
}

TEST(Accumulator, SumIsWhatTheReferenceAdds) {
  const auto all = contributions(9);
  Accumulator accumulator(kShortLastChunk, kIntegers, kScale);
  std::vector<std::int64_t> expected(kShortLastChunk.value_count, 0);
  std::uint64_t total_weight = 0;
  for (const Contribution& one : all) {
    add(one, accumulator);
    total_weight += one.weight;
    for (std::size_t chunk = 0; chunk < kShortLastChunk.chunk_count(); ++chunk) {
      const auto decoded = kernels::reference::decode(to_string(one.codec->spec()), one.encoded.chunks[chunk].span(),
                                                      kShortLastChunk.size(chunk));
      for (std::size_t i = 0; i < decoded->size(); ++i) {
        expected[kShortLastChunk.first_value(chunk) + i] +=
            *kernels::reference::fixed_term((*decoded)[i], one.weight, kScale);
      }
    }
  }
  EXPECT_TRUE(std::ranges::equal(accumulator.sum(), expected));
  constexpr std::size_t kCut = 777;  // of no chunk
  for (std::size_t first = 0; first < expected.size(); first += kCut) {
    std::vector<float> mean(std::min(kCut, expected.size() - first));
    ASSERT_TRUE(accumulator.mean(first, total_weight, mean).ok());
    for (std::size_t i = 0; i < mean.size(); ++i) {
      ASSERT_EQ(mean[i], kernels::reference::mean(expected[first + i], kScale, total_weight));
    }
  }
}

TEST(Accumulator, FlatDeepAndShuffledSumsAreEqualBitForBit) {
  const auto all = contributions(16);
  Accumulator flat(kShortLastChunk, kIntegers, kScale);
  std::vector<const Contribution*> order;
  for (const Contribution& one : all) {
    add(one, flat);
    order.push_back(&one);
  }
  EXPECT_THAT(flat.integers(), ::testing::ElementsAre(15, 0, 7));
  Rng rng(7);
  for (int round = 0; round < 10; ++round) {
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[rng.below(i)]);
    Accumulator root(kShortLastChunk, kIntegers, kScale);
    sum_tree(order, rng, root);
    ASSERT_TRUE(std::ranges::equal(root.sum(), flat.sum()));
    ASSERT_TRUE(std::ranges::equal(root.integers(), flat.integers()));
  }
}

TEST(Accumulator, ChunksMayBeAddedByThreadsAtOnce) {
  const auto all = contributions(8);
  Accumulator alone(kShortLastChunk, 0, kScale);
  Accumulator together(kShortLastChunk, 0, kScale);
  const auto add_chunk = [&](Accumulator& to, std::size_t chunk) {
    for (const Contribution& one : all) {
      EXPECT_TRUE(to.add_chunk(*one.codec, chunk, one.encoded.chunks[chunk].span(), one.weight).ok());
    }
  };
  std::vector<std::jthread> threads;
  for (std::size_t chunk = 0; chunk < kShortLastChunk.chunk_count(); ++chunk) {
    add_chunk(alone, chunk);
    threads.emplace_back(add_chunk, std::ref(together), chunk);
  }
  threads.clear();
  EXPECT_TRUE(std::ranges::equal(alone.sum(), together.sum()));
}

TEST(Accumulator, RefusesWhatDoesNotFitAndStaysAsItWas) {
  const auto all = contributions(2);
  Accumulator accumulator(kShortLastChunk, kIntegers, kScale);
  add(all[1], accumulator);
  const std::vector<std::int64_t> before(accumulator.sum().begin(), accumulator.sum().end());
  const Codec& codec = *all[0].codec;
  const ByteSpan bytes = all[0].encoded.chunks[0].span();
  EXPECT_THAT(accumulator.add_chunk(codec, 6, bytes, 1).error().message, HasSubstr("chunk 6, expected below 6"));
  EXPECT_EQ(accumulator.add_chunk(codec, 0, bytes, 0).error().code, Code::kInvalidArgument);
  EXPECT_EQ(accumulator.add_chunk(codec, 5, bytes, 1).error().code, Code::kDataLoss);  // the last chunk is shorter
  EXPECT_EQ(accumulator.add_chunk(codec, 0, bytes.first(10), 1).error().code, Code::kDataLoss);
  EXPECT_EQ(accumulator.merge_chunk(0, bytes).error().code, Code::kDataLoss);
  EXPECT_EQ(accumulator.merge_chunk(9, bytes).error().code, Code::kInvalidArgument);
  EXPECT_EQ(accumulator.add_integers(std::vector<std::int64_t>{1}).error().code, Code::kInvalidArgument);
  std::vector<float> mean(1'000);
  EXPECT_FALSE(accumulator.mean(0, 0, mean).ok());
  EXPECT_TRUE(accumulator.mean(kShortLastChunk.value_count - mean.size(), 1, mean).ok());
  EXPECT_FALSE(accumulator.mean(kShortLastChunk.value_count - mean.size() + 1, 1, mean).ok());
  EXPECT_FALSE(accumulator.mean(~std::uint64_t{0}, 1, mean).ok());
  EXPECT_TRUE(std::ranges::equal(accumulator.sum(), before));
}

TEST(Accumulator, ResetForgetsEverything) {
  const auto all = contributions(3);
  Accumulator used(kShortLastChunk, kIntegers, 12);
  for (const Contribution& one : all) add(one, used);
  used.reset(kScale);
  EXPECT_TRUE(std::ranges::all_of(used.sum(), [](std::int64_t sum) { return sum == 0; }));
  EXPECT_EQ(used.integers()[0], std::numeric_limits<std::int64_t>::min());
  Accumulator fresh(kShortLastChunk, kIntegers, kScale);
  add(all[1], used);
  add(all[1], fresh);
  EXPECT_TRUE(std::ranges::equal(used.sum(), fresh.sum()));
  EXPECT_EQ(used.scale_bits(), kScale);
}

TEST(Accumulator, OfAnEmptyModelHasNoChunks) {
  Accumulator empty({.value_count = 0}, 0, kScale);
  EXPECT_EQ(empty.layout().chunk_count(), 0U);
  EXPECT_TRUE(empty.sum().empty());
}

}  // namespace
}  // namespace fluvial::aggregate
