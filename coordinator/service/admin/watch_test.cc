// What a watcher of rounds is given, and when.
#include <gmock/gmock.h>

#include "coordinator/service/admin/test_api.h"

namespace fluvial::coordinator::admin {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr std::uint64_t kCommitted = 150;

// Takes a line at a time, when it is let.
class SlowReader final : public net::LineWriter {
 public:
  explicit SlowReader(const net::Executor& strand) : let_(strand) {}
  net::Awaitable<Status> write_line(std::string line) override {
    lines_.put(std::move(line));
    while (!is_fast_) co_await let_.wait();
    co_return Status();
  }
  std::string take() { return lines_.take(); }
  void read_on() {
    is_fast_ = true;
    let_.notify_all();
  }

 private:
  tree::Mailbox<std::string> lines_;
  net::AsyncSignal let_;
  bool is_fast_ = false;
};

class WatchTest : public ApiTest {
 protected:
  WatchTest() : ApiTest({add_watch}) {
    store::RunRow row;
    row.plan.name = "digits";
    row.plan.rounds = kCommitted + 1;
    row.schema = *round::Schema::make({{"w", round::DType::kF32, {4}}});
    run_ = journal_->create_run(row).value();
    for (std::uint64_t round = 1; round <= kCommitted; ++round) commit(round);
    begin();
  }
  void end_run() {
    EXPECT_TRUE(journal_->set_run_status(run_, store::RunStatus::kDone, "").ok());
    test_.on_strand([this] { report_->status_told(run_, RunStatus::kDone, ""); });
  }
  void commit(std::uint64_t round) {
    EXPECT_TRUE(journal_->open_attempt({run_, RoundId(round), AttemptId(1), Epoch(1), {}, 30, {}}).ok());
    store::CommitRow row;
    row.record = {.run = run_, .round = RoundId(round), .attempt = AttemptId(1)};
    EXPECT_TRUE(journal_->commit(row).ok());
  }
  // Every line to the end.
  std::vector<std::string> watch(const std::string& from) {
    const auto reader = std::make_shared<SlowReader>(runtime_.strand);
    test_.on_strand([&] { reader->read_on(); });
    test_.run(stream(from)(reader));
    std::vector<std::string> lines;
    for (lines.push_back(reader->take()); lines.back().find("\"state\"") == std::string::npos;) {
      if (lines.back().find("\"error\"") != std::string::npos) break;
      lines.push_back(reader->take());
    }
    return lines;
  }
  net::LineProducer stream(const std::string& from) { return begun(from, {.access = Access::kRead}).lines; }
  net::HttpResponse begun(const std::string& from, Caller caller) {
    net::HttpRequest request;
    request.method = "GET";
    request.path = "/v1/rounds/watch";
    request.query = {{"run", "1"}, {"from", from}};
    return test_.run(router_->answer(std::move(request), std::move(caller)));
  }
  RunId run_;
};

TEST_F(WatchTest, EveryRoundIsToldOnceAndThenHowTheRunEnded) {
  end_run();
  const std::vector<std::string> lines = watch("1");
  ASSERT_EQ(lines.size(), kCommitted + 1);
  for (std::uint64_t round = 1; round <= kCommitted; ++round) {
    EXPECT_THAT(lines[round - 1], HasSubstr("\"round\":" + std::to_string(round) + ","));
  }
  EXPECT_THAT(lines.back(), HasSubstr("\"done\""));
  EXPECT_EQ(watch("149").size(), 3U);
  EXPECT_EQ(watch("151").size(), 1U) << "how it ended alone";
}

TEST_F(WatchTest, OneCallerKeepsNobodyElseFromWatching) {
  end_run();
  const Caller one{.access = Access::kRead, .user = store::AuditUser{1001, 1, "one"}};
  const Caller another{.access = Access::kRead, .user = store::AuditUser{1002, 2, "another"}};
  std::vector<net::HttpResponse> watching;
  for (std::size_t i = 0; i < Watches::kOfOneMax; ++i) {
    watching.push_back(begun("1", one));
    EXPECT_EQ(watching.back().status, 200);
  }
  EXPECT_EQ(begun("1", one).status, 429);
  EXPECT_EQ(begun("1", another).status, 200);
  EXPECT_THAT(watch("1"), Not(IsEmpty()));
  watching.pop_back();
  EXPECT_EQ(begun("1", one).status, 200) << "one has ended";
}

TEST_F(WatchTest, ARoundThatIsNoNumberIsRefused) { EXPECT_THAT(watch("abc").front(), HasSubstr("from")); }

// Nothing is read ahead of somebody who does not take it: rounds that are committed meanwhile are among the later ones.
TEST_F(WatchTest, AWatchIsGivenItsRoundsInPages) {
  const auto reader = std::make_shared<SlowReader>(runtime_.strand);
  auto watching = net::asio::co_spawn(runtime_.strand, stream("1")(reader), net::asio::use_future);
  EXPECT_THAT(reader->take(), HasSubstr("\"round\":1,"));
  commit(kCommitted + 1);
  end_run();
  test_.on_strand([&] { reader->read_on(); });
  watching.get();
  std::string last;
  for (std::uint64_t round = 2; round <= kCommitted + 1; ++round) last = reader->take();
  EXPECT_THAT(last, HasSubstr("\"round\":151,"));
  EXPECT_THAT(reader->take(), HasSubstr("\"running\"")) << "as it was when it was asked for";
  EXPECT_THAT(reader->take(), HasSubstr("\"done\""));
}

}  // namespace
}  // namespace fluvial::coordinator::admin
