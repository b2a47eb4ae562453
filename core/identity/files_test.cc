// Which folders are fsynced: this executable replaces fsync by a function that records the path it was called for.
#include "core/identity/files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "core/base/testing.h"
#include "core/identity/authority.h"
#include "core/identity/credentials.h"
#include "core/identity/testing.h"

namespace {
std::vector<std::string> synced;  // paths, in order
}

extern "C" int fsync(int descriptor) {
  synced.push_back(std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(descriptor)).string());
  return static_cast<int>(::syscall(SYS_fsync, descriptor));
}

namespace fluvial::identity {
namespace {

class IdentityFiles : public testing::Test {
 protected:
  const TemporaryFolder folder_;
  const std::string root_ = std::filesystem::canonical(folder_.path()).string();
};

bool was_synced(const std::string& path) { return std::ranges::find(synced, path) != synced.end(); }

TEST_F(IdentityFiles, AFolderThatIsThereAlreadyIsMadeDurableToo) {
  ASSERT_EQ(::mkdir((root_ + "/ca").c_str(), 0700), 0);  // by a process that was killed before the fsync
  synced.clear();
  ASSERT_TRUE(make_private_folder(root_ + "/ca").ok());
  EXPECT_TRUE(was_synced(root_));
}

TEST_F(IdentityFiles, AnAuthorityThatIsOpenedIsDurableBeforeItSigns) {
  const std::string home = root_ + "/ca";
  const WallTime now = std::chrono::floor<std::chrono::milliseconds>(std::chrono::system_clock::now());
  ASSERT_TRUE(CertificateAuthority::create_or_open(home, "clinics", now).ok());
  synced.clear();
  ASSERT_TRUE(CertificateAuthority::create_or_open(home, "clinics", now).ok());
  EXPECT_TRUE(was_synced(home)) << "its files may be of somebody who was killed between rename and fsync";
}

// A member that was told that it is enrolled, or has spoken to others, is still a member after a power cut.
TEST_F(IdentityFiles, CredentialsThatAreLoadedAreDurable) {
  const std::string home = root_ + "/identity";
  const TestPki pki;
  ASSERT_TRUE(save_credentials(pki.credentials(Role::kSite, NodeId(7), "hospital-a"), home).ok());
  EXPECT_TRUE(was_synced(home));
  EXPECT_TRUE(was_synced(root_)) << "its own name";
  synced.clear();
  ASSERT_TRUE(load_credentials(home).ok());
  EXPECT_TRUE(was_synced(home)) << "they may be of somebody who was killed between rename and fsync";
}

}  // namespace
}  // namespace fluvial::identity
