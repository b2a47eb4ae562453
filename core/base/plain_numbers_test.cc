#include "core/base/plain_numbers.h"

#include <gtest/gtest.h>

namespace fluvial {
namespace {

TEST(PlainNumbers, AreAsAPersonWritesThem) {
  EXPECT_EQ(plain_numbers(R"({"lr":5E-1,"max":1.024E3,"zero":0E0,"least":-2.5e-05,"momentum":9E-1})"),
            R"({"lr":0.5,"max":1024.0,"zero":0.0,"least":-0.000025,"momentum":0.9})");
  EXPECT_EQ(plain_numbers("[1E0,1E14]"), "[1.0,100000000000000.0]");
}

TEST(PlainNumbers, LeaveTheRestAlone) {
  const std::string same = R"([18446744073709551615,-3,0.25,1E300,5E-9,"5E-1","a\"5E-1",true,null,"\\"])";
  EXPECT_EQ(plain_numbers(same), same);
  EXPECT_EQ(plain_numbers(R"("cut off 5E-1)"), R"("cut off 5E-1)");
  EXPECT_EQ(plain_numbers(R"("cut off \)"), R"("cut off \)");
  EXPECT_EQ(plain_numbers("1E-E"), "1E-E");
  EXPECT_EQ(plain_numbers(""), "");
}

}  // namespace
}  // namespace fluvial
