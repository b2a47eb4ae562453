#include "core/net/session.h"

#include "core/net/test_support.h"

namespace fluvial::net {
namespace {

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

}  // namespace
}  // namespace fluvial::net
