#include "core/identity/sealed_key.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/pem.h>
#include <openssl/pkcs12.h>
#include <openssl/rsa.h>

#include <cstring>
#include <fstream>

#include "core/base/testing.h"
#include "core/identity/authority.h"
#include "core/identity/openssl_internal.h"

namespace fluvial::identity {
namespace {

using testing::HasSubstr;

constexpr std::string_view kPassphrase = "correct horse battery staple";

bool same(const PrivateKey& one, const PrivateKey& other) { return EVP_PKEY_eq(one.native(), other.native()) == 1; }
template <typename T>
Code code_of(const Result<T>& result) {
  return result.ok() ? Code{} : result.error().code;
}

TEST(SealedKey, APassphraseOpensIt) {
  const PrivateKey key = PrivateKey::generate().value();
  const auto sealed = seal_with_passphrase(key, kPassphrase);
  ASSERT_TRUE(sealed.ok()) << sealed.error().message;
  EXPECT_TRUE(sealed->starts_with("-----BEGIN ENCRYPTED PRIVATE KEY-----"));
  const auto opened = open_with_passphrase(*sealed, kPassphrase);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_TRUE(same(key, *opened));
  const auto wrong = open_with_passphrase(*sealed, "correct horse battery stable");
  EXPECT_EQ(code_of(wrong), Code::kUnauthenticated);
  EXPECT_THAT(wrong.error().message, HasSubstr("wrong passphrase"));
}

TEST(SealedKey, AShortPassphraseIsRefused) {
  const PrivateKey key = PrivateKey::generate().value();
  EXPECT_EQ(code_of(seal_with_passphrase(key, "hunter2")), Code::kInvalidArgument);
  EXPECT_EQ(code_of(seal_with_passphrase(key, "")), Code::kInvalidArgument);
  EXPECT_EQ(code_of(seal_with_passphrase(key, std::string(kPassphraseBytesMax + 1, 'x'))), Code::kInvalidArgument);
}

TEST(SealedKey, WhatIsDamagedIsRefused) {
  const PrivateKey key = PrivateKey::generate().value();
  const std::string sealed = seal_with_passphrase(key, kPassphrase).value();
  EXPECT_EQ(code_of(open_with_passphrase("", kPassphrase)), Code::kDataLoss);
  EXPECT_EQ(code_of(open_with_passphrase(sealed.substr(0, sealed.size() / 2), kPassphrase)), Code::kDataLoss);
  EXPECT_EQ(code_of(open_with_passphrase(*leave_unsealed(key), kPassphrase)), Code::kDataLoss);
  EXPECT_EQ(code_of(open_unsealed(sealed)), Code::kDataLoss) << "nothing is asked on the terminal";
}

// A file may ask for any amount of work: opening is refused when it would take far longer than our own files.
TEST(SealedKey, AnUnaffordableOneIsNotTried) {
  const PrivateKey key = PrivateKey::generate().value();
  unsigned char salt[16] = {};
  // Sealed at little cost, and then said to be sealed by `algorithm`.
  const auto said_to_be_by = [&](X509_ALGOR* algorithm) {
    const std::unique_ptr<X509_ALGOR, FreeWith<X509_ALGOR_free>> said(algorithm);
    const std::unique_ptr<PKCS8_PRIV_KEY_INFO, FreeWith<PKCS8_PRIV_KEY_INFO_free>> plain(EVP_PKEY2PKCS8(key.native()));
    const std::unique_ptr<X509_SIG, FreeWith<X509_SIG_free>> sealed(
        PKCS8_set0_pbe(kPassphrase.data(), static_cast<int>(kPassphrase.size()), plain.get(),
                       PKCS5_pbe2_set_scrypt(EVP_aes_256_cbc(), salt, 16, nullptr, 2, 1, 1)));
    X509_ALGOR* held = nullptr;
    X509_SIG_getm(sealed.get(), &held, nullptr);
    EXPECT_EQ(X509_ALGOR_copy(held, said.get()), 1);
    const BioPtr pem(BIO_new(BIO_s_mem()));
    EXPECT_EQ(PEM_write_bio_PKCS8(pem.get(), sealed.get()), 1);
    return std::string(bio_text(pem.get()));
  };
  const std::string other =
      said_to_be_by(PKCS5_pbe2_set_iv(EVP_aes_256_cbc(), 1 << 30, salt, 16, nullptr, NID_hmacWithSHA256));
  EXPECT_EQ(code_of(open_with_passphrase(other, kPassphrase)), Code::kDataLoss) << "another derivation";
  const std::string costly =
      said_to_be_by(PKCS5_pbe2_set_scrypt(EVP_aes_256_cbc(), salt, 16, nullptr, 1 << 14, 8, 1 << 12));
  EXPECT_EQ(code_of(open_with_passphrase(costly, kPassphrase)), Code::kDataLoss) << "eight hundred times over";
}

class RecipientTest : public testing::Test {
 protected:
  // A key of the operator's own, in a file, and a certificate for it that it signed itself.
  Certificate make(KeyPtr made, const char* passphrase = nullptr) {
    EVP_PKEY* const raw = made.get();
    const BioPtr pem(BIO_new(BIO_s_mem()));
    EXPECT_EQ(PEM_write_bio_PKCS8PrivateKey(
                  pem.get(), raw, passphrase != nullptr ? EVP_aes_256_cbc() : nullptr, passphrase,
                  passphrase != nullptr ? static_cast<int>(std::strlen(passphrase)) : 0, nullptr, nullptr),
              1);
    std::ofstream(path()) << bio_text(pem.get());
    std::shared_ptr<X509> certificate(X509_new(), X509_free);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), 7);
    X509_set_version(certificate.get(), X509_VERSION_3);
    X509_gmtime_adj(X509_getm_notBefore(certificate.get()), 0);
    X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 3600);
    X509_set_pubkey(certificate.get(), raw);
    X509_NAME* const name = X509_get_subject_name(certificate.get());
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>("operator"), -1, -1, 0);
    X509_set_issuer_name(certificate.get(), name);
    const bool is_ed25519 = EVP_PKEY_get_base_id(raw) == EVP_PKEY_ED25519;
    EXPECT_GT(X509_sign(certificate.get(), raw, is_ed25519 ? nullptr : EVP_sha256()), 0);
    return Certificate(certificate);
  }
  std::string path() const { return folder_.path() + "/operator.pem"; }
  TemporaryFolder folder_;
  PrivateKey key_ = PrivateKey::generate().value();
};

