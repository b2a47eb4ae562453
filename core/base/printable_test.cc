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

TEST(Printable, NothingThatTurnsATextAroundOrHidesInItIsLeft) {
  for (const char* hidden : {"\u202e", "\u202a", "\u2066", "\u2069", "\u200f", "\u061c", "\u2028", "\u200b", "\ufeff",
                             "\u2060", "\U000e0041"}) {
    const std::string text = std::string("lo") + hidden + "ss";
    EXPECT_FALSE(is_printable(text)) << text;
    EXPECT_EQ(printable(text, 100), "lo ss") << text;
  }
  EXPECT_TRUE(is_printable("\u0645\u06cc\u200c\u062e")) << "Persian has a joiner within a word";
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
