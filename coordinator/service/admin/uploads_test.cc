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

Uploads::Declared declared(const std::string& text) { return {text.size(), sha256(as_byte_span(text))}; }

// As the service does it: what is not known yet is hashed, and written.
Status give(Uploads& uploads, NodeId owner, const std::string& id, std::uint64_t from, const std::string& text,
            TimePoint now = kNow) {
  FLUVIAL_ASSIGN(const Uploads::Place place, uploads.part(owner, id, from, text.size()));
  EXPECT_EQ(place.path, uploads.path_of(id));
  place.digest->update(as_byte_span(text).subspan(place.known));
  return uploads.written(id, text.size() - place.known, now);
}

std::string begin(Uploads& uploads, NodeId owner, const std::string& text, const std::string& id) {
  const auto begun = uploads.begin(owner, declared(text), id, kNow);
  if (begun.ok() && begun->is_new) uploads.kept(id, kNow);
  return begun.ok() ? begun->id + " " + std::to_string(begun->received) : begun.error().message;
}

TEST(Uploads, PartsComeInOrderAndGoOnWhereAConnectionWasCut) {
  Uploads uploads("/data/uploads");
  EXPECT_EQ(begin(uploads, kUploader, "a model", "a"), "a 0");
  EXPECT_TRUE(give(uploads, kUploader, "a", 0, "a m").ok());
  EXPECT_EQ(begin(uploads, kUploader, "a model", "b"), "a 3") << "the same again: it says what has come";
  EXPECT_EQ(uploads.use(kUploader, "a").error().code, Code::kFailedPrecondition) << "it is not whole";
  EXPECT_THAT(give(uploads, kUploader, "a", 4, "del").error().message, HasSubstr("at most 3"));
  EXPECT_THAT(give(uploads, kUploader, "a", 3, "odels").error().message, HasSubstr("beyond the 7"));
  EXPECT_EQ(uploads.part(kUploader, "a", 0, UINT64_MAX).error().code, Code::kInvalidArgument);
  EXPECT_TRUE(give(uploads, kUploader, "a", 0, "X mo").ok()) << "of what is known nothing changes";
  EXPECT_TRUE(give(uploads, kUploader, "a", 4, "del").ok());
  EXPECT_EQ(begin(uploads, kUploader, "a model", "b"), "a 7");
  EXPECT_EQ(uploads.use(kUploader, "a").value(), "/data/uploads/a");
}

TEST(Uploads, OnePartAtATime) {
  Uploads uploads("/u");
  ASSERT_TRUE(uploads.begin(kUploader, declared("abcd"), "a", kNow).ok());
  EXPECT_EQ(uploads.part(kUploader, "a", 0, 2).error().code, Code::kUnavailable) << "its file is being made";
  uploads.kept("a", kNow);
  ASSERT_TRUE(uploads.part(kUploader, "a", 0, 2).ok());
  EXPECT_EQ(uploads.part(kUploader, "a", 0, 2).error().code, Code::kUnavailable) << "another connection's";
  EXPECT_THAT(uploads.left_alone(kNow + Uploads::kLeftAlone), IsEmpty());
  ASSERT_TRUE(uploads.written("a", 0, kNow).ok()) << "the disk did not take it";
  EXPECT_EQ(begin(uploads, kUploader, "abcd", "b"), "a 0");
  EXPECT_TRUE(give(uploads, kUploader, "a", 0, "abcd").ok());
}

TEST(Uploads, AWholeOneIsWhatWasDeclared) {
  Uploads uploads("/u");
  EXPECT_EQ(begin(uploads, kUploader, "abcd", "a"), "a 0");
  ASSERT_TRUE(give(uploads, kUploader, "a", 0, "ab").ok());
  const Status given = give(uploads, kUploader, "a", 2, "cX");
  EXPECT_EQ(given.error().code, Code::kDataLoss);
  EXPECT_THAT(given.error().message, HasSubstr("SHA-256 differs"));
}

