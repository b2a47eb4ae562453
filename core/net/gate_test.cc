// Sessions through a gate: what an observer sees, what slicing and cutting do.
#include "core/net/gate.h"

namespace fluvial::net {
namespace {

constexpr std::string_view kPlanted = "THE-PATIENT-HAS-THIS-AND-THAT";

Awaitable<Status> send_planted(std::shared_ptr<Session> session) {
  std::string text;
  for (int i = 0; i < 10'000; ++i) text += kPlanted;
  OutFrame frame;
  frame.header.mutable_decline()->set_message(std::string(kPlanted));
  frame.payload = SharedBytes::from(Buffer::copy_of(as_byte_span(text)));
  FLUVIAL_CO_TRY(co_await session->send(std::move(frame)));
  auto back = co_await session->receive();
  if (!back.ok()) co_return back.error();
  if (back->header.decline().message() != kPlanted || as_text(back->payload.span()) != text) {
    co_return Error{Code::kDataLoss, "the echo differs"};
  }
  co_return Status{};
}

TEST(Gate, AnObserverSeesNeitherHeaderNorPayload) {
  Threads threads;
  TestServer server(threads);
  Gate gate(threads, server.port(), {.record = true});
  const auto session = server.connect_now({}, gate.port());
  const Status done = threads.run(send_planted(session), session->executor());
  ASSERT_TRUE(done.ok()) << done.error().to_string();
  say_goodbye(threads, session);
  server.stop();
  const std::string seen = gate.recorded();
  EXPECT_GT(seen.size(), 2 * 10'000 * kPlanted.size());  // it did see the traffic, both ways
  EXPECT_EQ(seen.find(kPlanted), std::string::npos);
  EXPECT_EQ(seen.find(kPlanted.substr(0, 8)), std::string::npos);
  EXPECT_EQ(seen.find("FLV1"), std::string::npos);
  EXPECT_EQ(seen.find("hospital-a"), std::string::npos);  // nor who is there: certificates are encrypted
}

TEST(Gate, SlicesChangeNothing) {
  for (const std::size_t slice : {1u, 2u, 7u, 100u, 1000u}) {
    Threads threads;
    ListenerSettings patient;  // a byte at a time is slow where much else is going on
    patient.session.min_rate_bytes_per_s = 1;
    TestServer server(threads, patient);
    Gate gate(threads, server.port(), {.slice_bytes_max = slice});
    const auto session = server.connect_now(patient.session, gate.port());
    for (const std::size_t size : {0u, 1u, 5'000u, 40'000u}) {
      const Status done = exchange(threads, session, size, size);
      ASSERT_TRUE(done.ok()) << done.error().to_string() << ", slices of " << slice;
    }
    say_goodbye(threads, session);
  }
}

// Whatever byte the connection dies at: an error on each side, no hang, no crash.
void cut_at(Threads& threads, TestServer& server, std::uint64_t byte) {
  Gate gate(threads, server.port(), {.cut_after_bytes = byte});
  auto session = server.try_connect({}, client_tls(), gate.port());
  if (!session.ok()) {
    EXPECT_FALSE(session.error().message.empty());
    return;
  }
  for (std::uint64_t i = 0;; ++i) {
    const Status done = exchange(threads, *session, i, 3'000);
    if (done.ok()) continue;
    EXPECT_EQ(done.error().code, Code::kUnavailable) << byte << ": " << done.error().to_string();
    break;
  }
  threads.run((*session)->closed(), (*session)->executor());
}

TEST(Gate, ACutAtAnyByteIsACleanError) {
  Threads threads;
  TestServer server(threads);
  for (std::uint64_t byte = 0; byte < 4'000; byte += 37) cut_at(threads, server, byte);
  for (std::uint64_t byte = 4'000; byte < 60'000; byte += 1'999) cut_at(threads, server, byte);
  const auto session = server.connect_now();
  EXPECT_TRUE(exchange(threads, session, 1, 100'000).ok());  // the server is none the worse
  say_goodbye(threads, session);
  server.stop();
  EXPECT_EQ(server.hooks().opened, server.hooks().closed);
}

TEST(Gate, AFlippedBitEndsTheSessionAndIsCountedAsDamage) {
  Threads threads;
  TestServer server(threads);
  Gate gate(threads, server.port(), {.flip_byte = 20'000});
  const auto session = server.connect_now({}, gate.port());
  const Status done = exchange(threads, session, 1, 100'000);
  EXPECT_EQ(done.error().code, Code::kUnavailable) << done.error().to_string();
  server.hooks().wait_refused(reason::kDamaged);
  threads.run(session->closed(), session->executor());
  const auto after = server.connect_now({}, gate.port());
  EXPECT_TRUE(exchange(threads, after, 1, 100'000).ok());
  say_goodbye(threads, after);
}

}  // namespace
}  // namespace fluvial::net
