#include "core/net/session.h"

#include "core/net/block_pool.h"
#include "core/net/deadline.h"
#include "core/net/task_group.h"
#include "core/net/test_support.h"

namespace fluvial::net {
namespace {

using std::chrono::milliseconds;

TEST(Session, EchoesFramesOfEverySize) {
  Threads threads;
  TestServer server(threads);
  const auto session = server.connect_now();
  Rng rng(1);
  std::vector<std::size_t> sizes = {0, 1, 15, 16, 17, 16 * 1024 - 1, 16 * 1024, 16 * 1024 + 1, 256 * 1024, 8u << 20};
  for (int i = 0; i < 30; ++i) sizes.push_back(rng.below(2 << 20));
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const Status done = exchange(threads, session, i, sizes[i]);
    ASSERT_TRUE(done.ok()) << done.error().to_string() << " at size " << sizes[i];
    bytes += sizes[i];
  }
  const Counters counters = session->counters();
  EXPECT_EQ(counters.frames_in, sizes.size());
  EXPECT_EQ(counters.frames_out, sizes.size());
  EXPECT_EQ(counters.payload_bytes_in, bytes);
  EXPECT_EQ(counters.payload_bytes_out, bytes);
  EXPECT_GT(counters.bytes_out, bytes);
  EXPECT_EQ(session->member().name, "root");
  say_goodbye(threads, session);
  EXPECT_FALSE(session->is_open());
}

TEST(Session, WithSmallBlocksAllArrives) {  // since all large ones are held by sessions that wait
  std::vector<Buffer> held;
  while (held.empty() || held.back().size() == kLargeBlockBytes) held.push_back(BlockPool::shared().acquire());
  {
    Threads threads;
    TestServer server(threads);
    const auto session = server.connect_now();
    for (const std::size_t size : {0u, 1u, 16'384u, 65'536u, 72u * 1024, 300'000u, 3'000'000u}) {
      const Status done = exchange(threads, session, size, size);
      ASSERT_TRUE(done.ok()) << done.error().to_string() << " at size " << size;
    }
    say_goodbye(threads, session);
  }
  for (Buffer& block : held) BlockPool::shared().release(std::move(block));
}

TEST(Session, NewKeysOnTheWayChangeNothing) {
  Threads threads;
  ListenerSettings settings;
  settings.session.rekey_bytes = 20'000;
  TestServer server(threads, settings);
  const auto session = server.connect_now(settings.session);
  for (const std::size_t size : {100u, 16'384u, 500'000u, 3'000'000u}) {
    const Status done = exchange(threads, session, size, size);
    ASSERT_TRUE(done.ok()) << done.error().to_string() << " at size " << size;
  }
  say_goodbye(threads, session);
}

Awaitable<void> talk_a_lot(std::shared_ptr<Session> session, std::uint64_t seed, std::atomic<int>* good) {
  Rng rng(seed);
  for (std::uint64_t i = 0; i < 20; ++i) {
    const Status done = co_await ping_pong(session, i, rng.below(100'000));
    if (!done.ok()) co_return;
  }
  ++*good;
  session->close({Code::kCancelled, "done"}, true);
}

TEST(Session, ManyAtOnce) {
  Threads threads;
  TestServer server(threads);
  std::vector<std::shared_ptr<Session>> sessions;
  for (int i = 0; i < 50; ++i) sessions.push_back(server.connect_now());
  std::atomic<int> good = 0;
  TaskGroup tasks(threads.executor());
  for (std::size_t i = 0; i < sessions.size(); ++i) {
    tasks.spawn(sessions[i]->executor(), "talk", talk_a_lot(sessions[i], i, &good));
  }
  threads.run(tasks.join());
  EXPECT_EQ(good, 50);
  server.stop();
  EXPECT_EQ(server.hooks().opened, 50);
  EXPECT_EQ(server.hooks().closed, 50);
}

// ---- backpressure ------------------------------------------------------------------------------------------------

// Counts the bytes of payloads that are alive.
struct Tracked {
  explicit Tracked(std::atomic<std::size_t>* alive_, std::size_t size) : alive(alive_), bytes(size) {
    std::fill_n(bytes.data(), size, std::byte{7});
    *alive += size;
  }
  ~Tracked() { *alive -= bytes.size(); }
  std::atomic<std::size_t>* alive;
  Buffer bytes;
};
OutFrame tracked_frame(std::atomic<std::size_t>* alive, std::size_t size) {
  auto owner = std::make_shared<Tracked>(alive, size);
  OutFrame frame = chunk_frame(1);
  const ByteSpan bytes = owner->bytes.span();
  frame.payload = {std::move(owner), bytes};
  return frame;
}

Awaitable<std::size_t> send_many(std::shared_ptr<Session> session, std::atomic<std::size_t>* alive, int count) {
  std::size_t most = 0;
  for (int i = 0; i < count; ++i) {
    const Status sent = co_await session->send(tracked_frame(alive, 256 * 1024));
    EXPECT_TRUE(sent.ok());
    most = std::max<std::size_t>(most, *alive);
  }
  co_return most;
}

Awaitable<void> count_frames(std::shared_ptr<Session> session, std::promise<int>* counted) {
  int count = 0;
  while ((co_await session->receive()).ok()) ++count;
  counted->set_value(count);
}

TEST(Session, SendWaitsWhileTheOutboxIsFull) {
  Threads threads;
  std::promise<int> counted;
  TestServer server(threads, {}, [&](std::shared_ptr<Session> session) { return count_frames(session, &counted); });
  SessionSettings settings;
  settings.outbox_bytes_max = 1 << 20;
  const auto session = server.connect_now(settings);
  std::atomic<std::size_t> alive = 0;
  const std::size_t most = threads.run(send_many(session, &alive, 400), session->executor());
  EXPECT_LE(most, (1u << 20) + 3u * 256 * 1024);  // the bound, the frame that passed it, and one in the writer's hands
  say_goodbye(threads, session);
  EXPECT_EQ(counted.get_future().get(), 400);  // close() flushed all of them
  EXPECT_EQ(alive, 0u);
}

Awaitable<void> never_receive(std::shared_ptr<Session> session) { co_await session->closed(); }

TEST(Session, PostIsBoundedToo) {
  Threads threads;
  TestServer server(threads, {}, never_receive);
  SessionSettings settings;
  settings.outbox_bytes_max = 1 << 20;
  const auto session = server.connect_now(settings);
  std::atomic<std::size_t> alive = 0;
  std::size_t most = 0;
  while (session->is_open()) {
    session->post(tracked_frame(&alive, 256 * 1024));
    most = std::max<std::size_t>(most, alive);
  }
  EXPECT_LE(most, 6u << 20);
  EXPECT_EQ(session->close_reason().code, Code::kResourceExhausted);
  threads.run(session->closed(), session->executor());
  EXPECT_EQ(alive, 0u);
}

TEST(Session, PostsKeepTheirOrder) {
  Threads threads;
  TestServer server(threads);
  const auto session = server.connect_now();
  for (std::uint64_t i = 1; i <= 200; ++i) session->post(chunk_frame(i, pattern(i, i)));
  for (std::uint64_t i = 1; i <= 200; ++i) {
    const auto frame = threads.run(session->receive(), session->executor());
    ASSERT_TRUE(frame.ok()) << frame.error().to_string();
    ASSERT_EQ(frame->header.update_chunk().index(), i);
  }
  say_goodbye(threads, session);
}

// Whoever sends need not look at what became of it: nothing is lost in silence.
TEST(Session, AFrameOverTheLimitsEndsTheSessionAndIsTold) {
  for (const bool posts : {false, true}) {
    Threads threads;
    TestServer server(threads);
    const auto hooks = std::make_shared<RecordingHooks>();
    const auto session =
        *threads.run(connect(threads.executor(), "127.0.0.1", server.port(), client_tls(), SessionSettings(), hooks));
    v1::Envelope long_header;
    long_header.mutable_model_begin()->mutable_schema()->add_tensors()->set_name(std::string(5 << 20, 'x'));
    if (posts) {
      session->post({std::move(long_header), {}});
    } else {
      const Status sent = threads.run(session->send({std::move(long_header), {}}), session->executor());
      EXPECT_EQ(sent.error().code, Code::kInternal);
    }
    hooks->wait([](const RecordingHooks& seen) { return seen.closed == 1; });
    EXPECT_EQ(session->close_reason().code, Code::kInternal);
    ASSERT_EQ(hooks->details.size(), 1u);
    EXPECT_NE(hooks->details[0].find("a frame cannot be sent: a header of 5242"), std::string::npos)
        << hooks->details[0];
    EXPECT_EQ(hooks->handlers_failed, 1);
    server.hooks().wait([](const RecordingHooks& seen) { return seen.closed == 1; });
  }
}

// ---- ends --------------------------------------------------------------------------------------------------------

Awaitable<void> send_and_close(std::shared_ptr<Session> session) {
  for (std::uint64_t i = 0; i < 20; ++i) session->post(chunk_frame(i, pattern(i, 200'000)));
  session->close({Code::kPermissionDenied, "this site is drained\n"}, true);
  co_return;
}

TEST(Session, DrainFlushesAndSaysWhy) {
  Threads threads;
  TestServer server(threads, {}, send_and_close);
  const auto session = server.connect_now();
  for (std::uint64_t i = 0; i < 20; ++i) {
    const auto frame = threads.run(session->receive(), session->executor());
    ASSERT_TRUE(frame.ok()) << frame.error().to_string();
    EXPECT_TRUE(same_bytes(frame->payload.span(), pattern(i, 200'000).span()));
  }
  for (int again = 0; again < 2; ++again) {
    const auto end = threads.run(session->receive(), session->executor());
    ASSERT_FALSE(end.ok());
    EXPECT_EQ(end.error().code, Code::kPermissionDenied);
    EXPECT_NE(end.error().message.find("this site is drained "), std::string::npos) << end.error().message;
  }
  const Status sent = threads.run(session->send(chunk_frame(1)), session->executor());
  EXPECT_EQ(sent.error().code, Code::kPermissionDenied);
}

TEST(Session, DroppingTheLastHandleCloses) {
  Threads threads;
  TestServer server(threads);
  {
    const auto session = server.connect_now();
    EXPECT_TRUE(exchange(threads, session, 1, 1000).ok());
  }
  server.hooks().wait([](const RecordingHooks& seen) { return seen.closed == 1; });
}

TEST(Session, WhatMovesIsToldWhileTheSessionRunsAndWholeAtItsEnd) {
  Threads threads;
  ListenerSettings often;
  often.session.heartbeat_interval = milliseconds(10);  // so short are the monitor's ticks then
  TestServer server(threads, often);
  const auto session = server.connect_now();
  EXPECT_TRUE(exchange(threads, session, 1, 100'000).ok());
  server.hooks().wait([](const RecordingHooks& seen) {
    return seen.closed == 0 && seen.moved.frames_in >= 1 && seen.moved.bytes_in > 100'000;
  });
  EXPECT_TRUE(exchange(threads, session, 2, 100'000).ok());
  say_goodbye(threads, session);
  server.hooks().wait([](const RecordingHooks& seen) {
    return seen.closed == 1 && seen.moved.bytes_in == seen.at_close.bytes_in &&
           seen.moved.bytes_out == seen.at_close.bytes_out && seen.moved.frames_in == seen.at_close.frames_in &&
           seen.moved.frames_out == seen.at_close.frames_out && seen.outbox_bytes == 0 && seen.accepted_moved;
  });
}

TEST(Session, AReceiveThatIsGivenUpLosesNothing) {
  Threads threads;
  TestServer server(threads);
  const auto session = server.connect_now();
  const auto late = threads.run(with_deadline(session->receive(), milliseconds(1)), session->executor());
  EXPECT_EQ(late.error().code, Code::kDeadlineExceeded);
  EXPECT_TRUE(exchange(threads, session, 5, 70'000).ok());
  say_goodbye(threads, session);
}

}  // namespace
}  // namespace fluvial::net
