#include "core/identity/own_key.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "core/base/testing.h"
#include "core/identity/authority.h"
#include "core/identity/csr.h"
#include "core/identity/testing.h"
#include "core/identity/token.h"

namespace fluvial::identity {
namespace {

class OwnKey : public ::testing::Test {
 protected:
  const TemporaryFolder state_;
  const std::string folder_ = state_ / "identity";
};

constexpr Digest kToken{std::byte{7}};  // not hashed here: the tests of key_guard.h begin before OpenSSL is used

Serial serial_of_key(const PrivateKey& key, const Digest& token = kToken) {
  const Buffer csr = make_csr(key).value();
  return serial_of(token, csr.span()).value();
}

TEST_F(OwnKey, IsMadeOnceAndPrivate) {
  const Serial made = serial_of_key(load_or_make_key(folder_).value());
  struct stat status = {};
  ASSERT_EQ(::stat((folder_ + "/key.pem").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0600u);
  EXPECT_EQ(serial_of_key(load_or_make_key(folder_).value()), made);
  std::filesystem::remove(folder_ + "/key.pem");
  EXPECT_NE(serial_of_key(load_or_make_key(folder_).value()), made);
}

TEST_F(OwnKey, TwoAtOnceGetTheSame) {
  const auto make = [this] { return serial_of_key(load_or_make_key(folder_).value()); };
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t other = ::fork();
  if (other == 0) {
    const Serial made = make();
    ::_exit(::write(ends[1], made.data(), made.size()) == static_cast<ssize_t>(made.size()) ? 0 : 1);
  }
  const Serial one = make();
  Serial two = {};
  ::close(ends[1]);
  EXPECT_EQ(::read(ends[0], two.data(), two.size()), static_cast<ssize_t>(two.size()));
  ::close(ends[0]);
  ::waitpid(other, nullptr, 0);
  EXPECT_EQ(one, two);
}

TEST_F(OwnKey, OneThatOthersReadIsNotReplaced) {
  ASSERT_TRUE(load_or_make_key(folder_).ok());
  ASSERT_EQ(::chmod((folder_ + "/key.pem").c_str(), 0644), 0);
  EXPECT_EQ(load_or_make_key(folder_).error().code, Code::kFailedPrecondition);
}

TEST(SerialOf, TellsTokenAndKeyAndStandsInTheCertificate) {
  const TestPki pki;
  const PrivateKey key = PrivateKey::generate().value();
  const Serial serial = serial_of_key(key);
  EXPECT_EQ(serial_of_key(key), serial) << "another signature of the same key";
  EXPECT_NE(serial_of_key(PrivateKey::generate().value()), serial);
  EXPECT_NE(serial_of_key(key, token_hash(Secret::random())), serial);

  Buffer csr = make_csr(key).value();
  Grant grant{{Role::kSite, NodeId(7), "hospital-a"}};
  grant.serial = serial;
  const WallTime then = SystemClock().wall_now();
  const Certificate certificate = pki.authority().issue(csr.span(), grant, then).value();
  EXPECT_EQ(certificate.serial_hex(), to_hex(serial));
  const Certificate again = pki.authority().issue(make_csr(key)->span(), grant, then).value();
  EXPECT_EQ(identity_of(again).value(), identity_of(certificate).value());
  csr.data()[csr.size() - 1] ^= std::byte{1};  // the proof does not verify
  EXPECT_EQ(serial_of(kToken, csr.span()).error().code, Code::kInvalidArgument);
}

}  // namespace
}  // namespace fluvial::identity
