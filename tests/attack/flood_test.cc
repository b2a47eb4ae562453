// Whoever takes more of a parent than there is: connections, memory, its disk's log, its time.
#include "tests/attack/flood.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <list>
#include <optional>

#include "tests/attack/fixture.h"

namespace fluvial::attack {
namespace {

#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

class FloodAttack : public AttackTest {
 protected:
  // Until the coordinator has refused `more` connections beyond `before`, for that reason or for any.
  void wait_refused(double before, double more, const std::string& reason = "") {
    const auto there = cli::retry(kPatience, [&]() -> Result<bool> { return refused(reason) >= before + more; });
    EXPECT_TRUE(there.ok() && *there) << "refused: " << refused(reason) - before << ", not " << more;
  }
  double refused(const std::string& reason = "") {
    return metric("coordinator", "sessions_refused_total", reason.empty() ? "" : "reason=\"" + reason + "\"");
  }
  // By how much the most memory that the coordinator ever had grew while `attack` went on.
  std::uint64_t growth(const std::function<void()>& attack) {
    const std::uint64_t before = resident_bytes("coordinator", "VmHWM:");
    attack();
    const std::uint64_t after = resident_bytes("coordinator", "VmHWM:");
    return kSanitized ? 0 : after - before;  // a sanitizer keeps what was freed
  }
};

TEST_F(FloodAttack, IdleConnectionsKeepNobodyOut) {
  start(2, 0);
  start_held_run();
  const identity::Credentials honest = enrolled("hospital-a");
  IdleConnections idle(coordinator_port(), kStrangersAddress, 400);
  ASSERT_TRUE(idle.add(400).ok());
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(idle.add(5).ok());
    const Result<Leased> lease = ask_lease(honest, "", kMembersAddress);
    ASSERT_TRUE(lease.ok()) << "attempt " << i << ": " << lease.error().message;
  }
  const double before = refused("gave_way");
  const auto full = cli::retry(kPatience, [&]() -> Result<bool> {  // a busy machine may need a while to open them all
    FLUVIAL_TRY(idle.add(50));
    return refused("gave_way") > before;
  });
  EXPECT_TRUE(full.ok() && *full) << "nobody gives way";
  Result<Leased> beside = Error{Code::kInternal, "not asked"};
  const auto in = cli::retry(kPatience, [&]() -> Result<bool> {
    FLUVIAL_TRY(idle.add(1));
    beside = ask_lease(honest, "", kStrangersAddress);  // as a member must: again, when it was turned away
    return beside.ok();
  });
  EXPECT_TRUE(in.ok() && *in) << "behind the flood's own address: " << beside.error().message;
  expect_rounds_go_on();
}

TEST_F(FloodAttack, StrangersFillNoLog) {
  start(2, 0);
  start_held_run();
  const double before = refused();
  const std::size_t log_before = log_bytes("coordinator");
  constexpr int kConnections = 1'000;
  for (int i = 0; i < kConnections; ++i) {
    const Result<Connection> connection = Connection::open(coordinator_port());
    ASSERT_TRUE(connection.ok()) << connection.error().message;
  }
  wait_refused(before, kConnections);
  EXPECT_LT(log_bytes("coordinator") - log_before, 32'768U);
  expect_rounds_go_on();
}

// 16 KiB/s is what a slow line must do: the flood is never too slow.
TEST_F(FloodAttack, PayloadsThatAreAnnouncedAndDoNotComeHoldNoMemory) {
  start(2, 0);
  start_held_run(2);  // a third round would ask the attackers, too
  v1::Envelope chunk;
  chunk.mutable_update_chunk()->set_index(0);
  std::vector<Connection> members;
  for (int i = 0; i < 5; ++i) {
    Result<Connection> member = join_coordinator(enrolled("mallory-" + std::to_string(i)));
    ASSERT_TRUE(member.ok()) << member.error().message;
    ASSERT_TRUE(member->send_head(chunk, 8 << 20).ok());
    member->set_patience(std::chrono::seconds(1));
    members.push_back(std::move(*member));
  }
  const Buffer some(64 << 10);
  const Flood trickle(std::chrono::milliseconds(500), [&](std::uint64_t) {
    for (Connection& member : members) (void)member.write(some.span());
  });
  expect_rounds_go_on();
}

// Nearly all of a payload at once, and the end of it as slowly as is allowed; then the same on another connection.
class Trickler {
 public:
  using Join = std::function<Result<Connection>()>;
  explicit Trickler(Join join) : join_(std::move(join)) {}
  void step() {
    const bool goes_on = left_ > 0 ? trickle() : begin();
    if (!goes_on || left_ == 0) connection_.reset();
    if (!connection_) left_ = 0;
  }
  std::uint64_t begun() const { return begun_; }

 private:
  static constexpr std::size_t kAnnounced = 8 << 20, kDrop = 64 << 10, kLast = 16 * kDrop;

  bool begin() {
    Result<Connection> joined = join_();
    if (!joined.ok()) return false;
    joined->set_patience(std::chrono::seconds(1));
    connection_.emplace(std::move(*joined));
    v1::Envelope chunk;
    chunk.mutable_partial_chunk()->set_index(0);
    left_ = kLast;
    if (!connection_->send_head(chunk, kAnnounced).ok()) return false;
    if (!connection_->write(Buffer(kAnnounced - kLast).span()).ok()) return false;
    ++begun_;
    return true;
  }
  bool trickle() {
    left_ -= kDrop;
    return connection_->write(Buffer(kDrop).span()).ok();
  }

  const Join join_;
  std::optional<Connection> connection_;
  std::size_t left_ = 0;
  std::atomic<std::uint64_t> begun_ = 0;
};

// They are members whom no round asks, and are never slow enough to be cut: a minute for a payload.
TEST_F(FloodAttack, PayloadsThatTrickleDelayAFewRoundsAndNoMore) {
  start(2, 0);
  start_held_run(12);
  std::list<Trickler> attackers;
  std::list<Flood> floods;
  for (int i = 0; i < 5; ++i) {
    const identity::Credentials credentials = enrolled("mallory-" + std::to_string(i), "aggregator", "nowhere");
    Trickler& attacker = attackers.emplace_back([credentials, port = coordinator_port()] {
      return attack::join_coordinator(credentials, port, "127.0.0.1:1");
    });
    floods.emplace_back(std::chrono::milliseconds(400), [&attacker](std::uint64_t) { attacker.step(); });
  }
  const auto under_way = cli::retry(kPatience, [&]() -> Result<bool> {
    return std::ranges::count_if(attackers, [](const Trickler& attacker) { return attacker.begun() > 0; }) >= 4;
  });
  EXPECT_TRUE(under_way.ok() && *under_way);
  expect_rounds_go_on();
}

TEST_F(FloodAttack, NoPayloadIsTakenBeforeHello) {
  start(2, 0);
  start_held_run();
  const Tls tls = as_child(enrolled("mallory"));
  v1::Envelope chunk;
  chunk.mutable_update_chunk()->set_index(0);
  const double before = refused("before_admission");
  std::vector<Connection> open;
  constexpr int kConnections = 8;
  for (int i = 0; i < kConnections; ++i) {
    Result<Connection> connection = Connection::open(coordinator_port(), tls);
    ASSERT_TRUE(connection.ok()) << connection.error().message;
    ASSERT_TRUE(connection->send_head(chunk, 8 << 20).ok());
    open.push_back(std::move(*connection));
  }
  wait_refused(before, kConnections, "before_admission");
  for (Connection& connection : open) EXPECT_TRUE(connection.ending().has_value());
  expect_rounds_go_on();
}

TEST_F(FloodAttack, UnfinishedHeadersBeforeHelloTakeNoMemory) {
  start(2, 0);
  start_held_run();
  std::vector<Tls> members;
  for (int i = 0; i < 10; ++i) members.push_back(as_child(enrolled("mallory-" + std::to_string(i))));
  const double before = refused("before_admission");
  const Buffer most_of_it(3 << 20);
  std::vector<Connection> open;
  int announced = 0;
  EXPECT_LT(growth([&] {
              for (std::size_t i = 0; i < 64; ++i) {
                Result<Connection> connection = Connection::open(coordinator_port(), members[i % members.size()]);
                if (!connection.ok() || !connection->announce(4 << 20, 0).ok()) continue;
                ++announced;
                (void)connection->write(most_of_it.span());
                open.push_back(std::move(*connection));
              }
            }),
            64 * kMebi);
  EXPECT_GT(announced, 32);
  wait_refused(before, announced, "before_admission");
  expect_rounds_go_on();
}

TEST_F(FloodAttack, QuestionsAboutOutcomesWaitForEachOther) {
  start(2, 0);
  start_held_run(2);  // a third round would ask the attackers, too
  const identity::Credentials credentials = enrolled("mallory");
  Result<Connection> mallory = join_coordinator(credentials);
  ASSERT_TRUE(mallory.ok()) << mallory.error().message;
  v1::Envelope question;
  question.mutable_outcome_query()->set_site(identity::identity_of(credentials.chain.front())->node.value());
  question.mutable_outcome_query()->set_run(run_);
  question.mutable_outcome_query()->set_round(1);
  question.mutable_outcome_query()->set_sha256(std::string(32, 'x'));
  mallory->set_patience(std::chrono::seconds(1));
  bool taken = true;
  const auto ask = [&](int times) {
    for (int i = 0; i < times && taken; ++i) {
      taken = mallory->send(question).ok();
      if (i % 100 == 0) (void)mallory->has_ended();
    }
  };
  EXPECT_LT(growth([&] {
              ask(20'000);
              question.mutable_outcome_query()->set_sha256(std::string(64 << 10, 'x'));
              ask(2'000);  // far more bytes than the sockets hold
            }),
            64 * kMebi);
  EXPECT_FALSE(taken) << "the coordinator read them all at once";
  expect_rounds_go_on();
}

}  // namespace
}  // namespace fluvial::attack
