// What the ends of a session learn of each other's clocks.
#include "core/net/clock_probe.h"
#include "core/net/test_support.h"

namespace fluvial::net {
namespace {

class ApartClock final : public Clock {
 public:
  ApartClock(Duration steady, std::chrono::milliseconds wall) : steady_(steady), wall_(wall) {}
  TimePoint now() const override { return real_.now() + steady_; }
  WallTime wall_now() const override { return real_.wall_now() + wall_; }

 private:
  SystemClock real_;
  Duration steady_;
  std::chrono::milliseconds wall_;
};

// Echoes frames; `known` gets the child's clock as soon as it is known, or nothing at the end.
Awaitable<void> measure(std::shared_ptr<Session> session, std::promise<std::optional<ClockOffset>>* known) {
  session->measure_clock();
  bool told = false;
  for (;;) {
    auto frame = co_await session->receive();
    const std::optional<ClockOffset> clock = session->peer_clock();
    if (!told && (clock || !frame.ok())) {
      known->set_value(clock);
      told = true;
    }
    if (!frame.ok()) co_return;
    session->post({std::move(frame->header), SharedBytes::from(std::move(frame->payload))});
  }
}

// Frames go to and fro, `least` of them at least, until the parent knows the child's clock or the session is over.
std::optional<ClockOffset> parent_knows(const Clock* parent, const Clock* child, int least, bool until_known) {
  Threads threads;
  std::promise<std::optional<ClockOffset>> known;
  auto found = known.get_future();
  ListenerSettings parents;
  parents.session.clock = parent;
  TestServer server(threads, parents,
                    [&known](std::shared_ptr<Session> session) { return measure(std::move(session), &known); });
  SessionSettings childs;
  childs.clock = child;
  const auto session = server.connect_now(childs);
  const auto is_known = [&found] { return found.wait_for(std::chrono::seconds(0)) == std::future_status::ready; };
  for (int i = 0; i < least || (until_known && !is_known()); ++i) {
    EXPECT_TRUE(exchange(threads, session, static_cast<std::uint64_t>(i), 100).ok());
  }
  say_goodbye(threads, session);
  return found.get();
}

TEST(SessionClock, TheChildsClockIsKnownWithinItsUncertainty) {
  const SystemClock parent;
  for (const int hours : {-5, 0, 7}) {
    const ApartClock child(std::chrono::hours(hours), std::chrono::seconds(90));
    const auto clock = parent_knows(&parent, &child, 1, true);
    ASSERT_TRUE(clock);
    EXPECT_LE(std::chrono::abs(clock->steady - std::chrono::hours(hours)), clock->uncertainty);
    EXPECT_LE(std::chrono::abs(clock->wall - std::chrono::seconds(90)),
              clock->uncertainty + std::chrono::milliseconds(2));
  }
}

TEST(SessionClock, OfAPeerThatTellsNoneItIsNotKnown) {
  const SystemClock clock;
  EXPECT_FALSE(parent_knows(&clock, nullptr, 20, false));
  EXPECT_FALSE(parent_knows(nullptr, &clock, 20, false));
}

v1::Pong pong(std::uint64_t token, std::int64_t received, std::int64_t sent) {
  v1::Pong message;
  message.set_token(token);
  message.set_received_ns(received);
  message.set_sent_ns(sent);
  return message;
}

TEST(ClockProbe, TakesTheAnswerToItsLastQuestionOnce) {
  const SystemClock clock;
  const std::int64_t now = clock.now().time_since_epoch().count();
  ClockProbe probe(clock);
  EXPECT_FALSE(probe.answered(pong(1, now, now))) << "nothing was asked";
  probe.asked(1);
  probe.asked(2);
  EXPECT_FALSE(probe.answered(pong(1, now, now)));
  EXPECT_FALSE(probe.answered(pong(2, 0, 0))) << "a peer that tells no times";
  EXPECT_TRUE(probe.answered(pong(2, now, now)));
  EXPECT_FALSE(probe.answered(pong(2, now, now)));
}

}  // namespace
}  // namespace fluvial::net
