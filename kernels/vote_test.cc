// Majority vote of signs: the votes of codec sign:mode=vote, summed in a tree, and the step of signsgd on their mean.

#include <gtest/gtest.h>

#include "kernels/fixed.h"
#include "kernels/optimizer.h"
#include "kernels/test_values.h"

namespace fluvial::kernels {
namespace {

using Votes = std::vector<std::int64_t>;

constexpr std::size_t kValues = 3'000;

struct Site {
  std::vector<float> vector;
  std::uint32_t weight;
};

void add_vote(const Site& site, Votes* sum) {
  const auto codec = test_values::codec_of("sign:mode=vote");
  const auto encoded = test_values::encode(*codec, site.vector, kValues);
  ASSERT_TRUE(codec->decode_accumulate_chunk(encoded.chunks[0].span(), site.weight, 0, *sum).ok());
}

// Through bytes, as between nodes.
std::size_t merge(const Votes& from, Votes* to) {
  Buffer packed(packed_bytes_max(from.size()));
  packed.shrink(pack_chunk(from, packed.span()));
  EXPECT_TRUE(merge_chunk(packed.span(), *to).ok());
  return packed.size();
}

// As the root takes it: the step of a model of zeros, at rate 1, against the mean.
std::vector<float> majority_of(const Votes& votes) {
  std::vector<float> mean(votes.size()), model(votes.size());
  mean_of_sums(votes, 0, 1'000, mean);
  apply_signsgd(-1, mean, model);
  return model;
}

TEST(Majority, IsTheSignOfTheSumAndTiesAreZero) {
  const Votes sum = {3, -1, 0, std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()};
  EXPECT_EQ(majority_of(sum), (std::vector<float>{1, -1, 0, -1, 1}));
  EXPECT_TRUE(majority_of({}).empty());
}

// A tree of sums counts as one count does; a tree of majorities does not.
TEST(Majority, OfATreeOfPartialSumsIsThatOfTheFlatCount) {
  std::vector<Site> sites;
  for (std::uint32_t i = 0; i < 15; ++i) sites.push_back({test_values::normals(kValues, 60 + i), 1 + i % 4});
  std::vector<double> counted(kValues, 0.0);
  for (const Site& site : sites) {
    for (std::size_t i = 0; i < kValues; ++i) counted[i] += site.vector[i] < 0 ? -1.0 * site.weight : 1.0 * site.weight;
  }
  Votes root(kValues, 0);
  Votes of_majorities(kValues, 0);
  for (std::size_t region = 0; region < 3; ++region) {
    Votes inner(kValues, 0);
    for (std::size_t i = 0; i < 5; ++i) add_vote(sites[5 * region + i], &inner);
    merge(inner, &root);
    const auto regional = majority_of(inner);
    for (std::size_t i = 0; i < kValues; ++i) of_majorities[i] += static_cast<std::int64_t>(regional[i]);
  }
  const auto tree = majority_of(root);
  const auto wrong = majority_of(of_majorities);
  std::size_t differ = 0;
  for (std::size_t i = 0; i < kValues; ++i) {
    ASSERT_EQ(static_cast<double>(root[i]), counted[i]);
    ASSERT_EQ(static_cast<double>(tree[i]), counted[i] > 0 ? 1.0 : counted[i] < 0 ? -1.0 : 0.0);
    differ += wrong[i] != tree[i] ? 1 : 0;
  }
  EXPECT_GT(differ, kValues / 20);
}

TEST(Majority, PartialSumsOfUpTo127UnitVotesTakeAByteAValue) {
  const Site site{test_values::normals(kValues, 70), 1};
  Votes sum(kValues, 0);
  for (int i = 0; i < 127; ++i) add_vote(site, &sum);
  Votes to(kValues, 0);
  EXPECT_EQ(merge(sum, &to), 16 + kValues);
  EXPECT_EQ(to, sum);
  add_vote(site, &sum);  // 128 does not fit a byte, -128 does
  EXPECT_EQ(merge(sum, &to), 16 + 2 * kValues);
}

}  // namespace
}  // namespace fluvial::kernels
