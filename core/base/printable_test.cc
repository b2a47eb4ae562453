#include "core/base/printable.h"

#include <gtest/gtest.h>

namespace fluvial {
namespace {

TEST(Printable, LeavesTextsOfPeopleAsTheyAre) {
  for (const char* text : {"", "fc1.weight", "Klinikum Köln", "病院", "a\xf0\x9f\x98\x80z"}) {
    EXPECT_EQ(printable(text, 100), text);
    EXPECT_TRUE(is_printable(text)) << text;
  }
}

TEST(Printable, NothingThatCommandsATerminalOrBeginsALineIsLeft) {
  EXPECT_EQ(printable("a\nb\r\x1b[2J\x7f", 100), "a b  [2J ");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m",
                      100),
            " 31m");  // a C1 control sequence introducer
  EXPECT_EQ(printable(std::string_view("\0", 1), 100), " ");
}

TEST(Printable, WhatIsNoUtf8IsReplaced) {
  for (const char* text : {"\xff", "\x80", "\xc0", "\xf8"}) EXPECT_EQ(printable(text, 100), "?") << text;
  EXPECT_EQ(printable("\xc0\xaf", 100), "??");            // overlong
  EXPECT_EQ(printable("\xed\xa0\x80", 100), "???");       // a surrogate
  EXPECT_EQ(printable("\xf4\x90\x80\x80", 100), "????");  // beyond the last character
  EXPECT_EQ(printable("\xe7\x97", 100), "??");            // cut short
}

TEST(Printable, CutsBetweenCharacters) {
  EXPECT_EQ(printable("abcdef", 3), "abc");
  EXPECT_EQ(printable("aKöln", 4), "aKö");
  EXPECT_EQ(printable("aKöln", 3), "aK");
}

}  // namespace
}  // namespace fluvial
