#include "cli/operator_identity.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "cli/work_folder.h"
#include "core/identity/testing.h"

namespace fluvial::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

config::Environment with_home(const std::string& home) {
  return [home](const std::string& name) -> std::optional<std::string> {
    if (name == "HOME") return home;
    return std::nullopt;
  };
}

class OperatorIdentityTest : public ::testing::Test {
 protected:
  std::string identity(const std::string& name) {
    const std::string folder = folder_.file(".config/fluvial/" + name);
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "/cert.pem") << "here";
    return folder;
  }
  Result<std::string> found(const std::string& given = "") {
    return find_identity(given, with_home(std::filesystem::path(folder_.file("x")).parent_path().string()));
  }
  WorkFolder folder_ = WorkFolder::open("", false, "identity").value();
};

TEST(OperatorIdentity, AnAddressIsToldFromAPath) {
  for (const char* place : {"https://fl.example.org:7402", "https://[::1]:7402/", "fl.example.org:7402"}) {
    EXPECT_TRUE(is_network_place(place)) << place;
  }
  for (const char* path : {"/var/lib/fluvial/admin.sock", "admin.sock", "./a:1"}) {
    EXPECT_FALSE(is_network_place(path)) << path;
  }
}

TEST_F(OperatorIdentityTest, TheOnlyOneIsTakenUnlessAnotherIsGiven) {
  EXPECT_THAT(found().error().message, HasSubstr("fluvial enroll"));
  const std::string anna = identity("anna");
  EXPECT_EQ(found().value(), anna);
  EXPECT_EQ(found("/elsewhere").value(), "/elsewhere");
  identity("bert");
  EXPECT_THAT(found().error().message, AllOf(HasSubstr("anna"), HasSubstr("bert"), HasSubstr("--identity")));
}

TEST_F(OperatorIdentityTest, WithoutOneItIsSaidHowToGetIt) {
  const std::string folder = folder_.file("nobody");
  EXPECT_THAT(operator_place("https://127.0.0.1:1", folder, SystemClock().wall_now()).error().message,
              AllOf(HasSubstr("holds no identity"), HasSubstr("fluvial enroll")));
}

TEST_F(OperatorIdentityTest, AMembersIdentityIsNone) {
  const identity::TestPki pki;
  const std::string folder = folder_.file("site");
  ASSERT_TRUE(identity::save_credentials(pki.credentials(Role::kSite, NodeId(7), "hospital-a"), folder).ok());
  EXPECT_THAT(operator_place("127.0.0.1:1", folder, SystemClock().wall_now()).error().message,
              HasSubstr("the identity of site 7 (hospital-a)"));
}

TEST_F(OperatorIdentityTest, APlaceIsThereWhetherOrNotItAnswers) {
  const identity::TestPki pki;
  const std::string folder = folder_.file("anna");
  ASSERT_TRUE(identity::save_credentials(pki.credentials(Role::kOperator, NodeId(9), "anna"), folder).ok());
  const WallTime now = SystemClock().wall_now();
  const auto place = operator_place("127.0.0.1:1", folder, now);
  ASSERT_TRUE(place.ok()) << place.error().message;
  EXPECT_EQ(place->text, "https://127.0.0.1:1");
  EXPECT_TRUE(place->is_remote());
  EXPECT_TRUE(operator_place("127.0.0.1:1", folder, now + std::chrono::minutes(40)).ok()) << "a renewal that fails";
  EXPECT_THAT(operator_place("127.0.0.1:1", folder, now + std::chrono::hours(2)).error().message,
              HasSubstr("ask for a new token"));
}

TEST(OperatorIdentity, ItIsRenewedInTheSecondHalfOfItsLife) {
  const identity::TestPki pki;
  const identity::Certificate own = pki.credentials(Role::kOperator, NodeId(9), "anna").chain.front();
  const WallTime issued = own.not_after() - std::chrono::hours(1);
  EXPECT_EQ(age_of(own, issued + std::chrono::minutes(29)), CertificateAge::kYoung);
  EXPECT_EQ(age_of(own, issued + std::chrono::minutes(31)), CertificateAge::kToRenew);
  EXPECT_EQ(age_of(own, own.not_after()), CertificateAge::kEnded);
}

}  // namespace
}  // namespace fluvial::cli
