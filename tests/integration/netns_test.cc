// A federation whose nodes are in a network of their own, with long, thin and lossy wires between its regions.
#include "tests/integration/netns.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>

#include "core/base/testing.h"
#include "core/local/fd.h"
#include "tests/integration/harness.h"

namespace fluvial::integration {
namespace {

using cli::json::value;

constexpr std::uint64_t kManyRounds = 10'000;  // more than a test waits for

class NetworkTest : public FederationTest {
 protected:
  void SetUp() override {
    auto made = VirtualNetwork::create();
    if (!made.ok()) GTEST_SKIP() << "no virtual network here: " << made.error().message;
    network_ = std::move(*made);
  }
  // The nodes say goodbye over it.
  void TearDown() override { supervisor_->stop(); }

  // The coordinator in one place, and two regions of two sites, each in one.
  void start_regions(const Wire& wire) {
    cli::FederationShape shape{.sites = 4, .aggregators = 2};
    for (const char* role : {"coordinator", "aggregator", "site"}) {
      shape.arguments[role] = {"--session-heartbeat-interval-ms",  "300", "--session-heartbeat-timeout-ms", "3000",
                               "--session-reconnect-delay-max-ms", "500"};
    }
    shape.arguments["site"].insert(shape.arguments["site"].end(), {"--outcome-interval-ms", "500"});
    place(shape, "coordinator", "core");
    for (const int region : {1, 2}) {
      const std::string name = fmt::format("region-{}", region);
      network_->set_wire("core", name, wire);
      place(shape, fmt::format("aggregator-{}", region), name);
      place(shape, fmt::format("site-{}", region), name);
      place(shape, fmt::format("site-{}", region + 2), name);
    }
    if (!HasFatalFailure()) start(std::move(shape));
  }
  void place(cli::FederationShape& shape, const std::string& node, const std::string& where) {
    auto added = network_->add(where);
    ASSERT_TRUE(added.ok()) << added.error().message;
    shape.places[node] = std::move(*added);
  }
  // Workers that wait for `hold`, and from the second round on for `next`.
  void add_held_workers(RoundGate& hold, RoundGate& next) {
    for (std::uint64_t i = 1; i <= 4; ++i) {
      add_worker(i, [&next, train = gated(hold, i)](const local::Task& task, std::span<const float> base,
                                                    std::span<float> local) {
        next.wait_at(task.round.value());
        return train(task, base, local);
      });
    }
  }

  std::unique_ptr<VirtualNetwork> network_;
};

// A socket in a place; it stays there.
local::UniqueFd datagram_socket(const cli::Place& place) {
  local::UniqueFd made;
  place.reach([&] {
    made = local::UniqueFd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    ::inet_pton(AF_INET, place.host.c_str(), &address.sin_addr);
    EXPECT_EQ(::bind(made.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  });
  return made;
}

TEST_F(NetworkTest, WiresDelayLoseAndAreCut) {
  const auto here = network_->add("here");
  const auto there = network_->add("there");
  ASSERT_TRUE(here.ok() && there.ok());
  const local::UniqueFd from = datagram_socket(*here);
  const local::UniqueFd to = datagram_socket(*there);
  sockaddr_in address{};
  socklen_t size = sizeof address;
  ASSERT_EQ(::getsockname(to.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  ASSERT_EQ(::connect(from.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  const auto send = [&](char what) { EXPECT_EQ(::send(from.get(), &what, 1, 0), 1); };
  const auto receive = [&] {
    char what = 0;
    EXPECT_EQ(::recv(to.get(), &what, 1, 0), 1);
    return what;
  };
  const auto seen = [&] { return network_->counts().carried + network_->counts().lost; };
  constexpr auto kDelay = std::chrono::milliseconds(20);
  network_->set_wire("here", "there", {.delay = kDelay});
  const auto begun = std::chrono::steady_clock::now();
  send('a');
  EXPECT_EQ(receive(), 'a');
  EXPECT_GE(std::chrono::steady_clock::now() - begun, kDelay);
  EXPECT_EQ(network_->counts().lost, 0U);

  network_->set_wire("here", "there", {.loss = 0.5});
  while (network_->counts().lost < 10) {
    const std::uint64_t before = seen();
    send('b');
    look_until([&] { return seen() != before; });  // the wire counts and tells nobody
  }
  network_->set_wire("here", "there", {});
  network_->set_cut_off("there", true);
  for (int i = 0; i < 10; ++i) send('c');
  look_until([&] { return network_->counts().cut_off >= 10; });
  network_->set_cut_off("there", false);
  send('d');
  char last = receive();
  for (; last == 'b'; last = receive()) continue;
  EXPECT_EQ(last, 'd') << "nothing came while it was cut off";
}

TEST_F(NetworkTest, RoundsAreExactOverALongThinLossyNetwork) {
  start_regions({.delay = std::chrono::milliseconds(20), .rate_bytes_per_s = 2'000'000, .loss = 0.01});
  if (HasFatalFailure()) return;
  add_workers();
  const std::uint64_t run = start_run(plan(4), 50'000);
  wait_state(run, "done");
  expect_exact(run, 4);
  EXPECT_GT(network_->counts().lost, 0U) << "of " << network_->counts().carried << " packets";
}

TEST_F(NetworkTest, APartitionedRegionIsLateAndItsUpdatesTravelWithTheNextOnes) {
  start_regions({.delay = std::chrono::milliseconds(2)});
  if (HasFatalFailure()) return;
  RoundGate& hold = hold_from(1);
  RoundGate& next = hold_from(2);
  add_held_workers(hold, next);
  round::Plan wanted = plan(kManyRounds);
  wanted.quorum = 2;
  wanted.adaptive_deadlines = false;
  wanted.soft_deadline = std::chrono::milliseconds(2'000);
  const std::uint64_t run = start_run(wanted, 1'000);
  hold.wait_arrival(1, 4);
  network_->set_cut_off("region-2", true);
  hold.open();
  const value first = wait_committed(run, 1);
  EXPECT_TRUE(names(first, "contributors", "site-1") && names(first, "contributors", "site-3"));
  EXPECT_EQ(cli::count_member(first, "late"), 2U);
  wait_log("coordinator", "child left member=aggregator-2");
  wait_log("aggregator-2", "lost the parent");
  network_->set_cut_off("region-2", false);
  for (const std::size_t site : {2, 4}) {
    wait_status(site, [](const value& status) { return outcomes(status, "late") == 1; });
  }
  next.open();
  for (const char* site : {"site-2", "site-4"}) {
    wait_event(run, [&](const value& event) { return is_committed(event, 1) && names(event, "contributors", site); });
  }
  expect_exact(run);
}

TEST_F(NetworkTest, WithoutItsCoordinatorEverythingWaitsAndGoesOnAfterwards) {
  start_regions({.delay = std::chrono::milliseconds(2)});
  if (HasFatalFailure()) return;
  RoundGate& hold = hold_from(2);
  for (std::uint64_t i = 1; i <= 4; ++i) add_worker(i, gated(hold, i));
  const std::uint64_t run = start_run(plan(3), 20'000);
  hold.wait_arrival(2, 4);
  network_->set_cut_off("core", true);
  hold.open();
  for (const char* node : {"aggregator-1", "aggregator-2"}) wait_log(node, "lost the parent");
  wait_log("coordinator", "child left member=aggregator-1");
  wait_log("coordinator", "child left member=aggregator-2");
  EXPECT_EQ(committed(run).size(), 1U);
  network_->set_cut_off("core", false);
  wait_state(run, "done");
  expect_exact(run, 3);
}

}  // namespace
}  // namespace fluvial::integration
