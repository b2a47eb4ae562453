// A journal on a disk that forgets what was not synced, and its tokens: for the tests of members and certificates.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/store/journal.h"
#include "core/store/memory_file_system.h"
#include "core/store/test_support.h"

namespace fluvial::store {

class JournalOfMembers : public testing::Test {
 protected:
  JournalOfMembers() {
    EXPECT_TRUE(files_.make_folder("/c").ok());
    crash_and_reopen();
  }
  void crash_and_reopen() {
    journal_.reset();
    files_.restart(Unsynced::kLost);
    auto opened = CoordinatorJournal::open(files_, "/c/journal.db");
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    journal_ = std::move(*opened);
  }
  void add_token(const std::string& id, const std::string& name, std::uint64_t uses_max = 1) {
    const TokenRow row{id, digest_of(id), Role::kSite, name, "eu", 1000, at(2000), std::nullopt, uses_max};
    ASSERT_TRUE(journal_->add_token(row).ok());
  }

  MemoryFileSystem files_;
  std::unique_ptr<CoordinatorJournal> journal_;
};

}  // namespace fluvial::store
