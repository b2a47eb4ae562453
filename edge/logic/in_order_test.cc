#include "edge/logic/in_order.h"

#include <gmock/gmock.h>

#include <string>

namespace fluvial::edge {
namespace {

using Deed = std::variant<int, std::string>;

struct Doer {
  void carry_out(std::vector<Deed> effects) {
    order.carry_out(std::move(effects), [this](const auto& effect) { apply(effect); });
  }
  void apply(int count) {
    done.push_back(std::to_string(count));
    if (count > 0) carry_out({count - 1, "after " + std::to_string(count)});
    done.push_back("end of " + std::to_string(count));
  }
  void apply(const std::string& what) { done.push_back(what); }

  InOrder<Deed> order;
  std::vector<std::string> done;
};

TEST(InOrderTest, WhatIsDecidedMeanwhileComesAfterWhatWasDecidedBefore) {
  Doer doer;
  doer.carry_out({1, "second"});
  EXPECT_THAT(doer.done, testing::ElementsAre("1", "end of 1", "second", "0", "end of 0", "after 1"));
  doer.carry_out({"again"});
  EXPECT_EQ(doer.done.back(), "again");
}

}  // namespace
}  // namespace fluvial::edge
