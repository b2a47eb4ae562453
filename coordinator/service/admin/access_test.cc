#include "coordinator/service/admin/access.h"

#include <gmock/gmock.h>

namespace fluvial::coordinator::admin {
namespace {

using testing::HasSubstr;

net::UnixPeer peer(std::uint32_t uid, std::uint32_t gid, std::vector<std::uint32_t> groups = {}) {
  return {uid, gid, 1, std::move(groups)};
}

TEST(AdminPeople, AreTheOwnUserAndRootUnlessMoreAreNamed) {
  const People people = People::of(900, "", "").value();
  EXPECT_FALSE(people.are_more_than_own());
  EXPECT_EQ(people.access_of(peer(900, 5)), Access::kFull);
  EXPECT_EQ(people.access_of(peer(0, 0)), Access::kFull);
  EXPECT_EQ(people.access_of(peer(901, 900, {0})), Access::kNone) << "a group's number is no user's";
}

TEST(AdminPeople, MayBeNamedByUserAndByGroup) {
  const People people = People::of(900, " 1001,@2000 , root", "1002,@2001, 1001").value();
  EXPECT_TRUE(people.are_more_than_own());
  EXPECT_EQ(people.access_of(peer(1001, 1)), Access::kFull) << "the greater of what the two lists give";
  EXPECT_EQ(people.access_of(peer(5, 2000)), Access::kFull);
  EXPECT_EQ(people.access_of(peer(5, 1, {7, 2000})), Access::kFull) << "also where it is not their first group";
  EXPECT_EQ(people.access_of(peer(1002, 1)), Access::kRead);
  EXPECT_EQ(people.access_of(peer(5, 1, {2001})), Access::kRead);
  EXPECT_EQ(people.access_of(peer(2000, 1001)), Access::kNone);
  EXPECT_TRUE(People::of(900, "", "@0").value().are_more_than_own());
}

TEST(AdminPeople, WhomTheMachineDoesNotKnowIsNamed) {
  const auto user = People::of(900, "root, no-such-user", "");
  EXPECT_EQ(user.error().code, Code::kInvalidArgument);
  EXPECT_THAT(user.error().message,
              HasSubstr("admin_users = 'root, no-such-user': this machine has no user 'no-such-user'"));
  EXPECT_THAT(People::of(900, "", "@no-such-group").error().message, HasSubstr("admin_readers"));
  EXPECT_FALSE(People::of(900, "@", "").ok());
}

// With PrivateUsers=yes the kernel shows 65534 for alice as for everybody else; the name service calls that nobody.
TEST(AdminPeople, ANumberThatStandsForEverybodyIsNoName) {
  for (const char* who : {"65534", "@65534", "1001, 65534", "nobody", "@nogroup"}) {
    EXPECT_THAT(People::of(900, who, "").error().message, HasSubstr("every user that a user namespace does not map"));
    EXPECT_THAT(People::of(900, "", who).error().message, HasSubstr("admin_readers = '"));
  }
  const People people = People::of(900, "1001, @2000", "1002").value();
  EXPECT_EQ(people.access_of(peer(65534, 65534, {65534})), Access::kNone);
  EXPECT_THAT(may_not_ask(peer(65534, 65534)).message, HasSubstr("PrivateUsers="));
  EXPECT_THAT(may_not_ask(peer(1003, 1003)).message, HasSubstr("user 1003 may not"));
}

TEST(AdminPages, AskNothingWithAnOperatorsCertificate) {
  const auto asked = [](std::map<std::string, std::string> headers) {
    net::HttpRequest request;
    request.headers = std::move(headers);
    return check_no_page(request).ok();
  };
  EXPECT_TRUE(asked({{"host", "fl.example.org:7402"}, {"user-agent", "curl/8"}}));
  EXPECT_TRUE(asked({{"sec-fetch-site", "none"}})) << "a person typed the address";
  for (const char* origin : {"https://evil.example", "null", "https://fl.example.org:7402"}) {
    EXPECT_FALSE(asked({{"origin", origin}})) << origin;
  }
  for (const char* site : {"cross-site", "same-site", "same-origin"}) {
    EXPECT_FALSE(asked({{"sec-fetch-site", site}})) << site;
  }
}

}  // namespace
}  // namespace fluvial::coordinator::admin
