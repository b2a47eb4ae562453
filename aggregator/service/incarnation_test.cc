#include "aggregator/service/incarnation.h"

#include <gtest/gtest.h>

#include <vector>

#include "core/store/memory_file_system.h"

namespace fluvial::aggregator {
namespace {

constexpr const char* kPath = "/aggregator/incarnation";

class IncarnationTest : public testing::Test {
 protected:
  IncarnationTest() { EXPECT_TRUE(files_.make_folder("/aggregator").ok()); }
  void write(const std::vector<std::byte>& bytes) {
    const ByteSpan parts[] = {ByteSpan(bytes)};
    ASSERT_TRUE(store::write_file_atomically(files_, kPath, parts).ok());
  }
  store::MemoryFileSystem files_;
};

TEST_F(IncarnationTest, GrowsWithEachStartAlsoOverAPowerCut) {
  for (std::uint64_t start = 1; start <= 3; ++start) {
    EXPECT_EQ(next_incarnation(files_, kPath).value(), Incarnation(start));
    files_.restart(store::Unsynced::kLost);
  }
}

TEST_F(IncarnationTest, ADamagedFileIsAnErrorAndStaysAsItIs) {
  const std::byte one{1}, full{0xff};
  for (const std::vector<std::byte>& damaged :
       {std::vector<std::byte>{}, std::vector<std::byte>(7, one), std::vector<std::byte>(9, one),
        std::vector<std::byte>(200, one), std::vector<std::byte>(8), std::vector<std::byte>(8, full)}) {
    write(damaged);
    for (int start = 0; start < 2; ++start) {
      const Result<Incarnation> next = next_incarnation(files_, kPath);
      ASSERT_FALSE(next.ok()) << damaged.size();
      EXPECT_EQ(next.error().code, Code::kDataLoss);
      EXPECT_NE(next.error().message.find(kPath), std::string::npos) << next.error().message;
    }
  }
  ASSERT_TRUE(files_.remove(kPath).ok());
  EXPECT_EQ(next_incarnation(files_, kPath).value(), Incarnation(1)) << "a person has decided";
}

}  // namespace
}  // namespace fluvial::aggregator
