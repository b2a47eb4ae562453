#include "cli/format.h"

#include <gtest/gtest.h>

#include <limits>

#include "cli/table.h"
#include "cli/terminal.h"

namespace fluvial::cli {
namespace {

TEST(Format, Counts) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1797), "1,797");
  EXPECT_EQ(format_count(10'000'000), "10,000,000");
}

TEST(Format, Bytes) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(999), "999 B");
  EXPECT_EQ(format_bytes(1000), "1.0 KiB");
  EXPECT_EQ(format_bytes(1.5 * 1024 * 1024), "1.5 MiB");
}

TEST(Format, Seconds) {
  EXPECT_EQ(format_seconds(0.0082), "8.2 ms");
  EXPECT_EQ(format_seconds(1.254), "1.25 s");
  EXPECT_EQ(format_seconds(59.999), "1 min 00 s");
  EXPECT_EQ(format_seconds(200), "3 min 20 s");
  EXPECT_EQ(format_seconds(7500), "2 h 05 min");
  EXPECT_EQ(format_seconds(-1), "-");
}

TEST(Format, MetricsAndPercents) {
  EXPECT_EQ(format_percent(0.97333), "97.3 %");
  EXPECT_EQ(format_metric(0.123456), "0.1235");
  EXPECT_EQ(format_metric(std::numeric_limits<double>::quiet_NaN()), "-");
}

TEST(Format, Times) {
  EXPECT_EQ(format_time("2026-01-31T12:00:00.123Z"), "2026-01-31 12:00:00 UTC");
  EXPECT_EQ(format_time("yesterday"), "yesterday");
  EXPECT_EQ(format_time(""), "-");
}

TEST(Format, WidthsAreCharactersNotBytes) {
  EXPECT_EQ(display_width("Zürich"), 6U);
  EXPECT_EQ(display_width("\033[31mred\033[0m"), 3U);
  EXPECT_EQ(shorten("Zürich-hospital", 8), "Zürich..");
  EXPECT_EQ(shorten("short", 8), "short");
}

TEST(Table, ColumnsAlign) {
  Table table({{"NAME"}, {"ROUNDS", Align::kRight}, {"NOTE"}});
  table.add({"a", "1", ""});
  table.add({"Zürich", "1,000", "fine"});
  EXPECT_EQ(table.render(Terminal::plain()),
            "NAME    ROUNDS  NOTE\n"
            "a            1\n"
            "Zürich   1,000  fine\n");
}

TEST(Terminal, BarsFill) {
  EXPECT_EQ(progress_bar(0, 6), "[>   ]");
  EXPECT_EQ(progress_bar(0.5, 6), "[==> ]");
  EXPECT_EQ(progress_bar(1, 6), "[====]");
  EXPECT_EQ(progress_bar(2, 6), "[====]");
}

TEST(Terminal, AFileGetsNoColours) {
  std::FILE* file = std::tmpfile();
  const Terminal terminal = Terminal::of(file);
  EXPECT_FALSE(terminal.is_interactive());
  EXPECT_EQ(terminal.red("x"), "x");
  std::fclose(file);
}

TEST(Format, SinceIsATimeOfTodayOrADay) {
  EXPECT_EQ(format_since("2026-01-31T03:12:40.123Z", "2026-01-31T09:00:00Z"), "03:12 UTC");
  EXPECT_EQ(format_since("2026-01-30T03:12:40.123Z", "2026-01-31T09:00:00Z"), "2026-01-30");
  EXPECT_EQ(format_since("", "2026-01-31T09:00:00Z"), "-");
  EXPECT_EQ(format_since("soon", "2026-01-31T09:00:00Z"), "soon");
}

}  // namespace
}  // namespace fluvial::cli
