#include "core/identity/seeded_key.h"

#include <gtest/gtest.h>

#include "core/identity/signature.h"

namespace fluvial::identity {
namespace {

TEST(SeededKey, IsTheSameEachTimeAndSoAreItsSignatures) {
  const PrivateKey key = seeded_key(Digest{}).value();
  const PrivateKey again = seeded_key(Digest{}).value();
  const PrivateKey other = seeded_key(Digest{std::byte{1}}).value();
  EXPECT_EQ(PublicKey::of(key), PublicKey::of(again));
  EXPECT_FALSE(PublicKey::of(key) == PublicKey::of(other));
  const Signature signature = sign(key, "x", as_byte_span("y")).value();
  EXPECT_EQ(sign(again, "x", as_byte_span("y")).value(), signature);
  EXPECT_TRUE(PublicKey::of(key).verify("x", as_byte_span("y"), signature).ok());
}

}  // namespace
}  // namespace fluvial::identity
