#include "simulator/node/node.h"

#include <gtest/gtest.h>

#include <boost/asio/awaitable.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/net/deadline.h"
#include "core/net/timer.h"

namespace fluvial::simulator {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A record of what every process of a town did, which outlives the process.
struct Diary {
  std::vector<std::string> lines;
  TimePoint at;
  int taken_down = 0;
};

// Its destructor runs when its coroutine ends or is taken down.
struct Guard {
  explicit Guard(Diary& diary) : diary_(diary) {}
  ~Guard() { ++diary_.taken_down; }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

 private:
  Diary& diary_;
};

class Actor final : public Node {
 public:
  using Play = std::function<net::Awaitable<void>(Actor*)>;

  Actor(World& world, HostId host, Diary& diary, Play play)
      : Node(world, host, Role::kSite, [](HostId id) { return peer(id); }, {.merge = seconds(3)}),
        diary_(diary),
        play_(std::move(play)) {}
  ~Actor() override { take_down(); }

  static identity::PeerIdentity peer(HostId id) {
    identity::PeerIdentity peer{Role::kSite, NodeId(id.value() + 1), "node-" + std::to_string(id.value())};
    peer.not_after = WallTime::max();
    return peer;
  }
  void start() override {
    if (play_) spawn("play", play_(this));
  }

  using Node::dial;
  using Node::runtime;
  using Node::set_outgoing;
  using Node::spawn;
  using Node::world;
  Diary& diary() { return diary_; }
  void note(std::string line) { diary_.lines.push_back(std::move(line)); }
  TimePoint now() { return runtime().clock.now(); }
  net::Awaitable<Result<std::shared_ptr<net::Session>>> connect_to_root() {
    return dial([](const net::HostPort&) { return Answer{kRoot, kRoot}; })({"root", 1}, Role::kCoordinator);
  }

 private:
  net::Awaitable<void> serve(std::shared_ptr<net::Session> session) override {
    note("accepted " + session->member().name);
    for (;;) {
      const Result<net::Frame> frame = co_await session->receive();
      if (!frame.ok()) co_return note("ended: " + frame.error().message);
      note("chunk " + std::to_string(frame->header.update_chunk().index()) + " with " +
           std::to_string(frame->payload.size()));
    }
  }

  Diary& diary_;
  Play play_;
};

v1::Envelope chunk(std::uint64_t index) {
  v1::Envelope message;
  message.mutable_update_chunk()->set_index(index);
  return message;
}

// A root that serves, and one site that plays.
class NodeTest : public testing::Test {
 protected:
  void begin(Actor::Play play, Scenario scenario = {}) {
    scenario.tree = {.depth = 0, .sites = 1};
    world_ = std::make_unique<World>(scenario, 1, 100);
    world_->install(kRoot,
                    [this](World& world, HostId host) { return std::make_unique<Actor>(world, host, root_, nullptr); });
    world_->install(HostId(1), [this, play = std::move(play)](World& world, HostId host) {
      return std::make_unique<Actor>(world, host, site_, play);
    });
    world_->start_all();
  }
  void run_for(Duration duration) {
    const TimePoint end = world_->scheduler().now() + duration;
    while (world_->step(end)) continue;
  }
  void TearDown() override {
    for (const Host& host : world_->hosts()) world_->kill_for(host.id, Death::kProcess, std::chrono::hours(1));
    run_for(Duration(1));
    EXPECT_TRUE(world_->violations().empty());
  }

