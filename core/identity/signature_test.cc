#include "core/identity/signature.h"

#include <gtest/gtest.h>
#include <openssl/evp.h>

#include "core/base/testing.h"

namespace fluvial::identity {
namespace {

PrivateKey ed25519() {
  return PrivateKey(std::shared_ptr<EVP_PKEY>(EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519"), EVP_PKEY_free));
}

class Signatures : public testing::TestWithParam<bool> {
 protected:
  PrivateKey make() const { return GetParam() ? PrivateKey::generate().value() : ed25519(); }
};

TEST_P(Signatures, VerifyByTheirOwnKeyAlone) {
  const PrivateKey key = make();
  const PrivateKey other = make();
  const ByteSpan statement = as_byte_span("weight 7");
  for (int i = 0; i < 32; ++i) {  // short r and s come with chance
    const Signature signature = sign(key, "contribution", statement).value();
    EXPECT_TRUE(PublicKey::of(key).verify("contribution", statement, signature).ok());
    EXPECT_EQ(PublicKey::of(other).verify("contribution", statement, signature).error().code, Code::kUnauthenticated);
  }
}

TEST_P(Signatures, AreOfOneKindAndOneStatement) {
  const PrivateKey key = make();
  const PublicKey reader = PublicKey::of(key);
  const Signature signature = sign(key, "lease", as_byte_span("for node 7")).value();
  EXPECT_FALSE(reader.verify("opening", as_byte_span("for node 7"), signature).ok());
  EXPECT_FALSE(reader.verify("lease", as_byte_span("for node 8"), signature).ok());
  EXPECT_FALSE(reader.verify("leas", as_byte_span("efor node 7"), signature).ok());
  for (const std::size_t at : {0u, 31u, 32u, 63u}) {
    Signature bent = signature;
    bent[at] ^= std::byte{1};
    EXPECT_FALSE(reader.verify("lease", as_byte_span("for node 7"), bent).ok()) << at;
  }
  EXPECT_FALSE(reader.verify("lease", as_byte_span("for node 7"), Signature{}).ok());
}

TEST_P(Signatures, SurviveTheKeyBeingWrittenDown) {
  const PrivateKey key = make();
  const PublicKey kept = PublicKey::from_der(PublicKey::of(key).der().span()).value();
  EXPECT_EQ(kept, PublicKey::of(key));
  EXPECT_TRUE(kept.verify("x", as_byte_span("y"), sign(key, "x", as_byte_span("y")).value()).ok());
}

INSTANTIATE_TEST_SUITE_P(Keys, Signatures, testing::Bool(),
                         [](const auto& kind) { return kind.param ? "EcdsaP256" : "Ed25519"; });

TEST(PublicKeyTest, NoneVerifiesNothing) {
  EXPECT_FALSE(PublicKey());
  EXPECT_EQ(PublicKey().verify("x", as_byte_span("y"), Signature{}).error().code, Code::kUnauthenticated);
}

TEST(PublicKeyTest, RefusesWhatIsNotAKeyOfOurs) {
  EXPECT_EQ(PublicKey::from_der(as_byte_span("no key")).error().code, Code::kDataLoss);
  const Buffer der = PublicKey::of(PrivateKey::generate().value()).der();
  std::string longer(as_text(der.span()));
  longer += 'x';
  EXPECT_EQ(PublicKey::from_der(as_byte_span(longer)).error().code, Code::kDataLoss);
  const std::shared_ptr<EVP_PKEY> rsa(EVP_PKEY_Q_keygen(nullptr, nullptr, "RSA", std::size_t{2048}), EVP_PKEY_free);
  EXPECT_EQ(PublicKey::from_der(PublicKey(rsa).der().span()).error().code, Code::kDataLoss);
}

}  // namespace
}  // namespace fluvial::identity