TEST_F(RecipientTest, OpensItWithItsPrivateKeyAlone) {
  for (const bool rsa : {false, true}) {
    const Certificate recipient = make(KeyPtr(rsa ? EVP_RSA_gen(2048) : EVP_EC_gen("P-384")));
    const auto sealed = seal_for(key_, recipient);
    ASSERT_TRUE(sealed.ok()) << sealed.error().message;
    EXPECT_TRUE(sealed->starts_with("-----BEGIN CMS-----"));
    const auto opened = open_for(*sealed, path(), "");
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    EXPECT_TRUE(same(key_, *opened));
    make(KeyPtr(rsa ? EVP_RSA_gen(2048) : EVP_EC_gen("P-384")));  // somebody else's in its place
    EXPECT_EQ(code_of(open_for(*sealed, path(), "")), Code::kUnauthenticated);
  }
}

TEST_F(RecipientTest, KeyMayHaveAPassphraseOfItsOwn) {
  const Certificate recipient = make(KeyPtr(EVP_EC_gen("P-256")), "the operator's own");
  const std::string sealed = seal_for(key_, recipient).value();
  EXPECT_TRUE(open_for(sealed, path(), "the operator's own").ok());
  EXPECT_EQ(code_of(open_for(sealed, path(), "")), Code::kUnauthenticated);
  EXPECT_EQ(code_of(open_for(sealed, folder_.path() + "/none.pem", "")), Code::kNotFound);
}

TEST_F(RecipientTest, ThatNothingCanBeEncryptedForIsRefused) {
  EXPECT_EQ(code_of(seal_for(key_, make(KeyPtr(EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519"))))),
            Code::kInvalidArgument);
  EXPECT_EQ(code_of(seal_for(key_, make(KeyPtr(EVP_RSA_gen(1024))))), Code::kInvalidArgument);
}

TEST_F(RecipientTest, WhatIsDamagedIsRefused) {
  const Certificate recipient = make(KeyPtr(EVP_EC_gen("P-256")));
  const std::string sealed = seal_for(key_, recipient).value();
  EXPECT_EQ(code_of(open_for("", path(), "")), Code::kDataLoss);
  std::string other = sealed;
  const std::size_t late = sealed.rfind('\n', sealed.size() - 30) - 10;  // in the content or its tag
  other[late] = other[late] == 'A' ? 'B' : 'A';
  EXPECT_FALSE(open_for(other, path(), "").ok());
}

TEST(SealedKey, OfAnotherAuthorityIsNotItsOwn) {
  const auto authority = CertificateAuthority::create_in_memory("clinics", SystemClock().wall_now()).value();
  const Status checked = check_key_of(PrivateKey::generate().value(), authority.certificate());
  EXPECT_EQ(code_of(checked), Code::kDataLoss);
}

TEST(Passphrase, IsTheFirstLineOfAFile) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/passphrase";
  std::ofstream(path) << kPassphrase << "\r\nsecond line\n";
  EXPECT_EQ(read_passphrase_file(path).value(), kPassphrase);
  std::ofstream(path) << "\n" << kPassphrase;
  const auto empty = read_passphrase_file(path);
  EXPECT_EQ(code_of(empty), Code::kInvalidArgument);
  EXPECT_THAT(empty.error().message, HasSubstr(path));
  EXPECT_EQ(code_of(read_passphrase_file(folder.path() + "/none")), Code::kNotFound);
}

}  // namespace
}  // namespace fluvial::identity
