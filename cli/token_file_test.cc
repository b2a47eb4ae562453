#include "cli/token_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "cli/work_folder.h"
#include "core/identity/token.h"

namespace fluvial::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class TokenFiles : public ::testing::Test {
 protected:
  std::string file(const std::string& name, const std::string& content, mode_t mode) {
    const std::string path = folder_.file(name);
    std::ofstream(path) << content;
    EXPECT_EQ(::chmod(path.c_str(), mode), 0);
    return path;
  }
  static config::Environment environment(std::map<std::string, std::string> variables) {
    return [variables](const std::string& name) -> std::optional<std::string> {
      const auto found = variables.find(name);
      return found == variables.end() ? std::nullopt : std::optional(found->second);
    };
  }
  const std::string token_ = identity::make_token({.role = Role::kSite, .name = "a", .address = "c.example:7401"},
                                                  "sha256:" + std::string(64, '5'))
                                 .value()
                                 .token.to_text();
  WorkFolder folder_ = std::move(WorkFolder::open("", false, "test")).value();
};

TEST_F(TokenFiles, AFileThatOthersReadIsNamed) {
  const auto mine = read_token_file(file("mine", " " + token_ + "\n", 0600));
  ASSERT_TRUE(mine.ok()) << mine.error().message;
  EXPECT_EQ(mine->text, token_);
  EXPECT_EQ(mine->warning, "");
  const auto open = read_token_file(file("open", token_, 0640));
  ASSERT_TRUE(open.ok());
  EXPECT_THAT(open->warning, HasSubstr("has mode 0640"));
  EXPECT_EQ(read_token_file(file("empty", "\n", 0600)).error().code, Code::kInvalidArgument);
  EXPECT_EQ(read_token_file(folder_.file("none")).error().code, Code::kNotFound);
}

TEST_F(TokenFiles, WhatIsNoTokenIsSaidOfTheFileThatAPersonFills) {
  const auto refused = [this](const std::string& content) {
    const auto given = read_token_file(file("t", content, 0600));
    EXPECT_EQ(given.error().code, Code::kInvalidArgument);
    return given.error().message;
  };
  const std::string path = folder_.file("t");
  for (const char* nothing : {"", "\n", "none", " none\n"}) {
    EXPECT_THAT(refused(nothing), AllOf(StartsWith(path + " holds no token"), HasSubstr("fluvial token create"),
                                        Not(HasSubstr("not an enrolment token"))));
  }
  EXPECT_THAT(refused("none"), HasSubstr("/etc/fluvial/edge.token"));  // a copy of our unit, under another name
  EXPECT_THAT(refused("hello"), StartsWith(path + ": this is not an enrolment token"));
  EXPECT_THAT(refused(token_.substr(0, 40)), StartsWith(path + ": the token is damaged"));
}

TEST_F(TokenFiles, TheEnvironmentNamesOneSource) {
  EXPECT_EQ(token_from(environment({{"FLUVIAL_TOKEN", " abc "}}))->text, "abc");
  EXPECT_EQ(token_from(environment({{"FLUVIAL_TOKEN_FILE", file("t", token_, 0600)}}))->text, token_);
  EXPECT_EQ(token_from(environment({}))->text, "");
  const Error both = token_from(environment({{"FLUVIAL_TOKEN", "abc"}, {"FLUVIAL_TOKEN_FILE", "/t"}})).error();
  EXPECT_THAT(both.message, HasSubstr("both set"));
}

TEST_F(TokenFiles, ANewOneIsPrivateWholeAndOverwritesNothing) {
  const std::string path = folder_.file("token");
  {
    auto made = TokenFile::make(path);
    ASSERT_TRUE(made.ok()) << made.error().message;
    ASSERT_TRUE(made->write(token_).ok());
  }
  struct stat status = {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0600u);
  EXPECT_EQ(read_token_file(path)->text, token_);
  EXPECT_EQ(TokenFile::make(path).error().code, Code::kAlreadyExists);
  EXPECT_EQ(read_token_file(path)->text, token_);
  {
    ASSERT_TRUE(TokenFile::make(folder_.file("dropped")).ok());
  }
  EXPECT_FALSE(std::filesystem::exists(folder_.file("dropped")));
}

}  // namespace
}  // namespace fluvial::cli
