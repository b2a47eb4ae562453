// Whoever shows a key that is not the one that was named, or that was revoked.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/attack/fixture.h"

namespace fluvial::attack {
namespace {

using ::testing::HasSubstr;

constexpr const char* kRegion = "region-1";  // aggregator-1's

class IdentityAttack : public AttackTest {
 protected:
  // What an aggregator says to a member that comes with this lease, and asks for the model at once.
  std::vector<v1::Envelope> visit(const identity::Credentials& credentials, const std::string& aggregator,
                                  std::uint64_t lease_epoch) {
    Result<Connection> connection = Connection::open(port_of(aggregator), as_child(credentials));
    std::vector<v1::Envelope> said;
    if (!connection.ok()) return said;
    v1::Envelope request;
    v1::ModelRef& model = *request.mutable_model_request()->mutable_model();
    model = model_of_round_one();
    if (!connection->send(hello(lease_epoch)).ok() || !connection->send(request).ok()) return said;
    while (said.size() < 2) {
      Result<v1::Envelope> message = connection->receive();
      if (!message.ok()) break;
      said.push_back(std::move(*message));
    }
    return said;
  }
  v1::ModelRef model_of_round_one() {
    const auto found = federation_->admin().get(fmt::format("/v1/models/{}/1", run_));
    EXPECT_TRUE(found.ok()) << found.error().message;
    v1::ModelRef model;
    model.set_run(run_);
    model.set_version(1);
    model.set_bytes(4'000);
    const Buffer digest = from_hex(cli::text_member(*found, "sha256")).value();
    model.set_sha256(std::string(as_text(digest.span())));
    return model;
  }
};

TEST_F(IdentityAttack, ARevokedAggregatorOnAnothersAddressIsNobodysParent) {
  integration::TcpGate gate;
  cli::FederationShape shape{.sites = 2, .aggregators = 2};
  put_before_aggregator(gate, shape, "aggregator-2");
  start(std::move(shape));
  start_held_run();
  const identity::Credentials key = stolen("aggregator-1");
  revoke("aggregator-1");
  HostileParent impostor(as_parent(key), [](Connection& child, const v1::Hello&) { (void)child.send(welcome()); });
  gate.set_target(impostor.port());
  gate.cut_all(integration::Way::kUp);
  gate.cut_all(integration::Way::kDown);
  ASSERT_TRUE(impostor.wait_visits(1));
  ASSERT_EQ(impostor.greeted(), 0U) << "a site took it for its parent";
  wait_log("site-2", "another node than the lease names");
  expect_rounds_go_on();  // the site finds another way, while the impostor stays
  EXPECT_EQ(impostor.greeted(), 0U);
}

TEST_F(IdentityAttack, AKeyThatWasRevokedStaysRevokedWhenItsOwnerEnrolsAnew) {
  start(2, 0);
  start_held_run();
  const identity::Credentials old = enrolled("hospital-a");
  ASSERT_TRUE(ask_lease(old).ok());
  revoke("hospital-a");
  EXPECT_FALSE(ask_lease(old).ok());
  const identity::Credentials owner = enrolled("hospital-a");
  federation_->kill("coordinator");  // what it refuses must not be in its memory alone
  ASSERT_TRUE(federation_->restart("coordinator").ok());
  const Result<Leased> thief = ask_lease(old);
  ASSERT_FALSE(thief.ok()) << "the stolen key has a lease";
  EXPECT_THAT(thief.error().message, HasSubstr("revoked"));
  const Result<Leased> lease = ask_lease(owner);
  EXPECT_TRUE(lease.ok()) << lease.error().message;
  EXPECT_FALSE(ask_lease(old).ok());
  expect_rounds_go_on();
}

TEST_F(IdentityAttack, ATokenMadeBeforeARevocationDoesNotLiftIt) {
  start(2, 0);
  start_held_run();
  const std::string early = new_token("hospital-a");
  const identity::Credentials old = enrolled("hospital-a");
  revoke("hospital-a");
  const Result<tree::Enrolment> lifted = enrol(early);
  ASSERT_FALSE(lifted.ok()) << "it let its holder in again";
  EXPECT_THAT(lifted.error().message, HasSubstr("revoked"));
  EXPECT_FALSE(ask_lease(old).ok());
  const Result<Leased> owner = ask_lease(enrolled("hospital-a"));
  EXPECT_TRUE(owner.ok()) << owner.error().message;
  expect_rounds_go_on();
}

TEST_F(IdentityAttack, ARevocationEndsASessionBelowAnAggregatorAndTheOldKeyOpensNoOther) {
  start(2, 1);
  start_held_run(2);
  const identity::Credentials old = enrolled("mallory", "site", kRegion);
  const Result<Leased> lease = ask_lease(old);
  ASSERT_TRUE(lease.ok()) << lease.error().message;
  const std::uint16_t port = port_of("aggregator-1");
  Result<Connection> session = join(old, *lease, port, 0);
  ASSERT_TRUE(session.ok()) << session.error().message;
  revoke("mallory");
  const std::optional<Error> ended = session->ending();
  ASSERT_TRUE(ended.has_value()) << "the session below the aggregator goes on";
  EXPECT_EQ(ended->code, Code::kPermissionDenied) << ended->message;
  EXPECT_FALSE(join(old, *lease, port, 0).ok());
  enrolled("mallory", "site", kRegion);
  EXPECT_FALSE(join(old, *lease, port, 0).ok()) << "its owner is back, the stolen key is not";
  expect_rounds_go_on();
}

TEST_F(IdentityAttack, TwoMachinesWithOneIdentityAreSaidToBeTwo) {
  start(2, 0);
  start_held_run();
  const identity::Credentials key = enrolled("hospital-a");
  for (const std::uint64_t process : {1, 2, 1, 2}) {
    Result<Connection> session = Connection::open(coordinator_port(), as_child(key));
    ASSERT_TRUE(session.ok() && session->send(hello()).ok() && session->receive().ok());
    v1::Envelope request = lease_request();
    request.mutable_lease_request()->set_process(process);
    ASSERT_TRUE(session->send(request).ok());
    const Result<v1::Envelope> grant = session->receive();
    ASSERT_TRUE(grant.ok() && grant->has_lease_grant());
  }
  EXPECT_EQ(metric("coordinator", "identities_held_twice"), 1);
  EXPECT_THAT(log_of("coordinator"), HasSubstr("two machines show the identity of a member"));
  const auto status = federation_->admin().get("/v1/status");
  ASSERT_TRUE(status.ok()) << status.error().message;
  EXPECT_THAT(cli::pretty(*status), HasSubstr("two machines show the identity of hospital-a"));
  expect_rounds_go_on();
}

TEST_F(IdentityAttack, ALeaseThatWasInventedOpensNoAggregator) {
  start(2, 1);
  start_held_run();
  const identity::Credentials revoked = enrolled("mallory");
  const identity::Credentials member = enrolled("hospital-b");
  revoke("mallory");
  for (const std::uint64_t epoch : {std::uint64_t{1}, std::uint64_t{1'000}, ~std::uint64_t{0}}) {
    EXPECT_EQ(visit(revoked, "aggregator-1", epoch).size(), 0U) << "revoked, with lease " << epoch;
    EXPECT_EQ(visit(member, "aggregator-1", epoch).size(), 0U) << "a member, with lease " << epoch;
  }
  expect_rounds_go_on();
}

}  // namespace
}  // namespace fluvial::attack
