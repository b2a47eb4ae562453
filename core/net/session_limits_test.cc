// Peers that are silent, slow, stuck, or speak nonsense: cut, counted, and harmless to the others.
#include <openssl/ssl.h>

#include <array>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/strand.hpp>

#include "core/base/buffer_pool.h"
#include "core/base/testing.h"
#include "core/net/greeting.h"
#include "core/net/test_clock.h"
#include "core/net/test_support.h"
#include "core/wire/frame.h"

namespace fluvial::net {
namespace {

using std::chrono::milliseconds;

SessionSettings impatient() {
  SessionSettings settings;
  settings.heartbeat_interval = milliseconds(20);
  settings.heartbeat_timeout = milliseconds(200);
  settings.drain_deadline = milliseconds(200);
  return settings;
}

TEST(SessionLimits, HeartbeatsKeepAnIdleSessionAndAreNotSurfaced) {
  Threads threads;
  ListenerSettings settings;
  settings.session.heartbeat_interval = milliseconds(5);
  TestServer server(threads, settings);
  SessionSettings mine;
  mine.heartbeat_interval = milliseconds(5);
  const auto session = server.connect_now(mine);
  server.hooks().wait([](const RecordingHooks& seen) { return seen.moved.bytes_in >= 4'000; });
  EXPECT_EQ(session->counters().frames_in, 0u);
  EXPECT_TRUE(exchange(threads, session, 1, 10).ok());
  say_goodbye(threads, session);
}

// A TLS peer that shakes hands and then does as it is told: no session of ours answers for it.
Awaitable<std::unique_ptr<TlsStream>> raw_peer(Executor strand, std::uint16_t port) {
  asio::ip::tcp::socket socket(strand);
  const asio::ip::tcp::endpoint to(asio::ip::address_v4::loopback(), port);
  co_await socket.async_connect(to, asio::use_awaitable);
  auto greeted = co_await greet_server(std::move(socket), client_tls(), "the server");
  EXPECT_TRUE(greeted.ok()) << greeted.error().to_string();
  co_return std::move(greeted->stream);
}

Awaitable<Status> write_all(TlsStream* stream, ByteSpan bytes) {
  FLUVIAL_CO_TRY(co_await stream->write(bytes));
  co_return co_await stream->flush();
}

// Reads until the server says goodbye or closes; what it said.
Awaitable<std::string> read_to_end(TlsStream* stream) {
  std::string all;
  std::array<std::byte, 1024> block;
  for (;;) {
    const auto count = co_await stream->read_some(block);
    if (!count.ok()) co_return all;
    all += as_text(ByteSpan(block).first(*count));
  }
}

// Until the other side has had enough.
Awaitable<void> ask_for_keys(TlsStream* stream, int times) {
  for (int i = 0; i < times; ++i) {
    if (SSL_key_update(stream->native(), SSL_KEY_UPDATE_NOT_REQUESTED) != 1) co_return;
    if (SSL_do_handshake(stream->native()) != 1) co_return;
    const Status flushed = co_await stream->flush();
    if (!flushed.ok()) co_return;
  }
}

class RawPeer {
 public:
  RawPeer(Threads& threads, std::uint16_t port) : threads_(threads), strand_(asio::make_strand(threads.executor())) {
    stream_ = threads_.run(raw_peer(strand_, port), strand_);
  }
  ~RawPeer() { threads_.run(close_on_strand(stream_.get()), strand_); }
  Status write(ByteSpan bytes) { return threads_.run(write_all(stream_.get(), bytes), strand_); }
  void update_keys(int times) { threads_.run(ask_for_keys(stream_.get(), times), strand_); }
  std::string last_words() { return threads_.run(read_to_end(stream_.get()), strand_); }

 private:
  static Awaitable<void> close_on_strand(TlsStream* stream) {
    stream->close();
    co_return;
  }
  Threads& threads_;
  Executor strand_;
  std::unique_ptr<TlsStream> stream_;
};

TEST(SessionLimits, ASilentPeerIsGivenUp) {
  Threads threads;
  ListenerSettings settings;
  settings.session = impatient();
  TestServer server(threads, settings);
  RawPeer peer(threads, server.port());
  const auto good = server.connect_now(impatient());
  server.hooks().wait_refused(reason::kSilent);
  EXPECT_TRUE(exchange(threads, good, 1, 10'000).ok());
  say_goodbye(threads, good);
}

Awaitable<void> send_for_ever(std::shared_ptr<Session> session) {
  for (Status sent; sent.ok();) sent = co_await session->send(chunk_frame(1, Buffer(1 << 20)));
}

TEST(SessionLimits, APeerThatTakesNothingIsGivenUp) {
  Threads threads;
  ListenerSettings settings;
  settings.session.write_deadline = milliseconds(100);
  TestServer server(threads, settings, send_for_ever);
  RawPeer peer(threads, server.port());
  server.hooks().wait_refused(reason::kStuck);
}

// Each frame is answered with a MiB, whether the one before was taken or not.
Awaitable<void> answer_each(std::shared_ptr<Session> session) {
  for (;;) {
    const auto asked = co_await session->receive();
    if (!asked.ok()) co_return;
    session->post(chunk_frame(1, Buffer(1 << 20)));
  }
}

Awaitable<Status> ask_for_one(std::shared_ptr<Session> session) {
  FLUVIAL_CO_TRY(co_await session->send(chunk_frame(1)));
  const auto answer = co_await session->receive();
  co_return answer.ok() ? Status() : Status(answer.error());
}

TEST(SessionLimits, PeersThatDoNotReadKeepNoMoreThanTheBoundOfAll) {
  constexpr std::size_t kBound = 16 << 20, kPeers = 4, kAnswers = 16;  // more than sockets hold
  TestClock clock;
  Threads threads;
  ListenerSettings settings;
  const auto outboxes = std::make_shared<OutboxBudget>(kBound, &clock);
  settings.session.outboxes = outboxes;
  TestServer server(threads, settings, answer_each);
  v1::Envelope chunk;
  chunk.mutable_update_chunk()->set_index(1);
  const Buffer question = *wire::encode_head(chunk, 0, {});
  std::vector<std::unique_ptr<RawPeer>> deaf;
  for (std::size_t i = 0; i < kPeers; ++i) {
    deaf.push_back(std::make_unique<RawPeer>(threads, server.port()));
    for (std::size_t asked = 0; asked < kAnswers; ++asked) ASSERT_TRUE(deaf.back()->write(question.span()).ok());
  }
  look_until([&] { return outboxes->bytes_used() > kBound; });
  EXPECT_EQ(server.hooks().count(reason::kStuck), 0) << "they may be slow";
  clock.advance(OutboxBudget::kPatience);
  const auto good = server.connect_now();
  EXPECT_TRUE(threads.run(ask_for_one(good), good->executor()).ok());
  EXPECT_LE(outboxes->bytes_used(), kBound);
  server.hooks().wait_refused(reason::kStuck);
  EXPECT_TRUE(threads.run(ask_for_one(good), good->executor()).ok());
  say_goodbye(threads, good);
}

std::array<std::byte, wire::kPrefixBytes> prefix_of(std::uint32_t header_bytes, std::uint32_t payload_bytes) {
  std::array<std::byte, wire::kPrefixBytes> bytes;
  wire::encode_prefix({header_bytes, payload_bytes}, bytes);
  return bytes;
}

TEST(SessionLimits, ATricklingPeerIsCutWhileOthersGoOn) {
  Threads threads;
  ListenerSettings settings;
  settings.session.rate_window = milliseconds(100);
  settings.session.min_rate_bytes_per_s = 1 << 20;
  settings.session.drain_deadline = milliseconds(100);
  TestServer server(threads, settings);
  const auto good = server.connect_now();
  RawPeer peer(threads, server.port());
  ASSERT_TRUE(peer.write(prefix_of(4u << 20, 0)).ok());
  // One byte at a time, as long as the server takes them.
  std::uint64_t seed = 0;
  const std::byte one{0};
  while (server.hooks().count(reason::kSlow) == 0) {
    if (!peer.write(ByteSpan(&one, 1)).ok()) break;
    ASSERT_TRUE(exchange(threads, good, ++seed, 100).ok());
  }
  server.hooks().wait_refused(reason::kSlow);
  EXPECT_NE(peer.last_words().find("at least 1048576 are required"), std::string::npos);
  EXPECT_TRUE(exchange(threads, good, ++seed, 100).ok());
  say_goodbye(threads, good);
}

// Fast enough by itself, and with memory that another waits for.
TEST(SessionLimits, WhoTricklesWhileOthersWaitIsCut) {
  constexpr std::size_t kAnnounced = 8 << 20;
  Threads threads;
  ListenerSettings settings;
  settings.payload_bytes_in_flight_max = kAnnounced;
  settings.payload_bytes_per_member_max = kAnnounced;
  settings.session.rate_window = milliseconds(500);
  settings.session.min_rate_bytes_per_s = 1'000;
  settings.session.drain_deadline = milliseconds(100);
  TestServer server(threads, settings);
  const auto good = *server.try_connect({}, pki().member_client(Role::kAggregator, NodeId(3), "west"));
  RawPeer peer(threads, server.port());
  v1::Envelope chunk;
  chunk.mutable_update_chunk()->set_index(1);
  ASSERT_TRUE(peer.write((*wire::encode_head(chunk, kAnnounced, {})).span()).ok());
  ASSERT_TRUE(peer.write(Buffer(kAnnounced - (1 << 20)).span()).ok());
  std::atomic<bool> is_done = false;
  std::jthread sending([&] {
    EXPECT_TRUE(exchange(threads, good, 1, 4 << 20).ok());
    is_done = true;
  });
  const Buffer drop(2'000);
  for (int i = 0; i < 300 && !is_done && server.hooks().count(reason::kSlow) == 0; ++i) {  // 20 KB/s for 30 s at most
    if (!peer.write(drop.span()).ok()) break;
    std::this_thread::sleep_for(milliseconds(100));
  }
  EXPECT_EQ(server.hooks().count(reason::kSlow), 1);
  sending.join();
  say_goodbye(threads, good);
}

// As slowly as is allowed: its member has a part of the memory alone the next time, on whichever connection.
TEST(SessionLimits, WhoHeldOthersUpSharesAPartTheNextTime) {
  constexpr std::size_t kAll = 8 << 20, kMost = kAll - 1'000;
  TestClock clock;
  Threads threads;
  ListenerSettings settings;
  const auto gate = std::make_shared<PayloadGate>(PayloadGate::Limits{kAll, kAll}, &clock);
  settings.session.payload_gate = gate;
  settings.session.rate_window = std::chrono::minutes(10);  // nobody is cut here
  TestServer server(threads, settings);
  const auto good = *server.try_connect({}, pki().member_client(Role::kAggregator, NodeId(3), "west"));
  v1::Envelope chunk;
  chunk.mutable_update_chunk()->set_index(1);
  {
    RawPeer slow(threads, server.port());
    ASSERT_TRUE(slow.write((*wire::encode_head(chunk, kAll, {})).span()).ok());
    ASSERT_TRUE(slow.write(Buffer(kMost).span()).ok());
    look_until([&] { return gate->bytes_used() == kAll; });
    const std::jthread sending([&] { EXPECT_TRUE(exchange(threads, good, 1, 4 << 20).ok()); });
    look_until([&] { return gate->someone_waits(); });
    clock.advance(std::chrono::seconds(9));
    ASSERT_TRUE(slow.write(Buffer(kAll - kMost).span()).ok());
  }
  look_until([&] { return gate->bytes_used() == 0; });
  const auto beside = gate->try_begin(3, 1'000, [] {});
  EXPECT_TRUE(beside->try_take(1'000, [] {}));
  EXPECT_FALSE(gate->try_begin(7, kAll, [] {})->try_take(kAll * 3 / 4, [] {}));
  EXPECT_TRUE(gate->try_begin(8, kAll, [] {})->try_take(kAll * 3 / 4, [] {}));
  say_goodbye(threads, good);
}

TEST(SessionLimits, AHeaderThatDoesNotEndIsCut) {
  Threads threads;
  ListenerSettings settings;
  settings.session.header_deadline = milliseconds(50);
  settings.session.drain_deadline = milliseconds(100);
  TestServer server(threads, settings);
  RawPeer peer(threads, server.port());
  ASSERT_TRUE(peer.write(ByteSpan(prefix_of(1000, 0)).first(3)).ok());
  server.hooks().wait_refused(reason::kSlow);
}

// ---- what is no frame --------------------------------------------------------------------------------------------

struct Hostile {
  const char* what;
  std::string bytes;
  std::string_view reason;
  const char* line;
};

std::string text_of(ByteSpan bytes) { return std::string(as_text(bytes)); }

TEST(SessionLimits, WhatIsNoFrameIsRefusedAndHurtsNobody) {
  Threads threads;
  TestServer server(threads);
  const auto good = server.connect_now();
  const Hostile cases[] = {
      {"no frame", "GET / HTTP/1.1\r\n\r\n", reason::kNotAFrame, "no frame of version 1"},
      {"empty header", text_of(prefix_of(0, 0)), reason::kNotAFrame, "malformed"},
      {"header", text_of(prefix_of((4u << 20) + 1, 0)), reason::kOversizeHeader, "a frame's header of 4194305 bytes"},
      {"largest header", text_of(prefix_of(0xffffffff, 0)), reason::kOversizeHeader, "4294967295 bytes"},
      {"payload", text_of(prefix_of(1, 0xffffffff)), reason::kOversizePayload, "a frame's payload of 4294967295"},
      {"bad header", text_of(prefix_of(4, 0)) + "\xff\xff\xff\xff", reason::kBadHeader, "the frame's header"},
      {"no body", text_of(prefix_of(2, 0)) + std::string("\x98\x06", 2), reason::kBadHeader, "the frame's header"},
  };
  std::map<std::string, int> expected;
  for (const Hostile& hostile : cases) {
    RawPeer peer(threads, server.port());
    ASSERT_TRUE(peer.write(as_byte_span(hostile.bytes)).ok());
    EXPECT_NE(peer.last_words().find(hostile.line), std::string::npos) << hostile.what;
    server.hooks().wait_refused(hostile.reason, ++expected[std::string(hostile.reason)]);
    EXPECT_TRUE(exchange(threads, good, 1, 10'000).ok()) << hostile.what;
  }
  say_goodbye(threads, good);
}

TEST(SessionLimits, AFloodOfPingsFillsNoOutbox) {
  Threads threads;
  TestServer server(threads);
  RawPeer peer(threads, server.port());
  v1::Envelope ping;
  ping.mutable_ping()->set_token(1);
  const Buffer one = *wire::encode_head(ping, 0, {});
  std::string flood;
  for (int i = 0; i < 10'000; ++i) flood += as_text(one.span());
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(peer.write(as_byte_span(flood)).ok());  // and reads no answer
  const auto good = server.connect_now();
  EXPECT_TRUE(exchange(threads, good, 1, 10'000).ok());
  say_goodbye(threads, good);
}

TEST(SessionLimits, KeyUpdatesBeyondWhatTheDataCallsForEndTheSession) {
  Threads threads;
  ListenerSettings settings;
  settings.session.key_updates_max = 8;
  TestServer server(threads, settings);
  const auto good = server.connect_now();
  RawPeer peer(threads, server.port());
  peer.update_keys(9);
  server.hooks().wait_refused(reason::kKeyUpdates);
  EXPECT_EQ(server.hooks().count(reason::kKeyUpdates), 1);
  EXPECT_TRUE(exchange(threads, good, 1, 10'000).ok());
  say_goodbye(threads, good);
}

TEST(SessionLimits, KeyUpdatesThatGoWithDataAreFine) {
  Threads threads;
  ListenerSettings settings;
  settings.session.key_updates_max = 1;
  TestServer server(threads, settings);
  SessionSettings mine;
  mine.rekey_bytes = 2 << 20;
  const auto session = server.connect_now(mine);
  for (std::uint64_t i = 0; i < 8; ++i) EXPECT_TRUE(exchange(threads, session, i, 4 << 20).ok()) << i;
  say_goodbye(threads, session);
  EXPECT_EQ(server.hooks().count(reason::kKeyUpdates), 0);
}

// ---- before admission --------------------------------------------------------------------------------------------

Awaitable<void> admit_after_one(std::shared_ptr<Session> session) {
  const auto first = co_await session->receive();
  if (!first.ok()) co_return;
  session->admitted();
  const Status sent = co_await session->send({first->header, {}});
  if (sent.ok()) co_await echo(session);
}

ListenerSettings for_strangers() {
  ListenerSettings settings;
  settings.session.stranger_bytes_max = 64 << 10;
  return settings;
}

TEST(SessionLimits, AStrangersHeaderIsBoundedAndItsPayloadNotTaken) {
  Threads threads;
  TestServer server(threads, for_strangers(), admit_after_one);
  RawPeer header(threads, server.port());
  ASSERT_TRUE(header.write(prefix_of(4u << 20, 0)).ok());
  EXPECT_NE(header.last_words().find("before the peer is admitted"), std::string::npos);
  RawPeer payload(threads, server.port());
  ASSERT_TRUE(payload.write(prefix_of(100, 1)).ok());
  EXPECT_NE(payload.last_words().find("a payload before the peer is admitted"), std::string::npos);
  server.hooks().wait_refused(reason::kBeforeAdmission, 2);
}

TEST(SessionLimits, AStrangersPingsAreCounted) {
  Threads threads;
  TestServer server(threads, for_strangers(), admit_after_one);
  RawPeer peer(threads, server.port());
  v1::Envelope ping;
  ping.mutable_ping()->set_token(1);
  const Buffer one = *wire::encode_head(ping, 0, {});
  std::string flood;
  while (flood.size() < 128 << 10) flood += as_text(one.span());
  (void)peer.write(as_byte_span(flood));  // it may be cut before the end
  server.hooks().wait_refused(reason::kBeforeAdmission);
}

TEST(SessionLimits, AStrangerMayChangeItsKeysAFewTimes) {
  Threads threads;
  TestServer server(threads, for_strangers(), admit_after_one);
  RawPeer peer(threads, server.port());
  peer.update_keys(5);
  server.hooks().wait_refused(reason::kKeyUpdates);
}

TEST(SessionLimits, WhoIsAdmittedMayBringWhatMembersBring) {
  Threads threads;
  TestServer server(threads, for_strangers(), admit_after_one);
  const auto session = server.connect_now();
  EXPECT_TRUE(exchange(threads, session, 1, 0).ok());
  EXPECT_TRUE(exchange(threads, session, 2, 1 << 20).ok());
  say_goodbye(threads, session);
}

TEST(SessionLimits, WhatHasNotComeOfAPayloadTakesNoMemory) {
  if (!BufferPool::kServesBuffers) GTEST_SKIP() << "buffers are the sanitizer's, and not counted";
  constexpr std::size_t kPeers = 8, kAnnounced = 8 << 20, kCame = (256 << 10) + 1;
  Threads threads;
  ListenerSettings settings;
  settings.payload_bytes_in_flight_max = settings.payload_bytes_per_member_max = kPeers * kAnnounced;
  TestServer server(threads, settings);
  v1::Envelope chunk;
  chunk.mutable_update_chunk()->set_index(1);
  const Buffer head = *wire::encode_head(chunk, kAnnounced, {});
  const Buffer came(kCame);
  BufferPool& pool = BufferPool::shared();
  pool.trim();  // the peak begins here
  const std::uint64_t before = pool.counts().used_bytes;
  std::vector<std::unique_ptr<RawPeer>> peers;
  for (std::size_t i = 0; i < kPeers; ++i) {
    peers.push_back(std::make_unique<RawPeer>(threads, server.port()));
    ASSERT_TRUE(peers.back()->write(head.span()).ok());
    ASSERT_TRUE(peers.back()->write(came.span()).ok());
  }
  look_until([&] { return pool.counts().used_bytes >= before + kPeers * (512 << 10); });
  EXPECT_LT(pool.counts().peak_bytes - before, kPeers * kAnnounced / 2);
}

TEST(SessionLimits, AnnouncedPayloadsOfOneMemberHoldNoOtherBack) {
  Threads threads;
  ListenerSettings settings;
  settings.payload_bytes_in_flight_max = 8 << 20;
  settings.payload_bytes_per_member_max = 8 << 20;
  TestServer server(threads, settings);
  const auto good = *server.try_connect({}, pki().member_client(Role::kAggregator, NodeId(3), "west"));
  v1::Envelope chunk;
  chunk.mutable_update_chunk()->set_index(1);
  std::vector<std::unique_ptr<RawPeer>> greedy;
  for (int i = 0; i < 16; ++i) {
    greedy.push_back(std::make_unique<RawPeer>(threads, server.port()));
    const Buffer head = *wire::encode_head(chunk, 8u << 20, {});
    ASSERT_TRUE(greedy.back()->write(head.span()).ok());
  }
  for (std::uint64_t i = 0; i < 5; ++i) EXPECT_TRUE(exchange(threads, good, i, 1 << 20).ok());
  say_goodbye(threads, good);
}

// Its memory is taken ahead once half has come, and the others share what is left: more of them than fit into it at
// once. None waits until the one that stalls is cut.
TEST(SessionLimits, WhoStallsHalfWayHoldsNoOtherBack) {
  if (!BufferPool::kServesBuffers) GTEST_SKIP() << "buffers are the sanitizer's, and not counted";
  constexpr std::size_t kAnnounced = 8 << 20, kOthers = 4 << 20;
  Threads threads;
  ListenerSettings settings;
  settings.payload_bytes_in_flight_max = 2 * kAnnounced;
  settings.payload_bytes_per_member_max = kAnnounced;
  settings.session.rate_window = std::chrono::minutes(1);
  TestServer server(threads, settings);
  std::vector<std::shared_ptr<Session>> good;
  for (std::uint32_t node = 10; node < 15; ++node) {  // not the one that stalls
    good.push_back(*server.try_connect({}, pki().member_client(Role::kAggregator, NodeId(node), "west")));
  }
  const std::uint64_t before = BufferPool::shared().counts().used_bytes;
  v1::Envelope chunk;
  chunk.mutable_update_chunk()->set_index(1);
  RawPeer stalled(threads, server.port());
  ASSERT_TRUE(stalled.write((*wire::encode_head(chunk, kAnnounced, {})).span()).ok());
  ASSERT_TRUE(stalled.write(Buffer(kAnnounced / 2 + 1).span()).ok());
  look_until([&] { return BufferPool::shared().counts().used_bytes >= before + kAnnounced; });
  {
    std::vector<std::jthread> sending;
    for (const auto& session : good) {
      sending.emplace_back([&threads, session] {
        for (std::uint64_t i = 0; i < 8; ++i) EXPECT_TRUE(exchange(threads, session, i, kOthers).ok());
      });
    }
  }
  bool is_there = false;
  server.hooks().wait([&](const RecordingHooks& seen) {
    is_there = seen.closed == 0;
    return true;
  });
  EXPECT_TRUE(is_there) << "they were done before the one that stalls was cut";
  for (const auto& session : good) say_goodbye(threads, session);
}

}  // namespace
}  // namespace fluvial::net
