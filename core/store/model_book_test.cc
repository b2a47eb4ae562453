#include "core/store/model_book.h"

#include <gmock/gmock.h>

#include "core/store/journal_test_support.h"

namespace fluvial::store {
namespace {

using ::testing::ElementsAre;

class ModelBookTest : public JournalOfMembers {
 protected:
  ModelBookTest() {
    const round::Schema schema = round::Schema::make({{"w", round::DType::kF32, {2}}}).value();
    run_ = journal_->create_run({RunId(), {}, schema, digest_of("initial"), RunStatus::kRunning, "", at(1), RunId()})
               .value();
  }
  Status label(std::uint64_t round, const std::string& name) {
    return ModelBook(*journal_).add_label(run_, row(round, name));
  }
  static LabelRow row(std::uint64_t round, const std::string& name) {
    return {name, RoundId(round), digest_of(std::to_string(round)), at(7)};
  }
  RunId run_;
};

TEST_F(ModelBookTest, ALabelStaysWithItsModel) {
  ASSERT_TRUE(label(2, "one").ok());
  EXPECT_TRUE(label(2, "one").ok()) << "it has it already";
  EXPECT_EQ(label(3, "one").error().code, Code::kAlreadyExists);
  ASSERT_TRUE(label(3, "two").ok());
  ASSERT_TRUE(label(2, "another").ok());
  crash_and_reopen();
  EXPECT_THAT(ModelBook(*journal_).labels(run_).value(), ElementsAre(row(2, "another"), row(2, "one"), row(3, "two")));
  ASSERT_TRUE(ModelBook(*journal_).remove_label(run_, "one").ok());
  EXPECT_EQ(ModelBook(*journal_).remove_label(run_, "one").error().code, Code::kNotFound);
  EXPECT_TRUE(label(3, "one").ok());
}

TEST_F(ModelBookTest, ARunHasABoundedNumberOfLabels) {
  for (std::size_t i = 0; i < kLabelsMax; ++i) ASSERT_TRUE(label(1, "l" + std::to_string(i)).ok());
  EXPECT_EQ(label(1, "more").error().code, Code::kResourceExhausted);
  EXPECT_TRUE(label(1, "l0").ok()) << "this one is there";
}

}  // namespace
}  // namespace fluvial::store
