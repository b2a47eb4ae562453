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
constexpr DownCosts kWhole;
constexpr DownCosts kDelta{
    .kind = DownCosts::Kind::kDelta, .root_s = 11, .child_s = 13, .sent_bytes = 1, .entropy_bytes = 0.5};
constexpr DownCosts kRounded{
    .kind = DownCosts::Kind::kRounded, .root_s = 4, .child_s = 6, .sent_bytes = 2, .entropy_bytes = 1.5};

TEST(TreeBound, EdgesOfATreeWithTiers) {
  EXPECT_EQ(kFlat.edges(), 4);
  // Two regions below one aggregator below the root: 8 sites, 2 regions, 1 above.
  const TreeShape deep{.sites = 8, .aggregators = 2, .tiers = 2, .params = 1};
  EXPECT_EQ(deep.inner_nodes(), 3);
  EXPECT_EQ(deep.edges(), 11);
}

TEST(TreeBound, BytesOfAFlatTreeByHand) {
  EXPECT_EQ(least_bytes(kFlat, kInt8, kWhole).up, 3'000);     // 4 sites, 1,000 parameters, 0.75 bytes
  EXPECT_EQ(encoded_bytes(kFlat, kInt8, kWhole).up, 4'000);   // 1 byte
  EXPECT_EQ(least_bytes(kFlat, kInt8, kWhole).down, 16'000);  // 4 models of 4,000 bytes
  EXPECT_EQ(encoded_bytes(kFlat, kInt8, kWhole).down, 16'000);
}

TEST(TreeBound, BytesOfAModelInAnotherFormByHand) {
  EXPECT_EQ(encoded_bytes(kFlat, kInt8, kDelta).down, 4'000);  // 4 sites, 1,000 parameters, 1 byte
  EXPECT_EQ(least_bytes(kFlat, kInt8, kDelta).down, 2'000);
  EXPECT_EQ(encoded_bytes(kFlat, kInt8, kRounded).down, 8'000);
  EXPECT_EQ(least_bytes(kFlat, kInt8, kRounded).down, 6'000);
  EXPECT_EQ(encoded_bytes(kFlat, kInt8, kDelta).up, 4'000) << "as ever";
}

TEST(TreeBound, ProcessorOfAFlatTreeByHand) {
  const MachineCosts machine{.cores = 2,
                             .seal_s_byte = 10,
                             .open_s_byte = 20,
                             .tcp_s_byte = 5,
                             .sha256_s_byte = 3,
                             .sha256_lanes_s_byte = 0.5,
                             .file_cpu_s_byte = 2};
  const TreeBound bound = bound_of(kFlat, {.up = 100, .down = 50}, machine, kInt8, kWhole);
  EXPECT_EQ(bound.cipher_s, 150 * 30);
  EXPECT_EQ(bound.tcp_s, 150 * 5);
  EXPECT_EQ(bound.kernels_s, 1'000 * (4 * 3 + 4 * 2 + 5));
  EXPECT_EQ(bound.files_s, 5 * 4'000 * 2);  // p of four sites and one model
  EXPECT_EQ(bound.worker_s, 4 * 1'000 * 7);
  EXPECT_EQ(bound.digests_s, 100 + 10'000 + 12'000);  // the updates at both ends, five models; one of them as a stream
  EXPECT_EQ(bound.processor_s(machine), (4'500 + 750 + 25'000 + 40'000 + 28'000) / 2.0);  // without the digests
  EXPECT_EQ(bound.digested_s(machine), (98'250 + 22'100) / 2.0);
}

TEST(TreeBound, MemoryAndDiskOfAFlatTreeByHand) {
  const MachineCosts machine{.copy_s_byte = 2, .disk_s_byte = 3};
  const TreeBound bound = bound_of(kFlat, {.up = 4'000, .down = 16'000}, machine, kInt8, kWhole);
  // Sites 4 x 16,000; 20,000 bytes at two ends; one sum of 8,000; 4,000 of mean's sum and two models: 16,000.
  EXPECT_EQ(bound.memory_bytes, 64'000 + 40'000 + 8'000 + 16'000);
  EXPECT_EQ(bound.memory_s, 128'000);  // a copy moves a byte twice
  EXPECT_EQ(bound.disk_bytes, 20'000);
  EXPECT_EQ(bound.disk_s, 60'000);
}

// Eight sites below two regions: ten edges, each of whose lower ends decodes.
TEST(TreeBound, ProcessorOfADifferenceByHand) {
  const MachineCosts machine{.sha256_s_byte = 1, .sha256_lanes_s_byte = 0.5, .file_cpu_s_byte = 2};
  const TreeShape tree{.sites = 8, .aggregators = 2, .tiers = 1, .params = 100};
  const TreeBound bound = bound_of(tree, {.up = 1'000, .down = 1'000}, machine, kInt8, kDelta);
  EXPECT_EQ(bound.kernels_s, 100 * (8 * 3 + 10 * 2 + 5) + 100 * (10 * 13 + 11));
  EXPECT_EQ(bound.digests_s, 1'000 + 11 * 200 + 400) << "of models as decoded, not as sent";
  EXPECT_EQ(bound.files_s, 10 * 400 * 2) << "p of eight sites, the master, what sites train from";
  EXPECT_EQ(bound_of(tree, {}, machine, kInt8, kRounded).files_s, 9 * 400 * 2) << "which is made anew of the master";
  EXPECT_EQ(bound_of(tree, {}, machine, kInt8, kRounded).kernels_s, 100 * (8 * 3 + 10 * 2 + 5) + 100 * (10 * 6 + 4));
}

TEST(TreeBound, MemoryOfFormsByHand) {
  const double whole = bound_of(kFlat, {}, {}, kInt8, kWhole).memory_bytes;
  // Read the master, write the trained model; four children write theirs.
  EXPECT_EQ(bound_of(kFlat, {}, {}, kInt8, kRounded).memory_bytes - whole, 4'000 + 4'000 + 4 * 4'000);
  // And each of the five reads the model before.
  EXPECT_EQ(bound_of(kFlat, {}, {}, kInt8, kDelta).memory_bytes - whole, 24'000 + 5 * 4'000);
}

TEST(TreeBound, WhatWasMovedIsUpdatesThenPartialsAndModelsDown) {
  const TreeBytes flat = moved_bytes(kFlat, {.up_per_site = 100, .up_into_root = 400}, kWhole);
  EXPECT_EQ(flat.up, 400);  // once, though the root counted the same bytes
  EXPECT_EQ(flat.down, 16'000);
  const TreeShape tree{.sites = 8, .aggregators = 2, .tiers = 1, .params = 10};
  const MeasuredRound measured{.up_per_site = 100, .up_into_root = 50};
  EXPECT_EQ(moved_bytes(tree, measured, kWhole).up, 850);
  EXPECT_EQ(moved_bytes(tree, measured, kWhole).down, 400);  // ten edges
  EXPECT_EQ(moved_bytes(tree, measured, kRounded).down, 200);
  EXPECT_EQ(moved_bytes(tree, measured, kDelta).down, 100);
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
