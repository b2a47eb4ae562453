#include "core/local/socket.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "core/local/test_support.h"

namespace fluvial::local {
namespace {

mode_t mode_of(const std::filesystem::path& path) {
  struct stat status{};
  EXPECT_EQ(::lstat(path.c_str(), &status), 0);
  return status.st_mode & 0777;
}

TEST(Socket, IsItsOwnersAloneAndSoIsTheFolderMadeForIt) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder / "state/agent.sock";
  const Result<UniqueFd> listener = listen_unix(path);
  ASSERT_TRUE(listener.ok()) << listener.error().to_string();
  EXPECT_EQ(mode_of(path), 0600u);
  EXPECT_EQ(mode_of(path.parent_path()), 0700u);
  EXPECT_TRUE(connect_unix(path).ok());
}

TEST(Socket, AFileThatNobodyListensOnIsReplacedAndALiveOneIsNot) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder / "agent.sock";
  {
    const Result<UniqueFd> first = listen_unix(path);
    ASSERT_TRUE(first.ok());
    const Result<UniqueFd> second = listen_unix(path);
    ASSERT_FALSE(second.ok());
    EXPECT_EQ(second.error().code, Code::kAlreadyExists);
    EXPECT_TRUE(connect_unix(path).ok());
  }
  const Result<UniqueFd> nobody = connect_unix(path);
  ASSERT_FALSE(nobody.ok());
  EXPECT_EQ(nobody.error().code, Code::kUnavailable);
  EXPECT_TRUE(listen_unix(path).ok());
}

TEST(Socket, WhatIsNoSocketStays) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder / "notes.txt";
  std::ofstream(path) << "keep me";
  const Result<UniqueFd> listener = listen_unix(path);
  ASSERT_FALSE(listener.ok());
  EXPECT_EQ(listener.error().code, Code::kAlreadyExists);
  EXPECT_EQ(std::filesystem::file_size(path), 7u);
}

TEST(Socket, APathTooLongSaysSo) {
  const Result<UniqueFd> listener = listen_unix("/tmp/" + std::string(120, 'x'));
  ASSERT_FALSE(listener.ok());
  EXPECT_EQ(listener.error().code, Code::kInvalidArgument);
  EXPECT_NE(listener.error().message.find("at most 107"), std::string::npos) << listener.error().message;
  EXPECT_FALSE(connect_unix("").ok());
}

TEST(Socket, OnlyItsOwnFileIsRemoved) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder / "agent.sock";
  const Result<UniqueFd> listener = listen_unix(path);
  const ino_t inode = socket_file_inode(path).value();
  remove_socket_file(path, inode + 1);
  EXPECT_TRUE(std::filesystem::exists(path));
  remove_socket_file(path, inode);
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(Socket, TheSameUserAndRootMayAttach) {
  EXPECT_TRUE(peer_may_attach(1000, 1000));
  EXPECT_TRUE(peer_may_attach(0, 1000));
  EXPECT_FALSE(peer_may_attach(1001, 1000));
  EXPECT_FALSE(peer_may_attach(1000, 0));
}

}  // namespace
}  // namespace fluvial::local
