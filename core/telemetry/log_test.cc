#include "core/telemetry/log.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <limits>

#include "core/base/testing.h"
#include "core/telemetry/log.h"
#include "core/telemetry/repeats.h"

namespace fluvial::telemetry {
namespace {

std::string text_of(const Record& record) { return format_record(record, LogFormat::kText, "T"); }
std::string json_of(const Record& record) { return format_record(record, LogFormat::kJson, "T"); }

TEST(Log, TextAndJson) {
  const Record record{Level::kInfo,
                      "round committed",
                      {{"round", RoundId(7)},
                       {"site", "hospital-a"},
                       {"loss", 0.25},
                       {"last", true},
                       {"delta", -3},
                       {"why", "two words"}}};
  EXPECT_EQ(text_of(record),
            "T info  round committed round=7 site=hospital-a loss=0.25 last=true delta=-3 why=\"two words\"");
  EXPECT_EQ(json_of(record),
            R"({"time":"T","level":"info","message":"round committed","round":7,"site":"hospital-a","loss":0.25,)"
            R"("last":true,"delta":-3,"why":"two words"})");
}

TEST(Log, WhatAPeerSendsCannotForgeALine) {
  const Record record{Level::kWarn,
                      "refused\nT error forged",
                      {{"name", "a\r\nT error x=1 \"quoted\" \\ \x1b[2J\x7f"}, {"empty", ""}, {"pair", "x=1"}}};
  for (const std::string& line : {text_of(record), json_of(record)}) {
    for (const char c : line) EXPECT_GE(static_cast<unsigned char>(c), 0x20);
    EXPECT_EQ(line.find('\x7f'), std::string::npos);
    EXPECT_NE(line.find("\\u001b[2J\\u007f"), std::string::npos) << line;
    EXPECT_NE(line.find("refused\\nT error forged"), std::string::npos) << line;
  }
  EXPECT_NE(text_of(record).find("empty=\"\" pair=\"x=1\""), std::string::npos) << text_of(record);
  EXPECT_NE(text_of(record).find("\\\"quoted\\\" \\\\ "), std::string::npos);
}

TEST(Log, BytesThatAreNoUtf8AreReplacedAndReorderingIsEscaped) {
  const auto value = [](std::string_view text) { return text_of({Level::kInfo, "m", {{"v", text}}}).substr(12); };
  EXPECT_EQ(value("gr\xc3\xbc\xc3\x9f"
                  "e"),
            "gr\xc3\xbc\xc3\x9f"
            "e");
  EXPECT_EQ(value("\xff"), "\xef\xbf\xbd");
  EXPECT_EQ(value("\xc3"), "\xef\xbf\xbd");
  EXPECT_EQ(value("\xc0\x8a"), "\xef\xbf\xbd\xef\xbf\xbd");          // an overlong newline
  EXPECT_EQ(value("\xed\xa0\x80").find('\xed'), std::string::npos);  // a surrogate
  EXPECT_EQ(value("a\xe2\x80\xae"
                  "b"),
            "a\\u202eb");
  EXPECT_EQ(value("\xc2\x9b"), "\\u009b");
  EXPECT_EQ(value("\xf0\x9f\x8c\x8a"), "\xf0\x9f\x8c\x8a");
  EXPECT_EQ(value(std::string(5000, 'x')), std::string(4096, 'x') + "...");
}

TEST(Log, NumbersThatJsonDoesNotKnow) {
  const Record record{Level::kInfo, "m", {{"loss", std::nan("")}, {"max", std::numeric_limits<double>::infinity()}}};
  EXPECT_EQ(json_of(record), R"({"time":"T","level":"info","message":"m","loss":null,"max":null})");
}

TEST(Log, BoundFieldsComeFirst) {
  const auto sink = std::make_shared<CaptureSink>();
  const Logger log(sink);
  const Logger run = log.with({{"run", RunId(1)}});
  run.with({{"site", "a"}}).info("joined", {{"weight", 3U}});
  log.debug("plain");
  const std::vector<Record> records = sink->records();
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].fields, (std::vector<Field>{{"run", 1U}, {"site", "a"}, {"weight", 3U}}));
  EXPECT_TRUE(records[1].fields.empty());
  EXPECT_TRUE(sink->contains("site=a weight=3"));
  EXPECT_FALSE(sink->contains("nothing"));
}

TEST(Log, WhoseLineItIsStandsInJsonAlone) {
  const auto sink = std::make_shared<CaptureSink>();
  const Logger log = Logger(sink).as({{"role", "site"}}).with({{"run", RunId(1)}}).as({{"node", "a"}});
  log.info("joined", {{"weight", 3U}});
  EXPECT_EQ(json_of(sink->records().at(0)),
            R"({"time":"T","level":"info","message":"joined","role":"site","node":"a","run":1,"weight":3})");
  EXPECT_EQ(text_of(sink->records().at(0)), "T info  joined run=1 weight=3");
}

TEST(Log, WarningsThatRepeatAreCountedInTheFile) {
  std::string path = "/tmp/fluvial-log-XXXXXX";
  ::close(::mkstemp(path.data()));
  {
    const Logger log = make_file_logger(path, Level::kInfo, LogFormat::kJson).value();
    for (int i = 0; i < 100; ++i) log.warn("connection refused; it may come again", {{"remote", i}});
  }
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  ::unlink(path.c_str());
  ASSERT_EQ(lines.size(), RepeatLimits{}.burst + 1);
  EXPECT_NE(lines.back().find("\"remote\":99,\"more\":95"), std::string::npos) << lines.back();
}

TEST(Log, FileKeepsLevelsFormatAndWholeLines) {
  std::string path = "/tmp/fluvial-log-XXXXXX";
  const int descriptor = ::mkstemp(path.data());
  ASSERT_GE(descriptor, 0);
  ::close(descriptor);
  {
    const Logger log = make_file_logger(path, Level::kInfo, LogFormat::kJson).value();
    const auto work = [&log](int worker) {
      for (int i = 0; i < 200; ++i) log.with({{"worker", worker}}).info("line", {{"i", i}});
    };
    std::thread other(work, 1);
    work(2);
    other.join();
    log.debug("below the level");
    null_logger().error("nowhere");
  }
  std::ifstream file(path);
  int lines = 0;
  for (std::string line; std::getline(file, line); ++lines) {
    EXPECT_TRUE(line.starts_with("{\"time\":\"20") && line.ends_with("}")) << line;
    EXPECT_EQ(line.find("below"), std::string::npos);
  }
  EXPECT_EQ(lines, 400);
  ::unlink(path.c_str());
  EXPECT_FALSE(make_file_logger("/proc/none/log", Level::kInfo, LogFormat::kText).ok());
}

TEST(Log, NamesOfLevelsAndFormats) {
  EXPECT_EQ(level_from_name("warn").value(), Level::kWarn);
  EXPECT_EQ(level_from_name("loud").error().code, Code::kInvalidArgument);
  EXPECT_EQ(log_format_from_name("json").value(), LogFormat::kJson);
  EXPECT_FALSE(log_format_from_name("xml").ok());
}

}  // namespace
}  // namespace fluvial::telemetry
