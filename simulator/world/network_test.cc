#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "simulator/world/test_support.h"

namespace fluvial::simulator {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;

TEST(Network, FramesComeInOrderAfterTheDelay) {
  Town town({});
  town.at(1).connect();
  town.run_for(milliseconds(100));
  for (std::uint64_t i = 0; i < 3; ++i) EXPECT_TRUE(town.at(1).ping(i));
  town.run_for(milliseconds(100));
  EXPECT_THAT(town.words(0), ElementsAre("accepted", "ping 0", "ping 1", "ping 2"));
  EXPECT_THAT(town.words(1), ElementsAre("connected"));
  EXPECT_EQ(town.heard[0][1].at.time_since_epoch(), milliseconds(110));
  EXPECT_EQ(town.heard[1][0].at.time_since_epoch(), milliseconds(20));
}

TEST(Network, AHostsSessionsShareItsRates) {
  Scenario scenario;
  scenario.coordinator_links.down_bytes_per_s = 1e6;
  Town town(scenario);
  town.at(1).connect();
  town.at(2).connect();
  town.run_for(milliseconds(100));
  town.at(1).chunk(0, 500'000);
  town.at(2).chunk(1, 500'000);
  town.run_for(seconds(2));
  const auto at = [&](std::size_t i) {
    return std::chrono::duration<double>(town.heard[0][i].at.time_since_epoch()).count();
  };
  EXPECT_NEAR(at(2), 0.1 + 0.01 + 0.5, 0.001);
  EXPECT_NEAR(at(3), 0.1 + 0.01 + 1.0, 0.001);  // it waited for the other
}

TEST(Network, AFullOutboxSaysWhenThereIsRoom) {
  Scenario scenario;
  scenario.site_links.up_bytes_per_s = 1e6;
  scenario.session.outbox_bytes_max = 100'000;
  Town town(scenario);
  town.at(1).connect();
  town.run_for(milliseconds(100));
  for (std::uint64_t i = 0; i < 5; ++i) town.at(1).chunk(i, 30'000);
  EXPECT_EQ(town.world.network().writable_bytes(HostId(1), town.at(1).session()), 0u);
  town.run_for(seconds(1));
  EXPECT_THAT(town.words(1), ElementsAre("connected", "writable"));
  EXPECT_EQ(town.world.network().writable_bytes(HostId(1), town.at(1).session()), 100'000u);
  EXPECT_GT(town.world.network().traffic(HostId(1)).outbox_bytes_peak, 150'000u);
}

TEST(Network, AnOutboxThatIsFullToTheByteSaysSoToo) {
  Scenario scenario;
  scenario.site_links.up_bytes_per_s = 1e6;
  const auto peak_with = [&](std::uint64_t outbox_bytes_max) {
    scenario.session.outbox_bytes_max = outbox_bytes_max;
    Town town(scenario);
    town.at(1).connect();
    town.run_for(milliseconds(100));
    town.at(1).chunk(0, 30'000);
    town.run_for(seconds(1));
    if (outbox_bytes_max < 1'000'000) {
      EXPECT_THAT(town.words(1), ElementsAre("connected", "writable"));
    }
    return town.world.network().traffic(HostId(1)).outbox_bytes_peak;
  };
  peak_with(peak_with(1'000'000));
}

TEST(Network, ACutStallsAndThenPasses) {
  Town town({});
  town.at(1).connect();
  town.run_for(milliseconds(100));
  town.world.network().cut_host(HostId(1), Network::Direction::kOut);
  town.at(1).ping(1);
  town.at(0).ping(2);
  town.run_for(milliseconds(500));
  EXPECT_THAT(town.words(0), ElementsAre("accepted"));
  EXPECT_THAT(town.words(1), ElementsAre("connected", "ping 2")) << "the other direction works";
  town.world.network().heal_host(HostId(1), Network::Direction::kOut);
  town.run_for(milliseconds(500));
  EXPECT_THAT(town.words(0), ElementsAre("accepted", "ping 1"));
}

TEST(Network, ALongOneWayCutEndsTheSessionAtBothSides) {
  Town town({});
  town.at(1).connect();
  town.run_for(milliseconds(100));
  town.world.network().cut_host(HostId(1), Network::Direction::kOut);
  town.run_for(seconds(10));
  EXPECT_THAT(town.words(0), ElementsAre("accepted", "closed: no sign of life"));
  EXPECT_THAT(town.words(1), ElementsAre("connected", "closed: the peer heard nothing and closed"));
  EXPECT_EQ(town.heard[0][1].at.time_since_epoch(), milliseconds(2100));
  EXPECT_EQ(town.world.network().open_sessions(), 0u);
}

TEST(Network, ACutOffRegionIsNoticedBySilence) {
  Town town({});
  town.at(1).connect();
  town.run_for(milliseconds(100));
  for (const auto d : {Network::Direction::kIn, Network::Direction::kOut}) town.world.network().cut_host(kRoot, d);
  town.at(2).connect();
  town.run_for(seconds(10));
  EXPECT_THAT(town.words(0), ElementsAre("accepted", "closed: no sign of life"));
  EXPECT_THAT(town.words(1), ElementsAre("connected", "closed: no sign of life"));
  EXPECT_THAT(town.words(2), ElementsAre("closed: no answer"));
  EXPECT_EQ(town.world.network().open_sessions(), 0u);
}

TEST(Network, AKilledProcessIsNoticedAtOnceALostMachineLater) {
  for (const Death death : {Death::kProcess, Death::kMachine}) {
    Town town({});
    town.at(1).connect();
    town.run_for(milliseconds(100));
    town.world.kill_for(HostId(1), death, seconds(5));
    EXPECT_FALSE(town.at(0).ping(0) && town.world.is_up(HostId(1)));
    town.run_for(milliseconds(100));
    const bool told = town.words(0).size() == 2;
    EXPECT_EQ(told, death == Death::kProcess);
    town.run_for(seconds(3));
    EXPECT_EQ(town.words(0).size(), 2u);
    EXPECT_EQ(town.world.process(HostId(1)), nullptr);
    town.run_for(seconds(3));
    EXPECT_NE(town.world.process(HostId(1)), nullptr) << "it was started again";
    EXPECT_EQ(town.world.starts(HostId(1)), 2u);
    EXPECT_EQ(town.world.network().open_sessions(), 0u);
  }
}

TEST(Network, AHalfOpenSessionIsNoticedAtOneSideLater) {
  Town town({});
  town.at(1).connect();
  town.run_for(milliseconds(100));
  ASSERT_TRUE(town.world.network().half_open(0));
  EXPECT_THAT(town.words(1), ElementsAre("connected", "closed: the connection was reset"));
  town.at(0).ping(3);  // into the void
  town.run_for(milliseconds(1900));
  EXPECT_THAT(town.words(0), ElementsAre("accepted"));
  town.run_for(milliseconds(200));
  EXPECT_THAT(town.words(0), ElementsAre("accepted", "closed: no sign of life"));
  EXPECT_EQ(town.world.network().open_sessions(), 0u);
}

TEST(Network, ClosingLetsWhatWasSentArrive) {
  Town town({});
  town.at(1).connect();
  town.run_for(milliseconds(100));
  town.at(1).ping(1);
  town.world.network().close(HostId(1), town.at(1).session());
  EXPECT_FALSE(town.at(1).ping(2));
  town.run_for(milliseconds(100));
  EXPECT_THAT(town.words(0), ElementsAre("accepted", "ping 1", "closed: the peer closed the session"));
  EXPECT_EQ(town.world.network().open_sessions(), 0u);
}

TEST(Network, ControlFramesMayBeDoubledAndOvertaken) {
  Town town({}, 3);
  town.at(1).connect();
  town.run_for(milliseconds(100));
  town.world.network().set_faults({.duplicate = 1});
  town.at(1).ping(1);
  town.at(1).chunk(7, 10);
  town.run_for(milliseconds(100));
  EXPECT_THAT(town.words(0), ElementsAre("accepted", "ping 1", "ping 1", "chunk 7 of 10"));
  town.world.network().set_faults({.reorder = 1});
  for (std::uint64_t i = 2; i < 5; ++i) town.at(1).ping(i);
  town.run_for(milliseconds(100));
  const std::vector<std::string> words = town.words(0);
  EXPECT_THAT(std::vector<std::string>(words.end() - 3, words.end()), ElementsAre("ping 2", "ping 4", "ping 3"));
}

TEST(Network, ABrokenSessionLosesWhatIsInFlight) {
  Town town({});
  town.at(1).connect();
  town.run_for(milliseconds(100));
  town.at(1).ping(1);
  town.world.network().set_faults({.break_session = 1});
  town.at(1).ping(2);
  town.run_for(milliseconds(100));
  EXPECT_THAT(town.words(0), ElementsAre("accepted", "closed: the connection broke"));
  EXPECT_THAT(town.words(1), ElementsAre("connected", "closed: the connection broke"));
}

TEST(Network, APayloadThatStandsForALargerOneIsChargedAsThat) {
  Scenario scenario;
  scenario.site_links.up_bytes_per_s = 1e6;
  scenario.session.outbox_bytes_max = 500'000;
  Town town(scenario);
  Network& network = town.world.network();
  network.set_payload_scale({.update = 1000});
  town.at(1).connect();
  town.run_for(milliseconds(100));
  town.at(1).chunk(0, 1000);
  EXPECT_EQ(network.writable_bytes(HostId(1), town.at(1).session()), 0u);
  v1::Envelope end;  // which brings as many integers as before
  end.mutable_update_end();
  network.send(HostId(1), town.at(1).session(), end, Payload::of(Buffer(1000)));
  town.run_for(seconds(2));
  const auto at = [&](std::size_t i) {
    return std::chrono::duration<double>(town.heard[0][i].at.time_since_epoch()).count();
  };
  EXPECT_EQ(town.heard[0][1].what, "chunk 0 of 1000") << "what arrives is what was sent";
  EXPECT_NEAR(at(1), 0.1 + 0.01 + 1.0, 0.001);
  EXPECT_NEAR(at(2) - at(1), 0.001, 0.0005);
  EXPECT_NEAR(static_cast<double>(network.traffic(HostId(1)).up_bytes), 1'001'000, 100);
}

}  // namespace
}  // namespace fluvial::simulator
