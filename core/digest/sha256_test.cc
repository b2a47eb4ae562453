#include "core/digest/sha256.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

namespace fluvial {
namespace {

// FIPS 180-4 examples.
TEST(Sha256, KnownAnswers) {
  EXPECT_EQ(to_hex(sha256({})), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(to_hex(sha256(as_byte_span("abc"))), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(to_hex(sha256(as_byte_span("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"))),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

TEST(Sha256, AnySplitGivesTheSameDigest) {
  const std::string text(1000, 'f');
  const Digest whole = sha256(as_byte_span(text));
  for (const std::size_t part : {1UL, 63UL, 64UL, 65UL, 999UL}) {
    Sha256 running;
    for (std::size_t at = 0; at < text.size(); at += part) {
      running.update(as_byte_span(text).subspan(at, std::min(part, text.size() - at)));
    }
    EXPECT_EQ(running.finish(), whole) << part;
  }
}

TEST(Sha256, StartsAnewAfterFinishAndMoves) {
  Sha256 running;
  running.update(as_byte_span("something else"));
  (void)running.finish();
  Sha256 moved = std::move(running);
  moved.update(as_byte_span("abc"));
  EXPECT_EQ(moved.finish(), sha256(as_byte_span("abc")));
}

}  // namespace
}  // namespace fluvial
