// What strangers do at the enrolment port, where nobody shows a certificate.
#include <fmt/format.h>

#include "core/identity/csr.h"
#include "core/identity/random.h"
#include "tests/attack/fixture.h"
#include "tests/attack/flood.h"

namespace fluvial::attack {
namespace {

class EnrolmentAttack : public AttackTest {};

TEST_F(EnrolmentAttack, WrongSecretsKeepNobodyElseOut) {
  start({.sites = 2, .aggregators = 0, .enrol_per_minute_max = 60});
  start_held_run();
  const std::string token = new_token("hospital-a");
  const Tls tls = as_stranger();
  const Buffer csr = std::move(identity::make_key_and_csr()->csr_der);
  for (int i = 0; i < 63; ++i) {
    Result<Connection> connection = Connection::open(coordinator_port("enrol_port"), tls);
    if (!connection.ok()) continue;  // turned away for what it did before
    v1::Envelope request;
    request.mutable_enrol_request()->set_token_secret(fmt::format("{:032}", i));
    request.mutable_enrol_request()->set_csr_der(std::string(as_text(csr.span())));
    const Status sent = connection->send(request);
    const Result<v1::Envelope> answer = sent.ok() ? connection->receive() : Result<v1::Envelope>(sent.error());
    if (answer.ok()) EXPECT_NE(answer->enrol_reply().code(), 0U);
  }
  const Result<tree::Enrolment> honest = enrol(token);
  ASSERT_TRUE(honest.ok()) << honest.error().message;
  EXPECT_TRUE(ask_lease(honest->credentials).ok());
  expect_rounds_go_on();
}

TEST_F(EnrolmentAttack, AFloodOfKeyUpdatesEnds) {
  start(2, 0);
  start_held_run();
  constexpr std::uint64_t kFar = 20'000;  // a session needs one for each 64 GiB
  const Tls tls = as_stranger();
  const identity::Credentials mallory = enrolled("mallory");
  EXPECT_LT(update_keys(coordinator_port("enrol_port"), tls, kFar), kFar) << "without a certificate";
  EXPECT_LT(update_keys(coordinator_port(), as_child(mallory), kFar), kFar) << "with one";
  const Flood flood(4, [&](std::uint64_t) { update_keys(coordinator_port("enrol_port"), tls, kFar); });
  expect_rounds_go_on();
  const Result<tree::Enrolment> honest = enrol(new_token("hospital-a"));
  EXPECT_TRUE(honest.ok()) << honest.error().message;
}

}  // namespace
}  // namespace fluvial::attack
