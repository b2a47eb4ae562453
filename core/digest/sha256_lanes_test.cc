#include "core/digest/sha256_lanes.h"

#include <gtest/gtest.h>

#include <vector>

#include "core/digest/sha256.h"

namespace fluvial {
namespace {

std::vector<std::byte> bytes_of(std::size_t size) {
  std::vector<std::byte> bytes(size);
  std::uint32_t state = 1;
  for (std::byte& one : bytes) {
    state = state * 1664525 + 1013904223;
    one = static_cast<std::byte>(state >> 24);
  }
  return bytes;
}

// OpenSSL is the oracle: it hashes each piece by itself.
TEST(Sha256Lanes, GiveWhatOpenSslGivesForAnyNumberOfPieces) {
  for (const Sha256Lanes lanes : supported_lanes()) {
    for (const std::size_t piece_bytes : {64UL, 128UL, 4096UL, 16384UL}) {
      for (std::size_t count = 0; count <= 35; ++count) {
        const std::vector<std::byte> bytes = bytes_of(count * piece_bytes);
        std::vector<Digest> digests(count);
        sha256_pieces(lanes, bytes, piece_bytes, digests);
        for (std::size_t i = 0; i < count; ++i) {
          ASSERT_EQ(digests[i], sha256(ByteSpan(bytes).subspan(i * piece_bytes, piece_bytes)))
              << lanes_name(lanes) << " lanes, piece " << i << " of " << count << " of " << piece_bytes << " bytes";
        }
      }
    }
  }
}

TEST(Sha256Lanes, ReadPiecesThatAreNotAligned) {
  constexpr std::size_t kPieceBytes = 192;
  const std::vector<std::byte> bytes = bytes_of(17 * kPieceBytes + 3);
  for (const Sha256Lanes lanes : supported_lanes()) {
    std::vector<Digest> digests(17);
    const ByteSpan odd = ByteSpan(bytes).subspan(3);
    sha256_pieces(lanes, odd, kPieceBytes, digests);
    for (std::size_t i = 0; i < digests.size(); ++i) {
      EXPECT_EQ(digests[i], sha256(odd.subspan(i * kPieceBytes, kPieceBytes))) << lanes_name(lanes) << ' ' << i;
    }
  }
}

TEST(Sha256Lanes, EveryMachineRunsOneLane) { EXPECT_EQ(supported_lanes().front(), Sha256Lanes::kOne); }

}  // namespace
}  // namespace fluvial
