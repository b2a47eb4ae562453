#include "core/aggregate/down.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fluvial::aggregate {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Down, IsWrittenOutInFull) {
  for (const std::string text : {"fp32", "fp16", "bf16", "delta:fp16", "delta:int8:block=512,rounding=nearest"}) {
    EXPECT_EQ(to_string(parse_down(text).value()), text);
  }
  EXPECT_EQ(to_string(parse_down("delta:int8").value()), "delta:int8:block=256,rounding=stochastic");
  EXPECT_EQ(parse_down("fp32")->kind, Down::Kind::kWhole);
  EXPECT_EQ(parse_down("bf16")->kind, Down::Kind::kRounded);
  EXPECT_EQ(parse_down("delta:topk:ratio=0.01")->kind, Down::Kind::kDelta);
}

// What leaves out more than it was given would leave ever more out.
TEST(Down, RefusesWhatDoesNotComeNearer) {
  for (const std::string text : {"", "int8", "topk", "delta:", "delta:fp32", "delta:qsgd", "delta:terngrad",
                                 "delta:dgc", "delta:powersgd", "delta:sign:mode=vote", "delta:ring:max=0.05",
                                 "delta:randk:mode=unbiased", "fp16:zstd=3", "delta:delta:int8", "delta:int9"}) {
    const Result<Down> parsed = parse_down(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.error().code, Code::kInvalidArgument) << text;
    EXPECT_THAT(parsed.error().message, HasSubstr("expected")) << text;
  }
}

// A person who reads the error knows what to write instead, and what was wrong with this.
TEST(Down, AnErrorHasTheWholeTextAndTheReason) {
  const auto error = [](const std::string& text) { return parse_down(text).error().message; };
  EXPECT_THAT(error("delta:qsgd"),
              AllOf(HasSubstr("'delta:qsgd'"), HasSubstr("add up"), HasSubstr("as in delta:int8")));
  EXPECT_THAT(error("int8"), AllOf(HasSubstr("with delta: before it"), HasSubstr("as in delta:int8")));
  EXPECT_THAT(error("qsgd"), Not(HasSubstr("with delta: before it")));
  EXPECT_THAT(error("delta:fp32"), HasSubstr("saves nothing"));
  EXPECT_THAT(error("delta:int9"), AllOf(HasSubstr("'delta:int9'"), Not(HasSubstr("powersgd")))) << "names what fits";
  EXPECT_THAT(error("delta:topk:ratio=2"), HasSubstr("ratio")) << "the option's own bounds";
}

TEST(Down, AModelIsNoDifference) {
  EXPECT_TRUE(make_down_codec("fp16", false).ok());
  EXPECT_TRUE(make_down_codec("fp16", true).ok());
  EXPECT_FALSE(make_down_codec("int8", false).ok());
  EXPECT_TRUE(make_down_codec("int8", true).ok());
  EXPECT_FALSE(make_down_codec(std::string(65, 'x'), true).ok());
}

}  // namespace
}  // namespace fluvial::aggregate
