// Against sums done by hand.
#include "cli/bound/tree_bound.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "cli/bound/entropy.h"
#include "cli/bound/headline.h"

namespace fluvial::cli::bound {
namespace {

constexpr TreeShape kFlat{.sites = 4, .aggregators = 0, .tiers = 1, .params = 1'000};
constexpr CodecCosts kInt8{
    .site_s = 3, .parent_s = 2, .root_s = 5, .worker_s = 7, .update_bytes = 1, .entropy_bytes = 0.75};

TEST(TreeBound, EdgesOfATreeWithTiers) {
  EXPECT_EQ(kFlat.edges(), 4);
  // Two regions below one aggregator below the root: 8 sites, 2 regions, 1 above.
  const TreeShape deep{.sites = 8, .aggregators = 2, .tiers = 2, .params = 1};
  EXPECT_EQ(deep.inner_nodes(), 3);
  EXPECT_EQ(deep.edges(), 11);
}

TEST(TreeBound, BytesOfAFlatTreeByHand) {
  EXPECT_EQ(least_bytes(kFlat, kInt8).up, 3'000);     // 4 sites, 1,000 parameters, 0.75 bytes
  EXPECT_EQ(encoded_bytes(kFlat, kInt8).up, 4'000);   // 1 byte
  EXPECT_EQ(least_bytes(kFlat, kInt8).down, 16'000);  // 4 models of 4,000 bytes
}

TEST(TreeBound, ProcessorOfAFlatTreeByHand) {
  const MachineCosts machine{
      .cores = 2, .seal_s_byte = 10, .open_s_byte = 20, .tcp_s_byte = 5, .sha256_s_byte = 0.5, .file_cpu_s_byte = 2};
  const TreeBound bound = bound_of(kFlat, {.up = 100, .down = 50}, machine, kInt8);
  EXPECT_EQ(bound.cipher_s, 150 * 30);
  EXPECT_EQ(bound.tcp_s, 150 * 5);
  EXPECT_EQ(bound.kernels_s, 1'000 * (4 * 3 + 4 * 2 + 5));
  EXPECT_EQ(bound.files_s, 5 * 4'000 * 2);  // p of four sites and one model
  EXPECT_EQ(bound.worker_s, 4 * 1'000 * 7);
  EXPECT_EQ(bound.digests_s, 150);
  EXPECT_EQ(bound.processor_s(machine), (4'500 + 750 + 25'000 + 40'000 + 28'000) / 2.0);  // without the digests
}

TEST(TreeBound, MemoryAndDiskOfAFlatTreeByHand) {
  const MachineCosts machine{.copy_s_byte = 2, .disk_s_byte = 3};
  const TreeBound bound = bound_of(kFlat, {.up = 4'000, .down = 16'000}, machine, kInt8);
  // Sites 4 x 16,000; 20,000 bytes at two ends; one sum of 8,000; 4,000 of mean's sum and two models: 16,000.
  EXPECT_EQ(bound.memory_bytes, 64'000 + 40'000 + 8'000 + 16'000);
  EXPECT_EQ(bound.memory_s, 128'000);  // a copy moves a byte twice
  EXPECT_EQ(bound.disk_bytes, 20'000);
  EXPECT_EQ(bound.disk_s, 60'000);
}

TEST(TreeBound, WhatWasMovedIsUpdatesThenPartialsAndModelsDown) {
  const TreeBytes flat = moved_bytes(kFlat, 100, 400);
  EXPECT_EQ(flat.up, 400);  // once, though the root counted the same bytes
  EXPECT_EQ(flat.down, 16'000);
  const TreeBytes regional = moved_bytes({.sites = 8, .aggregators = 2, .tiers = 1, .params = 10}, 100, 50);
  EXPECT_EQ(regional.up, 850);
  EXPECT_EQ(regional.down, 400);  // ten edges
}

ByteSpan span_of(const std::vector<std::byte>& bytes) { return bytes; }

TEST(Entropy, OfWhatIsKnown) {
  EXPECT_EQ(entropy_bytes({}, 1), 0);
  EXPECT_EQ(entropy_bytes(span_of(std::vector<std::byte>(100)), 1), 0);  // always the same
  std::vector<std::byte> each(256);
  for (std::size_t i = 0; i < each.size(); ++i) each[i] = static_cast<std::byte>(i);
  EXPECT_NEAR(entropy_bytes(span_of(each), 1), 256, 1e-9);  // nothing to save
}

TEST(Entropy, OfThreeQuartersAndAQuarterByHand) {
  const std::vector<std::byte> bytes = {std::byte{0}, std::byte{0}, std::byte{0}, std::byte{1}};
  const double bits = 3 * std::log2(4.0 / 3) + 1 * 2;
  EXPECT_NEAR(entropy_bytes(span_of(bytes), 1), bits / 8, 1e-12);
}

TEST(Entropy, PlacesOfASymbolAreCountedApart) {
  std::vector<std::byte> bytes;
  for (int i = 0; i < 100; ++i) bytes.insert(bytes.end(), {std::byte{7}, std::byte{9}});
  EXPECT_NEAR(entropy_bytes(span_of(bytes), 1), 200 / 8.0, 1e-9);  // a bit a byte
  EXPECT_EQ(entropy_bytes(span_of(bytes), 2), 0);
}

}  // namespace
}  // namespace fluvial::cli::bound
