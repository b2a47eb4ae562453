#include "cli/chrome_trace.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace fluvial::cli {
namespace {

const json::value kTimeline = json::parse(R"({
  "run": 1, "round": 17, "seconds": 4.0, "opened_at": "2026-01-31T12:00:00.123Z", "words": "round 17 took 4.0 s",
  "critical": [{"name": "train", "node": "hospital-b", "seconds": 3.5}, {"name": "fsync", "node": "coordinator", "seconds": 0.5}],
  "spans": [
    {"name": "train", "node": "hospital-b", "role": "site", "parent": "eu", "of": null, "start_s": 0.0, "end_s": 3.5},
    {"name": "fetch", "node": "hospital-b", "role": "site", "parent": "eu", "of": null, "start_s": -0.25, "end_s": -0.1},
    {"name": "stage", "node": "eu", "role": "aggregator", "parent": "coordinator", "of": "hospital-a", "start_s": 1, "end_s": 3},
    {"name": "stage", "node": "eu", "role": "aggregator", "parent": "coordinator", "of": "hospital-b", "start_s": 2, "end_s": 4},
    {"name": "stage", "node": "eu", "role": "aggregator", "parent": "coordinator", "of": "hospital-c", "start_s": 3, "end_s": 4},
    {"name": "fsync", "node": "coordinator", "role": "coordinator", "parent": null, "of": null, "start_s": 3.5, "end_s": 4}]
})");

struct Event {
  std::string name;
  std::int64_t process = 0;
  std::int64_t thread = 0;
  std::int64_t begin = 0;
  std::int64_t length = 0;
};

class ChromeTrace : public testing::Test {
 protected:
  ChromeTrace() {
    for (const json::value& one : trace_.at("traceEvents").as_array()) {
      const json::object& event = one.as_object();
      const std::string name(event.at("name").as_string());
      const std::int64_t process = event.at("pid").as_int64();
      const std::int64_t thread = event.at("tid").as_int64();
      if (event.at("ph").as_string() == "M") {
        const json::object& arguments = event.at("args").as_object();
        if (name == "process_name") processes_[process] = arguments.at("name").as_string();
        if (name == "thread_name") threads_[{process, thread}] = arguments.at("name").as_string();
      } else {
        EXPECT_EQ(event.at("ph").as_string(), "X");
        events_.push_back({name, process, thread, event.at("ts").as_int64(), event.at("dur").as_int64()});
      }
    }
  }
  const Event& find(const std::string& process, const std::string& name) const {
    for (const Event& event : events_) {
      if (event.name == name && processes_.at(event.process) == process) return event;
    }
    ADD_FAILURE() << "no " << name << " of " << process;
    return events_.front();
  }

  const json::object trace_ = chrome_trace(kTimeline);
  std::map<std::int64_t, std::string> processes_;
  std::map<std::pair<std::int64_t, std::int64_t>, std::string> threads_;
  std::vector<Event> events_;
};

TEST_F(ChromeTrace, AProcessIsANodeAndTheFirstIsTheRound) {
  const std::map<std::int64_t, std::string> expected = {
      {1, "round 17"}, {2, "coordinator"}, {3, "eu"}, {4, "hospital-b"}};
  EXPECT_EQ(processes_, expected);
  EXPECT_EQ(trace_.at("otherData").at("words").as_string(), "round 17 took 4.0 s");
}

TEST_F(ChromeTrace, TimesAreMicrosecondsFromTheEarliest) {
  const Event& fetch = find("hospital-b", "fetch");
  EXPECT_EQ(fetch.begin, 0);
  EXPECT_EQ(fetch.length, 150'000);
  const Event& train = find("hospital-b", "train");
  EXPECT_EQ(train.begin, 250'000);
  EXPECT_EQ(train.length, 3'500'000);
  EXPECT_EQ(find("round 17", "round 17").begin, 250'000) << "the round's opening";
}

TEST_F(ChromeTrace, TheCriticalPathIsOneAfterTheOther) {
  const Event& train = find("round 17", "train hospital-b");
  const Event& fsync = find("round 17", "fsync coordinator");
  EXPECT_EQ(train.begin + train.length, fsync.begin);
  EXPECT_EQ(fsync.begin + fsync.length, 4'250'000);
}

TEST_F(ChromeTrace, WhatOverlapsLiesOnThreadsOfItsOwn) {
  const Event& a = find("eu", "stage hospital-a");
  const Event& b = find("eu", "stage hospital-b");
  const Event& c = find("eu", "stage hospital-c");
  EXPECT_NE(a.thread, b.thread);
  EXPECT_EQ(a.thread, c.thread) << "it begins where the first has ended";
  EXPECT_EQ(threads_.at({a.process, a.thread}), "stage");
  EXPECT_EQ(threads_.at({b.process, b.thread}), "stage 2");
  for (const Event& event : events_) EXPECT_TRUE(threads_.contains({event.process, event.thread})) << event.name;
}

// A coordinator of another version, or somebody who wrote the file by hand.
TEST(ChromeTraceOfAnything, IsOfWhatItUnderstands) {
  for (const char* text :
       {"null", "{}", "[]", R"({"spans": [1, null, {"name": 3}], "critical": [{}], "round": "x"})"}) {
    const json::object trace = chrome_trace(json::parse(text));
    EXPECT_TRUE(trace.at("traceEvents").is_array()) << text;
  }
}

}  // namespace
}  // namespace fluvial::cli
