#include "coordinator/logic/admissions.h"

#include <gtest/gtest.h>

namespace fluvial::coordinator {
namespace {

class AdmissionsTest : public testing::Test {
 protected:
  std::optional<std::string> comes(const Admissions::Came& came, NodeId node = kSite) {
    return admissions_.admitted(node, came, now_);
  }
  static constexpr NodeId kSite{3};
  const Admissions::Came usual_{Digest{std::byte{1}}, 7, "192.0.2.7"};
  Admissions admissions_;
  TimePoint now_{};
};

TEST_F(AdmissionsTest, WhatIsNewIsSaidOnce) {
  EXPECT_EQ(comes(usual_), "the first time since the coordinator started");
  for (int i = 0; i < 1'000; ++i) EXPECT_EQ(comes(usual_), std::nullopt) << "a session that flaps";
  Admissions::Came other = usual_;
  other.network = "198.51.100.1";
  EXPECT_EQ(comes(other), "another address");
  EXPECT_EQ(comes(other), std::nullopt);
  other.process = 8;
  other.key = Digest{std::byte{2}};
  EXPECT_EQ(comes(other), "another key, another process");
}

TEST_F(AdmissionsTest, ANodeThatIsAnotherEachTimeIsCountedAndHidesNobody) {
  Admissions::Came flapping = usual_;
  std::size_t written = 0;
  for (int i = 0; i < 1'000; ++i, ++flapping.process) written += comes(flapping).has_value() ? 1 : 0;
  EXPECT_EQ(written, 4U);
  EXPECT_EQ(comes(usual_, NodeId(4)), "the first time since the coordinator started");
  now_ += std::chrono::hours(1);
  EXPECT_EQ(comes(flapping), "another process; 996 more before it");
}

TEST_F(AdmissionsTest, WhatCouldNotBeWrittenIsSaidAgain) {
  EXPECT_TRUE(comes(usual_));
  admissions_.forget(kSite);
  EXPECT_EQ(comes(usual_), "the first time since the coordinator started");
}

}  // namespace
}  // namespace fluvial::coordinator
