#include "core/identity/authority.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "core/base/testing.h"
#include "core/identity/credentials.h"
#include "core/identity/csr.h"
#include "core/identity/openssl_internal.h"
#include "core/identity/test_support.h"
#include "core/identity/testing.h"

namespace fluvial::identity {
namespace {

using ::testing::HasSubstr;

mode_t mode_of(const std::string& path) {
  struct stat status = {};
  EXPECT_EQ(::stat(path.c_str(), &status), 0) << path;
  return status.st_mode & 07777;
}

const Grant kGrant{{Role::kSite, NodeId(7), "hospital-a"}, std::chrono::hours(1), {}, {}};

TEST(PrivateKey, SavedForItsOwnerAloneAndRefusedOtherwise) {
  const TemporaryFolder folder;
  const std::string path = folder / "key.pem";
  const PrivateKey key = PrivateKey::generate().value();
  ASSERT_TRUE(key.save(path).ok());
  EXPECT_EQ(mode_of(path), 0600U);
  EXPECT_FALSE(std::filesystem::exists(path + ".tmp"));
  const auto loaded = PrivateKey::load(path);
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(EVP_PKEY_eq(loaded->native(), key.native()), 1);

  for (const mode_t mode : {0640U, 0604U, 0644U, 0620U}) {
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
    const auto open_to_others = PrivateKey::load(path);
    ASSERT_FALSE(open_to_others.ok());
    EXPECT_EQ(open_to_others.error().code, Code::kFailedPrecondition);
    EXPECT_THAT(open_to_others.error().message, HasSubstr(path));
    EXPECT_THAT(open_to_others.error().message, HasSubstr("mode 06"));
  }
}

TEST(PrivateKey, SaveReplacesAndSurvivesLitter) {
  const TemporaryFolder folder;
  const std::string path = folder / "key.pem";
  std::ofstream(path + ".tmp") << "from a crash";
  ASSERT_TRUE(PrivateKey::generate()->save(path).ok());
  const PrivateKey second = PrivateKey::generate().value();
  ASSERT_TRUE(second.save(path).ok());
  EXPECT_EQ(EVP_PKEY_eq(PrivateKey::load(path)->native(), second.native()), 1);
}

TEST(PrivateKey, LoadSaysWhatIsWrong) {
  const TemporaryFolder folder;
  EXPECT_EQ(PrivateKey::load(folder / "absent.pem").error().code, Code::kNotFound);
  const std::string path = folder / "garbage.pem";
  std::ofstream(path) << "garbage";
  ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
  EXPECT_EQ(PrivateKey::load(path).error().code, Code::kDataLoss);
  EXPECT_THAT(PrivateKey::load(path).error().message, HasSubstr(path));
  EXPECT_FALSE(PrivateKey::generate()->save(folder / "no/such/folder/key.pem").ok());
}

TEST(Authority, MadeOnceThenOpened) {
  const TemporaryFolder folder;
  const std::string home = folder / "state/ca";
  const auto made = CertificateAuthority::create_or_open(home, "clinics", wall_now());
  ASSERT_TRUE(made.ok()) << made.error().to_string();
  EXPECT_EQ(mode_of(home), 0700U);
  EXPECT_EQ(mode_of(home + "/ca-key.pem"), 0600U);
  EXPECT_TRUE(check_pin(made->pin()).ok());
  EXPECT_EQ(made->pin(), pin_of(made->certificate()));

  const auto opened = CertificateAuthority::create_or_open(home, "another-name", wall_now());
  ASSERT_TRUE(opened.ok());
  EXPECT_EQ(opened->certificate().serial_hex(), made->certificate().serial_hex());

  // Cut short between the two files: the key stays, and with it the pin.
  std::filesystem::remove(home + "/ca.pem");
  const auto resumed = CertificateAuthority::create_or_open(home, "clinics", wall_now());
  ASSERT_TRUE(resumed.ok());
  EXPECT_EQ(resumed->pin(), made->pin());

  std::filesystem::remove(home + "/ca-key.pem");
  const auto keyless = CertificateAuthority::create_or_open(home, "clinics", wall_now());
  ASSERT_FALSE(keyless.ok());
  EXPECT_THAT(keyless.error().message, HasSubstr("restore the key file"));

  ASSERT_TRUE(PrivateKey::generate()->save(home + "/ca-key.pem").ok());
  const auto strange = CertificateAuthority::create_or_open(home, "clinics", wall_now());
  ASSERT_FALSE(strange.ok());
  EXPECT_EQ(strange.error().code, Code::kDataLoss);
}

TEST(Authority, CertificateSaysWhatTheGrantSays) {
  const WallTime now = std::chrono::floor<std::chrono::seconds>(wall_now());
  const auto authority = CertificateAuthority::create_in_memory("test", now).value();
  const auto made = make_key_and_csr().value();
  const auto certificate = authority.issue(made.csr_der.span(), kGrant, now).value();
  const PeerIdentity identity = identity_of(certificate).value();
  EXPECT_EQ(identity.role, Role::kSite);
  EXPECT_EQ(identity.node, NodeId(7));
  EXPECT_EQ(identity.name, "hospital-a");
  EXPECT_EQ(identity.serial_hex.size(), 32U);
  EXPECT_EQ(identity.not_after, now + std::chrono::hours(1));
  EXPECT_EQ(certificate.not_before(), now - kBackdated);
  EXPECT_NE(authority.issue(made.csr_der.span(), kGrant, now)->serial_hex(), identity.serial_hex);
  const Buffer der = certificate.der();
  EXPECT_EQ(Certificate::from_der(der.span())->serial_hex(), identity.serial_hex);
  EXPECT_FALSE(Certificate::from_der(der.span().first(der.size() - 1)).ok());
  EXPECT_FALSE(identity_of(authority.certificate()).ok());
}

TEST(Authority, NeverOutlivesItself) {
  const WallTime now = std::chrono::floor<std::chrono::seconds>(wall_now());
  const auto authority = CertificateAuthority::create_in_memory("test", now, std::chrono::hours(2)).value();
  const auto made = make_key_and_csr().value();
  Grant grant = kGrant;
  grant.validity = std::chrono::seconds::max();
  EXPECT_EQ(authority.issue(made.csr_der.span(), grant, now)->not_after(), now + std::chrono::hours(2));
  const auto late = authority.issue(made.csr_der.span(), grant, now + std::chrono::hours(2));
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code, Code::kFailedPrecondition);
}

TEST(Authority, RefusesGrantsThatAreNotValid) {
  const auto authority = CertificateAuthority::create_in_memory("test", wall_now()).value();
  const auto made = make_key_and_csr().value();
  const auto refused = [&](auto change) {
    Grant grant = kGrant;
    change(grant);
    return !authority.issue(made.csr_der.span(), grant, wall_now()).ok();
  };
  EXPECT_TRUE(refused([](Grant& grant) { grant.member.name = "Hospital A"; }));
  EXPECT_TRUE(refused([](Grant& grant) { grant.member.node = NodeId(); }));
  EXPECT_TRUE(refused([](Grant& grant) { grant.validity = std::chrono::seconds(0); }));
  EXPECT_TRUE(refused([](Grant& grant) { grant.dns_names = {"a,URI:fluvial://coordinator/1/root"}; }));
  EXPECT_TRUE(refused([](Grant& grant) { grant.ip_addresses = {"localhost"}; }));
  EXPECT_FALSE(refused([](Grant& grant) { grant.ip_addresses = {"127.0.0.1", "::1"}; }));
}

Buffer request_with_key(EVP_PKEY* key) {
  const RequestPtr request(X509_REQ_new());
  X509_REQ_set_pubkey(request.get(), key);
  EXPECT_GT(X509_REQ_sign(request.get(), key, signing_digest(key)), 0);
  Buffer der(static_cast<std::size_t>(i2d_X509_REQ(request.get(), nullptr)));
  unsigned char* out = as_uchar(der.data());
  i2d_X509_REQ(request.get(), &out);
  return der;
}

TEST(Authority, RefusesRequestsThatProveNothing) {
  const auto authority = CertificateAuthority::create_in_memory("test", wall_now()).value();
  const auto made = make_key_and_csr().value();
  const auto error_of = [&](ByteSpan csr) {
    const auto issued = authority.issue(csr, kGrant, wall_now());
    EXPECT_FALSE(issued.ok());
    if (issued.ok()) return std::string();
    EXPECT_EQ(issued.error().code, Code::kInvalidArgument);
    return issued.error().message;
  };
  Buffer forged = Buffer::copy_of(made.csr_der.span());
  forged.data()[forged.size() - 1] ^= std::byte{1};
  EXPECT_THAT(error_of(forged.span()), HasSubstr("signature"));
  Buffer longer(made.csr_der.size() + 1);
  std::copy_n(made.csr_der.data(), made.csr_der.size(), longer.data());
  longer.data()[made.csr_der.size()] = std::byte{0};
  EXPECT_THAT(error_of(longer.span()), HasSubstr("not whole DER"));
  EXPECT_THAT(error_of({}), HasSubstr("not whole DER"));
  EXPECT_THAT(error_of(Buffer(kCsrBytesMax + 1).span()), HasSubstr("not whole DER"));
  for (std::size_t size = 1; size < made.csr_der.size(); ++size) {
    EXPECT_FALSE(authority.issue(made.csr_der.span().first(size), kGrant, wall_now()).ok()) << size;
  }
}

TEST(Authority, RefusesOtherKeys) {
  const auto authority = CertificateAuthority::create_in_memory("test", wall_now()).value();
  for (const KeyPtr& key : {KeyPtr(EVP_RSA_gen(1024)), KeyPtr(EVP_RSA_gen(2048)), KeyPtr(EVP_EC_gen("P-384")),
                            KeyPtr(EVP_EC_gen("secp256k1"))}) {
    const auto issued = authority.issue(request_with_key(key.get()).span(), kGrant, wall_now());
    ASSERT_FALSE(issued.ok());
    EXPECT_THAT(issued.error().message, HasSubstr("neither ECDSA P-256 nor Ed25519"));
  }
  const KeyPtr edwards(EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519"));
  EXPECT_TRUE(authority.issue(request_with_key(edwards.get()).span(), kGrant, wall_now()).ok());
}

TEST(Credentials, ThereAndBackAndOnlyTogether) {
  const TemporaryFolder folder;
  const TestPki pki;
  const std::string home = folder / "member";
  EXPECT_EQ(load_credentials(home).error().code, Code::kNotFound);
  const Credentials credentials = pki.credentials(Role::kSite, NodeId(7), "hospital-a");
  ASSERT_TRUE(save_credentials(credentials, home).ok());
  EXPECT_EQ(mode_of(home + "/key.pem"), 0600U);
  const auto loaded = load_credentials(home);
  ASSERT_TRUE(loaded.ok()) << loaded.error().to_string();
  EXPECT_EQ(loaded->chain.front().serial_hex(), credentials.chain.front().serial_hex());
  EXPECT_EQ(pin_of(loaded->authorities.front()), pki.pin());
  EXPECT_EQ(loaded->enrolled_before, 0u);

  Credentials third = credentials;
  third.enrolled_before = 2;
  ASSERT_TRUE(save_credentials(third, home).ok());
  EXPECT_EQ(load_credentials(home)->enrolled_before, 2u);
  for (const std::string bad : {"", "2", "x\n", "-1\n", "1000001\n"}) {
    std::ofstream(home + "/enrolled_before") << bad;
    EXPECT_EQ(load_credentials(home).error().code, Code::kDataLoss) << bad;
  }
  ASSERT_TRUE(std::filesystem::remove(home + "/enrolled_before"));
  EXPECT_EQ(load_credentials(home)->enrolled_before, 0u) << "from a coordinator that did not say";

  ASSERT_TRUE(PrivateKey::generate()->save(home + "/key.pem").ok());
  EXPECT_EQ(load_credentials(home).error().code, Code::kDataLoss);
  ASSERT_TRUE(save_credentials(pki.foreign_credentials(Role::kSite, NodeId(7), "hospital-a"), home).ok());
  EXPECT_EQ(load_credentials(home).error().code, Code::kDataLoss);
}

std::string output_of(const std::string& command) {
  std::string output;
  FILE* const pipe = ::popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return output;
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) output += static_cast<char>(c);
  ::pclose(pipe);
  return output;
}

// A second opinion on what we issue, from the command line tool that operators will use.
TEST(Authority, TheOpensslToolAgrees) {
  if (std::system("command -v openssl >/dev/null 2>&1") != 0) GTEST_SKIP() << "no openssl on PATH";
  const TemporaryFolder folder;
  const TestPki pki;
  ASSERT_TRUE(save_credentials(pki.credentials(Role::kSite, NodeId(7), "hospital-a"), folder / "site").ok());
  ASSERT_TRUE(save_credentials(pki.credentials(Role::kAggregator, NodeId(3), "eu"), folder / "eu").ok());
  const std::string verify = "openssl verify -x509_strict -CAfile " + (folder / "site/ca.pem");
  const std::string site = folder / "site/cert.pem";
  const std::string aggregator = folder / "eu/cert.pem";
  EXPECT_THAT(output_of(verify + " -purpose sslclient " + site), HasSubstr("cert.pem: OK"));
  EXPECT_THAT(output_of(verify + " -purpose sslserver " + site), HasSubstr("purpose"));
  EXPECT_THAT(output_of(verify + " -purpose sslserver " + aggregator), HasSubstr("cert.pem: OK"));
  const std::string text = output_of("openssl x509 -noout -text -in " + site);
  EXPECT_THAT(text, HasSubstr("URI:fluvial://site/7/hospital-a"));
  EXPECT_THAT(text, HasSubstr("CA:FALSE"));
  const std::string authority = output_of("openssl x509 -noout -text -in " + (folder / "site/ca.pem"));
  EXPECT_THAT(authority, HasSubstr("CA:TRUE, pathlen:0"));
  const std::string pin = output_of("openssl x509 -noout -pubkey -in " + (folder / "site/ca.pem") +
                                    " | openssl pkey -pubin -outform DER | openssl dgst -sha256 -r");
  EXPECT_EQ("sha256:" + pin.substr(0, 64), pki.pin());
}

}  // namespace
}  // namespace fluvial::identity
