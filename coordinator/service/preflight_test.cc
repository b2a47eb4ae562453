#include "coordinator/service/preflight.h"

#include <gmock/gmock.h>

#include <memory>

#include "core/store/memory_file_system.h"

namespace fluvial::coordinator {
namespace {

using testing::HasSubstr;

config::CoordinatorSettings in_folder(const std::string& folder) {
  config::CoordinatorSettings settings;
  settings.data_dir = folder;
  settings.federation = "hospitals";
  return settings;
}

TEST(Preflight, AMembersFolderIsNoCoordinators) {
  store::MemoryFileSystem files;
  EXPECT_TRUE(check_place(in_folder("/d"), files).ok()) << "it may not be there yet";
  ASSERT_TRUE(files.make_folder("/d/identity").ok());
  const Status refused = check_place(in_folder("/d"), files);
  EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
  EXPECT_THAT(refused.error().message,
              HasSubstr("/d is a member's folder (it holds identity/): a coordinator needs one of its own"));
  ASSERT_TRUE(store::write_file_atomically(files, "/d/journal.sqlite", {}).ok());
  EXPECT_TRUE(check_place(in_folder("/d"), files).ok()) << "of a federation that was founded beside a member";
}

TEST(Preflight, UsersAreThoseOfTheMachine) {
  store::MemoryFileSystem files;
  config::CoordinatorSettings settings = in_folder("/d");
  settings.admin_users = "root";
  EXPECT_TRUE(check_place(settings, files).ok());
  settings.admin_readers = "@no-such-group";
  const Status refused = check_place(settings, files);
  EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
  EXPECT_THAT(refused.error().message, HasSubstr("admin_readers = '@no-such-group': this machine has no group"));
}

TEST(Preflight, AFederationThatIsFoundedIsLogged) {
  store::MemoryFileSystem files;
  ASSERT_TRUE(files.make_folder("/d").ok());
  const auto journal = store::CoordinatorJournal::open(files, "/d/journal.sqlite").value();
  const auto sink = std::make_shared<telemetry::CaptureSink>();
  ASSERT_TRUE(found_federation(*journal, in_folder("/d"), WallTime(), telemetry::Logger(sink)).ok());
  EXPECT_EQ(journal->federation().value()->name, "hospitals");
  EXPECT_TRUE(sink->contains("a new federation is founded"));
  EXPECT_TRUE(sink->contains("hospitals"));
  EXPECT_TRUE(sink->contains("/d"));
}

}  // namespace
}  // namespace fluvial::coordinator
