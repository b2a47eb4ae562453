#include "coordinator/service/admin/event_log.h"

#include <gtest/gtest.h>

namespace fluvial::coordinator::admin {
namespace {

std::vector<std::string> texts(const std::vector<LoggedEvent>& events) {
  std::vector<std::string> texts;
  for (const LoggedEvent& event : events) texts.push_back(event.name + " " + event.json);
  return texts;
}
using Texts = std::vector<std::string>;

TEST(EventLog, WhoWatchedBeforeGoesOnWhereTheyWere) {
  EventLog log(Epoch(7));
  log.happened("opened", "1");
  const std::string seen = log.id_of(log.last());
  EXPECT_EQ(seen, "7-1");
  log.happened("committed", "2");
  log.happened("opened", "3");
  ASSERT_EQ(log.number_of(seen), 1u);
  EXPECT_EQ(texts(log.after(1, 100)), (Texts{"committed 2", "opened 3"}));
  EXPECT_EQ(texts(log.after(1, 1)), (Texts{"committed 2"}));
  EXPECT_EQ(log.number_of("7-3"), 3u) << "nothing is behind it, and nothing is missing";
  EXPECT_TRUE(log.after(3, 100).empty());
}

TEST(EventLog, AnIdThatNamesNothingHereIsUnknown) {
  EventLog log(Epoch(7));
  log.happened("opened", "1");
  for (const char* id : {"", "7", "7-", "-1", "7-2", "6-1", "8-0", "7-1x", "7--1", "x-1", "7-99999999999999999999"}) {
    EXPECT_EQ(log.number_of(id), std::nullopt) << id;
  }
}

TEST(EventLog, KeepsSoManyOfWhatHappened) {
  EventLog log(Epoch(1), {.events_max = 2});
  for (const char* json : {"1", "2", "3"}) log.happened("opened", json);
  EXPECT_EQ(texts(log.recent(100)), (Texts{"opened 2", "opened 3"}));
  EXPECT_EQ(texts(log.recent(1)), (Texts{"opened 3"}));
  EXPECT_EQ(log.number_of("1-0"), std::nullopt) << "the first is gone: what came after 0 is not all here";
  EXPECT_EQ(log.number_of("1-1"), 1u) << "all that came after the first is";
}

TEST(EventLog, KeepsSoManyBytesAndTheLastAlways) {
  EventLog log(Epoch(1), {.bytes_max = 10});
  log.happened("opened", std::string(6, 'a'));
  log.happened("opened", std::string(4, 'b'));
  EXPECT_EQ(log.recent(9).size(), 2u);
  log.happened("opened", "c");
  EXPECT_EQ(log.recent(9).size(), 2u);
  log.happened("opened", std::string(100, 'd'));
  EXPECT_EQ(log.recent(9).size(), 1u);
}

TEST(EventLog, OfWhatStandsThereIsTheLastAlone) {
  EventLog log(Epoch(1), {.events_max = 2});
  EXPECT_TRUE(log.stands("node", "node/1", "here"));
  EXPECT_TRUE(log.stands("status", "status", "a"));
  EXPECT_FALSE(log.stands("status", "status", "a"));
  EXPECT_EQ(log.last(), 2u);
  EXPECT_TRUE(log.stands("status", "status", "b"));
  EXPECT_EQ(texts(log.after(0, 100)), (Texts{"node here", "status b"}));
  EXPECT_EQ(texts(log.after(1, 100)), (Texts{"status b"}));
  for (int i = 0; i < 5; ++i) log.happened("opened", "x");
  EXPECT_EQ(texts(log.standing("node")), (Texts{"node here"})) << "what happens does not push it out";
  EXPECT_EQ(log.number_of("1-2"), std::nullopt) << "events are missing behind it";
}

TEST(EventLog, WhatStandsNoMoreIsForgotten) {
  EventLog log(Epoch(1));
  log.stands("node", "node/1", "here");
  log.forget("node/1");
  log.forget("node/2");
  EXPECT_TRUE(log.after(0, 100).empty());
  EXPECT_TRUE(log.subjects().empty());
  EXPECT_TRUE(log.stands("node", "node/1", "here")) << "it is there again";
}

}  // namespace
}  // namespace fluvial::coordinator::admin
