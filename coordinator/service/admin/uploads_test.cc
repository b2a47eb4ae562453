#include "coordinator/service/admin/uploads.h"

#include <gmock/gmock.h>

#include "core/store/memory_file_system.h"

namespace fluvial::coordinator::admin {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr NodeId kUploader(9);
constexpr NodeId kOtherUploader(10);
const TimePoint kNow{std::chrono::seconds(100)};

TEST(Uploads, PartsComeInOrderAndTheLastMayComeAgain) {
  Uploads uploads("/data/uploads");
  EXPECT_EQ(uploads.begin(kUploader, "a", kNow).value(), "/data/uploads/a");
  EXPECT_EQ(uploads.part(kUploader, "a", 0, 100, kNow).value(), "/data/uploads/a");
  EXPECT_TRUE(uploads.part(kUploader, "a", 0, 100, kNow).ok());
  EXPECT_TRUE(uploads.part(kUploader, "a", 100, 50, kNow).ok());
  EXPECT_THAT(uploads.part(kUploader, "a", 151, 1, kNow).error().message, HasSubstr("at most 150"));
  EXPECT_EQ(uploads.part(kUploader, "a", 150, Uploads::kBytesMax, kNow).error().code, Code::kResourceExhausted);
}

TEST(Uploads, NobodyElseWritesOrTakesThem) {
  Uploads uploads("/u");
  ASSERT_TRUE(uploads.begin(kUploader, "a", kNow).ok());
  EXPECT_EQ(uploads.part(kOtherUploader, "a", 0, 1, kNow).error().code, Code::kNotFound);
  EXPECT_EQ(uploads.take(kOtherUploader, "a").error().code, Code::kNotFound);
  EXPECT_EQ(uploads.take(kUploader, "a").value(), "/u/a");
  EXPECT_EQ(uploads.take(kUploader, "a").error().code, Code::kNotFound) << "it is used once";
}

TEST(Uploads, SoManyAtOnceAndNobodyHoldsThemAll) {
  Uploads uploads("/u");
  ASSERT_TRUE(uploads.begin(kUploader, "0", kNow).ok());
  ASSERT_TRUE(uploads.begin(kUploader, "1", kNow).ok());
  EXPECT_EQ(uploads.begin(kUploader, "2", kNow).error().code, Code::kResourceExhausted);
  ASSERT_TRUE(uploads.begin(kOtherUploader, "2", kNow).ok()) << "anna keeps nobody else out";
  ASSERT_TRUE(uploads.begin(kOtherUploader, "3", kNow).ok());
  EXPECT_EQ(uploads.begin(NodeId(0), "4", kNow).error().code, Code::kResourceExhausted);
  ASSERT_TRUE(uploads.take(kUploader, "1").ok());
  EXPECT_TRUE(uploads.begin(NodeId(0), "4", kNow).ok());
}

TEST(Uploads, WhatIsLeftAloneIsGivenUp) {
  Uploads uploads("/u");
  ASSERT_TRUE(uploads.begin(kUploader, "a", kNow).ok());
  ASSERT_TRUE(uploads.begin(kUploader, "b", kNow).ok());
  const TimePoint late = kNow + Uploads::kLeftAlone;
  ASSERT_TRUE(uploads.part(kUploader, "b", 0, 1, late - std::chrono::seconds(1)).ok());
  EXPECT_THAT(uploads.left_alone(late - std::chrono::seconds(1)), IsEmpty());
  EXPECT_THAT(uploads.left_alone(late), ElementsAre("/u/a")) << "though nobody needs its place";
  EXPECT_EQ(uploads.part(kUploader, "a", 0, 1, late).error().code, Code::kNotFound);
  EXPECT_TRUE(uploads.part(kUploader, "b", 1, 1, late).ok());
}

TEST(Uploads, WhatAProcessBeforeLeftIsRemoved) {
  store::MemoryFileSystem files;
  ASSERT_TRUE(sweep_uploads(files, "/u").ok());
  ASSERT_TRUE(files.open("/u/left", store::OpenMode::kCreate).ok());
  ASSERT_TRUE(sweep_uploads(files, "/u").ok());
  EXPECT_TRUE(files.list("/u")->empty());
}

}  // namespace
}  // namespace fluvial::coordinator::admin
