#include "coordinator/service/admin/events.h"

#include <gmock/gmock.h>

#include "core/tree/test_runtime.h"

namespace fluvial::coordinator::admin {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// What a watcher reads; takes nothing while it is held.
class Reader final : public net::LineWriter {
 public:
  explicit Reader(const net::Executor& strand) : released_(strand) {}
  net::Awaitable<Status> write_line(std::string line) override {
    lines_.put(std::move(line));
    while (held_) co_await released_.wait();
    co_return Status();
  }
  void hold() { held_ = true; }
  void release() {
    held_ = false;
    released_.notify_all();
  }
  std::string take() { return lines_.take(); }

 private:
  tree::Mailbox<std::string> lines_;
  net::AsyncSignal released_;
  bool held_ = false;
};

class EventsTest : public ::testing::Test {
 protected:
  struct Watcher {
    std::shared_ptr<Reader> reader;
    std::future<void> done;
  };

  ~EventsTest() override {
    runtime_.on_strand([this] { events_.close(); });
    for (Watcher& watcher : watchers_) watcher.done.get();
    if (looking_.valid()) looking_.get();
  }
  net::Awaitable<net::HttpResponse> answer(net::HttpRequest request) {
    co_return net::HttpResponse::json(request.path == "/v1/status" ? status_ : "{\"nodes\":" + nodes_ + "}");
  }
  // Begins to watch from behind `last_id`; its first line has been read.
  Reader& watch(std::string last_id = "") {
    Result<net::LineProducer> producer = runtime_.run(events_.stream(std::move(last_id)));
    EXPECT_TRUE(producer.ok());
    auto reader = std::make_shared<Reader>(runtime_.get().strand);
    watchers_.push_back(
        {reader, net::asio::co_spawn(runtime_.get().strand, (*producer)(reader), net::asio::use_future)});
    EXPECT_EQ(reader->take(), "retry: 1000\n");
    return *reader;
  }
  void open_round(std::uint64_t round) {
    const std::string json = "{\"event\":\"opened\",\"round\":" + std::to_string(round) + "}";
    runtime_.on_strand([&] { events_.publish({RunId(1), RoundId(round), false, json}); });
  }

  tree::TestRuntime runtime_{Role::kCoordinator};
  std::string status_ = R"({"run":null})";
  std::string nodes_ = R"([{"id":2,"name":"a"}])";
  Events events_{runtime_.get(), Epoch(5), [this](net::HttpRequest request) { return answer(std::move(request)); }};
  std::vector<Watcher> watchers_;
  std::future<void> looking_;
};

TEST_F(EventsTest, AStreamBeginsWithHowThingsStandAndGoesOn) {
  open_round(1);
  Reader& reader = watch();
  EXPECT_THAT(reader.take(),
              AllOf(StartsWith("id: 5-3\nevent: reset\ndata: {\"status\":{\"run\":null},\"nodes\":"
                               "[{\"id\":2,\"name\":\"a\"}],\"recent\":[{\"event\":\"opened\",\"round\":1,"
                               "\"at\":\""),
                    HasSubstr("}]}\n")));
  open_round(2);
  EXPECT_THAT(reader.take(), StartsWith("id: 5-4\nevent: opened\ndata: {\"event\":\"opened\",\"round\":2,\"at\":\""));
}

TEST_F(EventsTest, WhoComesBackHearsWhatItMissedAlone) {
  watch().take();  // 5-2
  open_round(1);
  open_round(2);
  status_ = R"({"run":7})";
  nodes_ = R"([{"id":3,"name":"b"}])";
  Reader& reader = watch("5-3");  // the first round's opening
  const std::string missed = reader.take();
  EXPECT_THAT(missed, Not(HasSubstr("\"round\":1,")));
  EXPECT_THAT(missed, StartsWith("id: 5-4\nevent: opened\n"));
  EXPECT_THAT(missed, HasSubstr("\nid: 5-5\nevent: status\ndata: {\"run\":7}\n"));
  EXPECT_THAT(missed, HasSubstr("event: node\ndata: {\"id\":3,\"name\":\"b\"}\n"));
  EXPECT_THAT(missed, HasSubstr("event: node\ndata: {\"id\":2,\"removed\":true}\n"));
  EXPECT_THAT(missed, Not(HasSubstr("\"name\":\"a\"")));
}

TEST_F(EventsTest, AnIdThatIsNotKnownBeginsAnew) {
  for (const char* id : {"4-1", "5-99", "x", "5-0-1"}) EXPECT_THAT(watch(id).take(), HasSubstr("event: reset\n")) << id;
}

TEST_F(EventsTest, WhatStandsIsLookedAtWhileSomebodyWatches) {
  looking_ = net::asio::co_spawn(runtime_.get().strand, events_.run(), net::asio::use_future);
  Reader& reader = watch();
  reader.take();
  runtime_.on_strand([this] { status_ = R"({"run":8})"; });
  EXPECT_THAT(reader.take(), HasSubstr("event: status\ndata: {\"run\":8}\n"));
}

TEST_F(EventsTest, SoManyMayWatch) {
  for (std::size_t i = 0; i < Events::kWatchersMax; ++i) watch();
  const auto refused = runtime_.run(events_.stream(""));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::kResourceExhausted);
}

TEST_F(EventsTest, OneCallerKeepsNobodyElseFromWatching) {
  std::vector<net::LineProducer> held;
  const auto begins = [&](const std::string& who) {
    Result<net::LineProducer> producer = runtime_.run(events_.stream("", who));
    if (producer.ok()) held.push_back(std::move(*producer));
    return producer.ok();
  };
  for (std::size_t i = 0; i < Events::kOfOneMax; ++i) EXPECT_TRUE(begins("user 9"));
  EXPECT_FALSE(begins("user 9"));
  EXPECT_TRUE(begins("operator 9"));
  EXPECT_TRUE(begins("user 10"));
  held.clear();
  EXPECT_TRUE(begins("user 9")) << "those have gone";
}

TEST_F(EventsTest, WhoLagsSoFarThatEventsAreGoneIsCutOff) {
  Reader& slow = watch();
  slow.take();
  runtime_.on_strand([&] { slow.hold(); });
  for (std::uint64_t round = 1; round <= 2'000; ++round) open_round(round);
  runtime_.on_strand([&] { slow.release(); });
  watchers_[0].done.get();  // it ends by itself
  watchers_.clear();
}

}  // namespace
}  // namespace fluvial::coordinator::admin
