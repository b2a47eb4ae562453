// The coordinator's part in certificates that end: its desk, its enrolment port, its own certificate.
#include <boost/asio/awaitable.hpp>
#include <utility>

#include "core/net/deadline.h"
#include "core/round/renewal.h"
#include "core/wire/mapping.h"
#include "simulator/roles/certificates.h"
#include "simulator/roles/coordinator.h"

namespace fluvial::simulator {

void CoordinatorRole::begin_certificates() {
  const auto life = cast_.certificate_life();
  authority_.emplace(simulated_authority());
  desk_.emplace(runtime(), root_->registry(), *journal_, *authority_,
                coordinator::RenewalOptions{life, std::chrono::days(30), 1'000'000});
  root_->with_renewals(*desk_);
  root_->registry().with_renewal([life] { return coordinator::Registry::RenewalTerms{life, 0}; });
  spawn("own certificate", renew_own());
  spawn("ends", look_at_ends());
}

// At each start, and from half of its life on.
net::Awaitable<void> CoordinatorRole::renew_own() {
  const Duration life = cast_.certificate_life();
  for (;;) {
    cast_.certify_root(runtime().clock.wall_now());
    root_->hub().tell_renewed(identity::Certificate::pem_of(cast_.credentials(kRoot).chain));
    co_await net::sleep_for(life / 2);
  }
}

// As the hub does it where it listens.
net::Awaitable<void> CoordinatorRole::look_at_ends() {
  for (;;) {
    co_await net::sleep_for(look_every());
    if (!cast_.tamper().takes_an_ended_certificate()) root_->hub().end_past_certificates();
    cast_.looked_at(host(), root_->hub().children(), look_every());
  }
}

// Whoever comes with a certificate that has ended finds only this port's answers.
net::Awaitable<void> CoordinatorRole::serve_enrolment(std::shared_ptr<net::Session> session) {
  Result<net::Frame> asked = co_await net::with_deadline(session->receive(), runtime().session.handshake_deadline);
  if (!asked.ok() || !asked->header.has_renew_request() || !desk_) {
    session->close({Code::kUnauthenticated, "the certificate has ended"}, true);
    co_return;
  }
  Result<v1::RenewReply> reply =
      co_await desk_->renew_ended(std::move(*asked->header.mutable_renew_request()), session->remote());
  if (!reply.ok()) {
    session->close(reply.error(), true);
    co_return;
  }
  v1::Envelope message;
  *message.mutable_renew_reply() = co_await on_its_way(std::move(*reply));
  session->post({std::move(message), {}});
  co_await session->closed();
}

net::Awaitable<v1::RenewReply> CoordinatorRole::on_its_way(v1::RenewReply reply) {
  const std::optional<Duration> takes = cast_.renewal_takes();
  if (takes && *takes > Duration(0)) co_await net::sleep_for(*takes);
  if (takes) co_return reply;
  v1::RenewReply lost;
  lost.set_code(wire::code_to_proto(Code::kUnavailable));
  lost.set_message("lost on its way");
  co_return lost;
}

}  // namespace fluvial::simulator
