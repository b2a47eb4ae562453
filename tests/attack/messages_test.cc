// What a member says that it may not: a parent of what lies far ahead, a child of whom it has not.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "core/digest/sha256.h"
#include "core/wire/mapping.h"
#include "core/wire/record_mapping.h"
#include "tests/attack/fixture.h"

namespace fluvial::attack {
namespace {

class MessageAttack : public AttackTest {
 protected:
  // The round that the sites are in, as a parent may tell it, but of a round far ahead.
  v1::Envelope far_opening(RoundId round) {
    wire::Opening opening;
    opening.run = RunId(run_);
    opening.round = round;
    opening.attempt = AttemptId(1);
    opening.epoch = Epoch(1'000'000);
    opening.base = {RunId(run_), ModelVersion(round.value() - 1), Digest{std::byte{7}}, 4'000};
    opening.plan = plan(round.value() + 1);
    opening.scale_bits = 40;
    opening.value_count = 1'000;
    const auto listed = federation_->admin().get("/v1/nodes").value();
    for (const cli::json::value& node : cli::array_member(listed, "nodes")) {
      if (cli::text_member(node, "role") != "site") continue;
      const auto id = static_cast<std::uint32_t>(cli::count_member(node, "id"));
      opening.participants.push_back({SiteId(id), Epoch(cli::count_member(node, "lease_epoch")), 1'000});
    }
    opening.soft_left = opening.hard_left = std::chrono::seconds(60);
    return wire::to_envelope(opening);
  }
};

TEST_F(MessageAttack, ARoundFarAheadThatTheCoordinatorDidNotOpenIsNoRound) {
  integration::TcpGate gate;
  cli::FederationShape shape{.sites = 2, .aggregators = 1};
  put_before_aggregator(gate, shape, "aggregator-1");
  start(std::move(shape));
  run_ = 1;  // soon: the sites have nothing to do yet, and would begin at once
  const std::uint16_t honest = gate.target();
  const v1::Envelope opening = far_opening(RoundId(1'000'000));
  std::atomic<int> followed{0};
  // The aggregator's machine is another's now: its own key, on its own address.
  HostileParent hostile(as_parent(stolen("aggregator-1")), [&](Connection& child, const v1::Hello&) {
    if (!child.send(welcome()).ok() || !child.send(opening).ok()) return;
    for (Result<v1::Envelope> said = child.receive(); said.ok(); said = child.receive()) {
      if (said->has_model_request()) {
        ++followed;
        return;
      }
    }
  });
  gate.set_target(hostile.port());
  gate.cut_all(integration::Way::kUp);
  gate.cut_all(integration::Way::kDown);
  ASSERT_TRUE(hostile.wait_visits(2));
  ASSERT_EQ(followed, 0) << "a site went for the model of a round that nobody opened";
  gate.set_target(honest);
  ASSERT_TRUE(federation_->wait_connected("sites_connected", 2).ok());
  start_held_run();
  expect_rounds_go_on();
}

// That the site contradicts itself, and what is shown for it is made up.
v1::Refusal slander(std::uint32_t site) {
  v1::Refusal refusal;
  refusal.set_site(site);
  refusal.set_code(wire::code_to_proto(Code::kConflict));
  refusal.set_message("two contents, says mallory");
  for (const char content : {'a', 'b'}) {
    v1::Contributor& one = *refusal.add_proof();
    one.set_site(site);
    one.set_weight(1);
    one.set_sha256(std::string(32, content));
    one.set_incarnation(1);
    one.set_submission(1);
    one.set_signature(std::string(64, content));
  }
  return refusal;
}

// A quarantine lasts until a person ends it. An aggregator may leave out a site of its region; it cannot shut it out.
TEST_F(MessageAttack, AnAggregatorsWordPutsNobodyInQuarantine) {
  start(2, 1);
  start_held_run();
  Result<Connection> mallory = join_coordinator(stolen("aggregator-1"), "127.0.0.1:1");
  ASSERT_TRUE(mallory.ok()) << mallory.error().message;
  v1::Envelope up;
  v1::Envelope lie;
  v1::PartialBegin& begin = *lie.mutable_partial_begin();
  const auto listed = federation_->admin().get("/v1/nodes").value();
  std::uint32_t parent = 0;
  for (const cli::json::value& node : cli::array_member(listed, "nodes")) {
    if (cli::text_member(node, "role") == "aggregator")
      parent = static_cast<std::uint32_t>(cli::count_member(node, "id"));
  }
  for (const cli::json::value& node : cli::array_member(listed, "nodes")) {
    if (cli::text_member(node, "role") != "site") continue;
    const auto id = static_cast<std::uint32_t>(cli::count_member(node, "id"));
    v1::Member& member = *up.mutable_member_change()->add_up();
    member.set_node(id);
    member.set_name(cli::text_member(node, "name"));
    member.set_role(v1::NODE_ROLE_SITE);
    member.set_parent(parent);
    member.set_lease_epoch(cli::count_member(node, "lease_epoch"));
    member.set_incarnation(1);
    *begin.add_refusals() = slander(id);
  }
  const v1::Refusal second = begin.refusals(1);
  begin.mutable_refusals()->RemoveLast();
  ASSERT_TRUE(mallory->send(up).ok());
  Result<v1::Envelope> said = mallory->receive();
  while (said.ok() && !said->has_round_open()) said = mallory->receive();
  ASSERT_TRUE(said.ok()) << said.error().message;
  const v1::RoundOpen& open = said->round_open();
  begin.set_run(open.run());
  begin.set_round(open.round());
  begin.set_attempt(open.attempt());
  begin.set_epoch(open.epoch());
  begin.set_sequence(1);
  begin.set_incarnation(1);
  begin.set_scale_bits(open.scale_bits());
  ASSERT_TRUE(mallory->send(lie).ok());
  v1::Envelope end;
  end.mutable_partial_end()->set_sha256(wire::digest_to_proto(sha256({})));
  ASSERT_TRUE(mallory->send(end).ok());

  wait_log("coordinator", "two contents, says mallory");
  wait_log("coordinator", "they go on taking part");
  // And again: it is not heard about the first site for a while, and about the second it is.
  begin.set_sequence(2);
  *begin.add_refusals() = second;
  ASSERT_TRUE(mallory->send(lie).ok() && mallory->send(end).ok());
  wait_log("coordinator", "count=1 site=site-2");
  EXPECT_EQ(log_of("coordinator").find("count=2"), std::string::npos);
  begin.set_sequence(3);  // nor by leaving signatures out
  for (v1::Refusal& refusal : *begin.mutable_refusals()) {
    for (v1::Contributor& one : *refusal.mutable_proof()) one.clear_signature();
  }
  ASSERT_TRUE(mallory->send(lie).ok() && mallory->send(end).ok() && mallory->send(hello()).ok());
  ASSERT_TRUE(mallory->ending().has_value()) << "once too often: all before it has been read";
  const auto after = federation_->admin().get("/v1/nodes").value();
  EXPECT_THAT(cli::pretty(after), testing::Not(testing::HasSubstr("\"quarantined\": true")));
  release();
}

TEST_F(MessageAttack, AnAggregatorClaimsNobodyWhoIsNotBelowIt) {
  start(2, 1);
  start_held_run();
  Result<Connection> mallory = join_coordinator(enrolled("mallory", "aggregator"), "127.0.0.1:1");
  ASSERT_TRUE(mallory.ok()) << mallory.error().message;
  v1::Envelope message;
  v1::MemberChange& change = *message.mutable_member_change();
  for (std::uint32_t node = 2; node < 150'000; ++node) {  // from the first sites on
    v1::Member& member = *change.add_up();
    member.set_node(node);
    member.set_name(fmt::format("s-{}", node));
    member.set_role(v1::NODE_ROLE_SITE);
    member.set_lease_epoch(1'000);
    member.set_incarnation(1);
  }
  const std::size_t log_before = log_bytes("coordinator");
  ASSERT_TRUE(mallory->send(message).ok());
  ASSERT_TRUE(mallory->send(hello()).ok());  // once too often: when the session has ended, all before it has been read
  ASSERT_TRUE(mallory->ending().has_value());
  EXPECT_EQ(parent_of("site-1"), "aggregator-1");
  EXPECT_EQ(parent_of("site-2"), "aggregator-1");
  EXPECT_LT(log_bytes("coordinator") - log_before, 65'536U);
  expect_rounds_go_on();
}

}  // namespace
}  // namespace fluvial::attack
