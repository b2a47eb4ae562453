// Deadlines, leases, sampling and outcomes are functions of monotonic durations: the same events have the same outcome
// under wall clocks that stand still, jump by an hour forward or back, or run backwards.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <sstream>
#include <type_traits>

#include "coordinator/logic/federation.h"
#include "coordinator/logic/run_machine.h"

namespace fluvial::coordinator {
namespace {

using namespace std::chrono_literals;
using WallOf = std::function<WallTime(Duration since_start)>;

static_assert(!std::is_convertible_v<WallTime, TimePoint> && !std::is_constructible_v<TimePoint, WallTime>,
              "a wall time cannot become a deadline");

class StoryClock final : public Clock {
 public:
  explicit StoryClock(WallOf wall) : wall_(std::move(wall)) {}
  TimePoint now() const override { return now_; }
  WallTime wall_now() const override { return wall_(now_.time_since_epoch()); }
  void pass(Duration time) { now_ += time; }

 private:
  WallOf wall_;
  TimePoint now_;
};

constexpr NodeId kEurope(1);

class Story {
 public:
  explicit Story(WallOf wall) : clock_(std::move(wall)) {}

  std::string tell() {
    enrol(kEurope, Role::kAggregator);
    for (std::uint32_t i = 11; i <= 18; ++i) enrol(NodeId(i), Role::kSite);
    for (const auto& [id, node] : book_.nodes()) ask(id, NodeId(0));
    book_.child_joined(kEurope, book_.lease_of(kEurope)->epoch, Incarnation(1), clock_.now());
    everybody_up();
    act(machine_.sites_changed(book_.connected_sites(), clock_.now()));
    for (int i = 0; i < 6; ++i) round();
    book_.child_left(kEurope, clock_.now());
    for (const Duration away : {1s, 3s, 2s, 70s}) {
      clock_.pass(away);
      ask(NodeId(11), NodeId(0));
    }
    ask(NodeId(12), kEurope);
    book_.revoked(NodeId(13), clock_.wall_now(), clock_.now());
    EXPECT_TRUE(book_.nodes().at(NodeId(13)).revoked_at.has_value());
    ask(NodeId(13), NodeId(0));
    return told_.str();
  }

 private:
  void enrol(NodeId id, Role role) {
    NodeEntry node{.id = id, .role = role, .name = "node " + std::to_string(id.value()), .region = "eu"};
    node.weight_max = 100;
    node.enrolled_at = clock_.wall_now();
    book_.put(node, clock_.now());
  }
  void ask(NodeId id, NodeId unreachable) {
    const NodeEntry& node = book_.nodes().at(id);
    const std::string advertise = node.role == Role::kAggregator ? "host:1" : "";
    const auto wanted = book_.request_lease({id, node.role, node.name, advertise, unreachable}, clock_.now());
    told_ << clock_.now().time_since_epoch().count() << ": lease of " << id.value();
    if (!wanted.ok()) {
      told_ << ": " << wanted.error().to_string() << "\n";
      return;
    }
    LeaseEntry& lease = journal_[id];
    if (lease.epoch == Epoch(0) || lease.parent != wanted->parent) lease = {id, wanted->parent, Epoch(++epoch_)};
    const auto answer = book_.lease_granted(*wanted, lease, clock_.now());
    EXPECT_TRUE(answer.ok());
    told_ << ": " << answer->parent.value() << " in epoch " << answer->epoch.value() << "\n";
  }
  void everybody_up() {
    std::vector<MemberUp> up;
    for (std::uint32_t i = 11; i <= 18; ++i) {
      const LeaseEntry& lease = *book_.lease_of(NodeId(i));
      up.push_back({NodeId(i), lease.parent, lease.epoch, Incarnation(1)});
    }
    book_.members_changed(kEurope, up, {}, clock_.now());
  }
  void act(const Effects& effects) {
    for (const Effect& effect : effects) {
      if (const auto* attempt = std::get_if<RecordAttempt>(&effect)) {
        told_ << "round " << attempt->record.round.value() << " asks";
        for (const round::Participant& one : attempt->record.participants) told_ << " " << one.site.value();
        told_ << "\n";
      }
      if (const auto* timer = std::get_if<SetTimer>(&effect)) {
        timer_ = timer->at;
        told_ << "timer " << timer->at.time_since_epoch().count() << "\n";
      }
      if (const auto* made = std::get_if<Finalise>(&effect)) {
        closed_ = true;
        told_ << clock_.now().time_since_epoch().count() << ": closed with " << made->record.contributors.size()
              << "\n";
      }
    }
  }
  // Site 18 hangs; the others take 3 s and a little.
  void round() {
    closed_ = false;
    const TimePoint opened = clock_.now();
    const std::vector<round::Participant> participants = machine_.attempt().participants;
    act(machine_.attempt_recorded(machine_.step(), clock_.now()));
    for (const round::Participant& one : participants) {
      if (one.site == SiteId(18)) continue;
      clock_.pass(opened + 3s + 10ms * one.site.value() - clock_.now());
      round::ContributorSet in;
      EXPECT_TRUE(
          in.add({.site = one.site, .lease = one.lease, .weight = 1, .times = {clock_.now() - opened, {}, {}}}).ok());
      act(machine_.arrived(ArrivalId(++arrivals_), {in, {}, {}}));
      act(machine_.taken(ArrivalId(arrivals_), in, clock_.now()));
    }
    while (!closed_) {
      clock_.pass(timer_ - clock_.now());
      act(machine_.tick(clock_.now()));
    }
    const RoundId committed = machine_.attempt().round;
    machine_.finalised(machine_.step(), {RunId(1), ModelVersion(committed.value()), {}, 40}, clock_.now());
    act(machine_.commit_recorded(machine_.step(), clock_.now()));
  }
  static RunStart start() {
    round::Plan plan;
    plan.name = "story";
    plan.rounds = 100;
    plan.quorum = 4;
    plan.participants_fraction = 0.8;
    return {.run = RunId(1), .plan = plan, .model = {RunId(1), {}, {}, 40}, .epoch = Epoch(5)};
  }

  StoryClock clock_;
  coordinator::Federation book_{FailoverSettings{5s, 60s, 30s}};
  RunMachine machine_{start()};
  std::map<NodeId, LeaseEntry> journal_;
  std::uint64_t epoch_ = 0;
  std::uint64_t arrivals_ = 0;
  TimePoint timer_;
  bool closed_ = false;
  std::ostringstream told_;
};

WallTime wall(Duration since) { return WallTime(std::chrono::duration_cast<std::chrono::milliseconds>(since)); }

TEST(Clocks, AWallClockThatJumpsAnHourChangesNothing) {
  const std::string told = Story([](Duration since) { return wall(since); }).tell();
  EXPECT_NE(told.find("round 6 asks"), std::string::npos) << told;
  EXPECT_EQ(told, Story([](Duration since) { return wall(since > 20s ? since + 1h : since); }).tell());
  EXPECT_EQ(told, Story([](Duration since) { return wall(since > 20s ? since - 1h : since); }).tell());
  EXPECT_EQ(told, Story([](Duration since) { return wall(24h - since); }).tell());
}

}  // namespace
}  // namespace fluvial::coordinator
