#include "kernels/sparse_indices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "core/base/rng.h"
#include "kernels/reference/sparse.h"

namespace fluvial::kernels {
namespace {

using ::testing::HasSubstr;
using List = std::vector<std::uint32_t>;

std::vector<std::byte> write(const List& list, std::size_t value_count, unsigned bits) {
  std::vector<std::byte> bytes(index_bytes_max(list.size(), value_count, bits));
  IndexWriter writer(bytes.data(), list.size(), bits);
  for (const std::uint32_t index : list) writer.put(index);
  bytes.resize(writer.finish());  // never more than the bound: the sanitizers watch
  return bytes;
}

void expect_round_trip(const List& list, std::size_t value_count, unsigned bits, std::size_t batch) {
  const auto bytes = write(list, value_count, bits);
  const Status checked = check_indices(bytes, list.size(), bits, value_count);
  ASSERT_TRUE(checked.ok()) << checked.error().message << " " << bits;
  List read(list.size());
  IndexReader reader(bytes, list.size(), bits);
  for (std::size_t first = 0; first < read.size(); first += batch) {
    reader.read(std::span(read).subspan(first, std::min(batch, read.size() - first)));
  }
  ASSERT_EQ(read, list);
  const auto expected = reference::read_indices(bytes, list.size(), bits, value_count);
  ASSERT_TRUE(expected.has_value());
  ASSERT_TRUE(std::ranges::equal(*expected, list));
}

List random_list(std::size_t value_count, double density, Rng& rng) {
  List list;
  for (std::size_t i = 0; i < value_count; ++i) {
    if (rng.uniform() < density) list.push_back(static_cast<std::uint32_t>(i));
  }
  return list;
}

TEST(SparseIndices, RoundTripAtEveryDensityAndParameter) {
  Rng rng(1);
  for (const std::size_t value_count : {0U, 1U, 2U, 63U, 64U, 65U, 1'000U, 20'000U}) {
    for (const double density : {0.0, 0.001, 0.01, 0.1, 0.5, 0.99, 1.0}) {
      const List list = random_list(value_count, density, rng);
      expect_round_trip(list, value_count, rice_bits(list.size(), value_count), 1 + rng.below(100));
      expect_round_trip(list, value_count, static_cast<unsigned>(rng.below(kRiceBitsMax + 1)), 1 + rng.below(300));
    }
  }
  expect_round_trip({(1U << 26) - 1}, 1U << 26, kRiceBitsMax, 1);
  expect_round_trip({(1U << 26) - 1}, 1U << 26, 9, 1);
  expect_round_trip({0, (1U << 26) - 1}, 1U << 26, 20, 1);
}

TEST(SparseIndices, TakeLittleMoreThanTheEntropy) {
  Rng rng(2);
  for (const double density : {0.001, 0.004, 0.01, 0.015625, 0.0625, 0.25, 0.5}) {
    const std::size_t value_count = 1 << 20;
    const List list = random_list(value_count, density, rng);
    const double entropy = -std::log2(density) - (1 - density) / density * std::log2(1 - density);
    const auto bytes = write(list, value_count, rice_bits(list.size(), value_count));
    const double bits = 8.0 * static_cast<double>(bytes.size()) / static_cast<double>(list.size());
    EXPECT_LT(bits, 1.04 * entropy + 0.01) << density;
    if (density == 0.01) {
      EXPECT_LT(bits, 8.2);
      EXPECT_EQ(rice_bits(list.size(), value_count), 6U);
    }
  }
}

TEST(SparseIndices, TheParameterIsTheShortestForRandomLists) {
  Rng rng(3);
  for (const double density : {0.002, 0.01, 0.03, 0.1, 0.3}) {
    const List list = random_list(300'000, density, rng);
    const unsigned chosen = rice_bits(list.size(), 300'000);
    const double size = static_cast<double>(write(list, 300'000, chosen).size());
    for (const unsigned other : {chosen - 1, chosen + 1}) {
      if (other <= kRiceBitsMax) EXPECT_GE(static_cast<double>(write(list, 300'000, other).size()), 0.998 * size);
    }
  }
}

// Whatever the bytes: accepted exactly when the reference accepts them, and then written again as they were, so a list
// has one form.
TEST(SparseIndices, RandomBytesAreReadAsTheReferenceDoesAndHaveOneForm) {
  Rng rng(4);
  std::size_t accepted = 0;
  for (int round = 0; round < 200'000; ++round) {
    std::vector<std::byte> bytes(rng.below(12));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(rng.next() & rng.next());
    const std::size_t value_count = 1 + rng.below(rng.below(2) == 0 ? 30 : 3'000);
    const std::size_t count = std::min<std::size_t>(rng.below(8), value_count);
    const auto bits = static_cast<unsigned>(rng.below(rng.below(2) == 0 ? 5 : 30));
    const auto expected = reference::read_indices(bytes, count, bits, value_count);
    ASSERT_EQ(check_indices(bytes, count, bits, value_count).ok(), expected.has_value());
    if (!expected) continue;
    ++accepted;
    List list(count);
    IndexReader(bytes, count, bits).read(list);
    ASSERT_TRUE(std::ranges::equal(*expected, list));
    ASSERT_EQ(write(list, value_count, bits), bytes);
  }
  EXPECT_GT(accepted, 2'000U);
}

TEST(SparseIndices, UnaryBombsAreRefusedByTheirLength) {
  const std::vector<std::byte> zeros(1 << 20);
  const Status status = check_indices(zeros, 1, 0, 1'000);
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message, HasSubstr("too many for 1 indices below 1000"));
}

}  // namespace
}  // namespace fluvial::kernels