  Diary root_;
  Diary site_;
  std::unique_ptr<World> world_;
};

TEST_F(NodeTest, WaitsTakeVirtualTimeAndNoOther) {
  begin([](Actor* self) -> net::Awaitable<void> {
    const TimePoint begun = self->now();
    co_await net::sleep_for(std::chrono::hours(5));
    EXPECT_EQ(self->now() - begun, std::chrono::hours(5));
    net::AsyncSignal signal(self->runtime().strand);
    net::Timer timer(self->runtime().strand);
    timer.after(seconds(2), [&] { signal.notify_all(); });
    co_await signal.wait();
    EXPECT_EQ(self->now() - begun, std::chrono::hours(5) + seconds(2));
    self->note("done");
  });
  run_for(std::chrono::hours(6));
  EXPECT_EQ(site_.lines, std::vector<std::string>{"done"});
}

TEST_F(NodeTest, ADeadlineEndsWhatTakesLongerAndOnlyThat) {
  begin([](Actor* self) -> net::Awaitable<void> {
    const Status late = co_await net::with_deadline(net::sleep_for(seconds(9)), seconds(4));
    EXPECT_EQ(late.error().code, Code::kDeadlineExceeded);
    const TimePoint begun = self->now();
    const Status in_time = co_await net::with_deadline(net::sleep_for(seconds(1)), seconds(4));
    EXPECT_TRUE(in_time.ok());
    EXPECT_EQ(self->now() - begun, seconds(1));
    self->note("done");
  });
  run_for(seconds(20));
  EXPECT_EQ(site_.lines, std::vector<std::string>{"done"});
}

TEST_F(NodeTest, ATimerThatIsSetAnewOrCancelledDoesNotCall) {
  begin([](Actor* self) -> net::Awaitable<void> {
    net::Timer timer(self->runtime().strand);
    timer.after(seconds(1), [&] { self->note("first"); });
    timer.after(seconds(2), [&] { self->note("second"); });
    co_await net::sleep_for(seconds(3));
    timer.after(seconds(1), [&] { self->note("third"); });
    timer.cancel();
    co_await net::sleep_for(seconds(3));
  });
  run_for(seconds(20));
  EXPECT_EQ(site_.lines, std::vector<std::string>{"second"});
}

TEST_F(NodeTest, WorkOnThePoolTakesWhatItsKindCosts) {
  begin([](Actor* self) -> net::Awaitable<void> {
    const TimePoint begun = self->now();
    const Status done = co_await self->runtime().pool.run([] { return Status{}; }, net::Work::kMerge);
    EXPECT_TRUE(done.ok());
    EXPECT_EQ(self->now() - begun, seconds(3));
    const auto failed = co_await self->runtime().pool.run([]() -> Status { throw std::runtime_error("no memory"); });
    EXPECT_EQ(failed.error().code, Code::kInternal);
    self->note("done");
  });
  run_for(seconds(20));
  EXPECT_EQ(site_.lines, std::vector<std::string>{"done"});
}

TEST_F(NodeTest, FramesArriveInOrderAndTheGoodbyeSaysWhy) {
  begin([](Actor* self) -> net::Awaitable<void> {
    const auto session = co_await self->connect_to_root();
    EXPECT_TRUE(session.ok());
    (*session)->post({chunk(1), {}});
    EXPECT_TRUE((co_await (*session)->send({chunk(2), SharedBytes::from(Buffer(1000))})).ok());
    (*session)->close({Code::kStale, "come for a lease"}, true);
    EXPECT_FALSE((*session)->is_open());
    EXPECT_FALSE((co_await (*session)->receive()).ok());
  });
  run_for(seconds(20));
  EXPECT_EQ(root_.lines, (std::vector<std::string>{"accepted node-1", "chunk 1 with 0", "chunk 2 with 1000",
                                                   "ended: come for a lease"}));
}

TEST_F(NodeTest, ADishonestNodeChangesWhatItSaysOrKeepsItBack) {
  begin([](Actor* self) -> net::Awaitable<void> {
    self->set_outgoing([](SessionId, v1::Envelope& message, SharedBytes&) {
      if (!message.has_update_chunk()) return true;
      message.mutable_update_chunk()->set_index(message.update_chunk().index() + 100);
      return message.update_chunk().index() != 102;
    });
    const auto session = co_await self->connect_to_root();
    EXPECT_TRUE(session.ok());
    for (const std::uint64_t index : {1, 2, 3}) (*session)->post({chunk(index), {}});
    co_await net::sleep_for(seconds(5));
  });
  run_for(seconds(2));
  EXPECT_EQ(root_.lines, (std::vector<std::string>{"accepted node-1", "chunk 101 with 0", "chunk 103 with 0"}));
}

// Wherever it waits: for time, for a frame, for the pool, for another coroutine.
TEST_F(NodeTest, ADeadProcessIsTakenDownWhereItsCoroutinesWait) {
  begin([](Actor* self) -> net::Awaitable<void> {
    const Guard guard(self->diary());
    self->spawn("time", [](Actor* actor) -> net::Awaitable<void> {
      const Guard own(actor->diary());
      co_await net::sleep_for(std::chrono::hours(1));
      actor->note("never");
    }(self));
    self->spawn("pool", [](Actor* actor) -> net::Awaitable<void> {
      const Guard own(actor->diary());
      co_await net::sleep_for(milliseconds(900));
      const Status done = co_await actor->runtime().pool.run([] { return Status{}; }, net::Work::kMerge);
      EXPECT_TRUE(done.ok());
      actor->note("never");
    }(self));
    const auto session = co_await self->connect_to_root();
    EXPECT_TRUE(session.ok());
    const auto frame = co_await net::with_deadline((*session)->receive(), std::chrono::hours(1));
    EXPECT_TRUE(frame.ok());
    self->note("never");
  });
  run_for(seconds(1));
  EXPECT_EQ(site_.taken_down, 0);
  world_->kill_for(HostId(1), Death::kProcess, std::chrono::hours(3));
  run_for(seconds(60));
  EXPECT_EQ(site_.taken_down, 3);
  EXPECT_TRUE(site_.lines.empty());
  ASSERT_EQ(root_.lines.size(), 2u);
  EXPECT_TRUE(root_.lines.back().starts_with("ended")) << "its peer hears of it: " << root_.lines.back();
}

}  // namespace
}  // namespace fluvial::simulator