TEST(Uploads, NobodyElseWritesOrTakesThem) {
  Uploads uploads("/u");
  EXPECT_EQ(begin(uploads, kUploader, "m", "a"), "a 0");
  EXPECT_EQ(begin(uploads, kOtherUploader, "m", "b"), "b 0") << "whoever has the same sends it, too";
  ASSERT_TRUE(give(uploads, kUploader, "a", 0, "m").ok());
  EXPECT_EQ(uploads.part(kOtherUploader, "a", 0, 1).error().code, Code::kNotFound);
  EXPECT_EQ(uploads.use(kOtherUploader, "a").error().code, Code::kNotFound);
  EXPECT_EQ(uploads.use(kUploader, "a").value(), "/u/a");
  EXPECT_EQ(uploads.use(kUploader, "a").error().code, Code::kUnavailable) << "a run is beginning with it";
  uploads.kept("a", kNow);
  EXPECT_TRUE(uploads.use(kUploader, "a").ok()) << "that run could not begin";
  uploads.drop("a");
  EXPECT_EQ(uploads.use(kUploader, "a").error().code, Code::kNotFound) << "it is used once";
}

TEST(Uploads, SoManyAtOnceAndNobodyHoldsThemAll) {
  Uploads uploads("/u");
  EXPECT_EQ(begin(uploads, kUploader, "0", "0"), "0 0");
  EXPECT_EQ(begin(uploads, kUploader, "1", "1"), "1 0");
  EXPECT_THAT(begin(uploads, kUploader, "2", "2"), HasSubstr("you have 2 models on their way in"));
  EXPECT_EQ(begin(uploads, kOtherUploader, "2", "2"), "2 0") << "anna keeps nobody else out";
  EXPECT_EQ(begin(uploads, kOtherUploader, "3", "3"), "3 0");
  EXPECT_THAT(begin(uploads, NodeId(0), "4", "4"), HasSubstr("too many"));
  uploads.drop("1");
  EXPECT_EQ(begin(uploads, NodeId(0), "4", "4"), "4 0");
}

TEST(Uploads, OneThatNoRunBeganWithGivesWay) {
  Uploads uploads("/u");
  EXPECT_EQ(begin(uploads, kUploader, "0", "0"), "0 0");
  EXPECT_EQ(begin(uploads, kUploader, "1", "1"), "1 0");
  ASSERT_TRUE(give(uploads, kUploader, "1", 0, "1").ok());
  EXPECT_THAT(uploads.begin(kUploader, declared("2"), "2", kNow).value().gave_way, ElementsAre("/u/1"));
  EXPECT_THAT(begin(uploads, kUploader, "3", "3"), HasSubstr("you have 2 models"));
}

TEST(Uploads, ThoseOfOneOwnerAreBoundedTogether) {
  Uploads uploads("/u", 10 << 20);
  EXPECT_THAT(uploads.begin(kUploader, {(10 << 20) + 1, {}}, "a", kNow).error().message,
              HasSubstr("a model of 11 MiB: what one operator has on its way in may have 10 MiB"));
  EXPECT_EQ(uploads.begin(kUploader, {UINT64_MAX, {}}, "a", kNow).error().code, Code::kResourceExhausted);
  ASSERT_TRUE(uploads.begin(kUploader, {6 << 20, {}}, "a", kNow).ok());
  EXPECT_THAT(uploads.begin(kUploader, {5 << 20, {}}, "b", kNow).error().message,
              HasSubstr("upload_bytes_max), and 6 MiB of yours"));
  EXPECT_TRUE(uploads.begin(kUploader, {4 << 20, {}}, "b", kNow).ok());
  EXPECT_TRUE(uploads.begin(kOtherUploader, {10 << 20, {}}, "c", kNow).ok());
  EXPECT_EQ(uploads.bytes_to_come(), 20u << 20);
  EXPECT_EQ(uploads.begin(kUploader, {0, {}}, "d", kNow).error().code, Code::kInvalidArgument);
}

TEST(Uploads, WhatIsLeftAloneIsGivenUp) {
  Uploads uploads("/u");
  EXPECT_EQ(begin(uploads, kUploader, "aa", "a"), "a 0");
  EXPECT_EQ(begin(uploads, kUploader, "bb", "b"), "b 0");
  const TimePoint late = kNow + Uploads::kLeftAlone;
  ASSERT_TRUE(give(uploads, kUploader, "b", 0, "b", late - std::chrono::seconds(1)).ok());
  EXPECT_THAT(uploads.left_alone(late - std::chrono::seconds(1)), IsEmpty());
  EXPECT_THAT(uploads.left_alone(late), ElementsAre("/u/a")) << "though nobody needs its place";
  EXPECT_EQ(give(uploads, kUploader, "a", 0, "a").error().code, Code::kNotFound);
  EXPECT_TRUE(give(uploads, kUploader, "b", 1, "b", late).ok());
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
