// The coordinator's part in certificates that end: its desk, its enrolment port, its own certificate.
#include <boost/asio/awaitable.hpp>
#include <utility>

#include "core/net/deadline.h"
#include "core/round/renewal.h"
#include "core/store/authority_book.h"
#include "core/wire/mapping.h"
#include "simulator/roles/certificates.h"
#include "simulator/roles/coordinator.h"

namespace fluvial::simulator {
namespace {

constexpr std::chrono::seconds kGrace = std::chrono::days(30);
constexpr Duration kHelpEvery = std::chrono::seconds(2);

}  // namespace

Status CoordinatorRole::begin_certificates() {
  const auto life = cast_.certificate_life();
  if (cast_.rollovers().on()) {
    const coordinator::AuthorityOptions options{.data_dir = "",
                                                .federation = "simulated",
                                                .validity = life,
                                                .grace = kGrace,
                                                .folder = cast_.rollovers().folder(runtime().files)};
    FLUVIAL_ASSIGN(authorities_,
                   coordinator::Authorities::open(*journal_, options, runtime().log, runtime().clock.wall_now()));
    authority_ = authorities_->live();
    FLUVIAL_TRY(journal_says());
    spawn("help", help_stranded());
  } else {
    authority_ = std::make_shared<identity::LiveAuthority>(simulated_authority());
  }
  desk_.emplace(runtime(), root_->registry(), *journal_, *authority_,
                coordinator::RenewalOptions{life, kGrace, 1'000'000});
  root_->with_renewals(*desk_);
  root_->registry().with_renewal([authority = authority_, life] {
    return coordinator::Registry::RenewalTerms{life, authority->current()->trust()};
  });
  spawn("own certificate", renew_own());
  spawn("ends", look_at_ends());
  return {};
}

void CoordinatorRole::issue_own() {
  cast_.certify_root(runtime().clock.wall_now());
  root_->hub().tell_renewed(identity::Certificate::pem_of(cast_.credentials(kRoot).chain));
}

// At each start, and from half of its life on.
net::Awaitable<void> CoordinatorRole::renew_own() {
  const Duration life = cast_.certificate_life();
  for (;;) {
    issue_own();
    co_await net::sleep_for(life / 2);
  }
}

// ---- from one authority to the next

Status CoordinatorRole::journal_says() {
  const Disk::Inspection inspection(world().disk(host()));
  FLUVIAL_ASSIGN(const std::vector<store::AuthorityRow> rows, store::AuthorityBook(*journal_).all());
  cast_.rollovers().journal_says(rows, authority_->current());
  return {};
}

Status CoordinatorRole::step(coordinator::RolloverPhase phase, Rollovers::Wish wish) {
  const WallTime now = runtime().clock.wall_now();
  const bool too_early = cast_.tamper().ends_the_overlap_too_early();
  switch (phase) {
    case coordinator::RolloverPhase::kNone: return authorities_->begin({}, {}, now);
    case coordinator::RolloverPhase::kBegun:
      return wish.undo ? authorities_->undo({}, now) : authorities_->issue(wish.force, {}, now);
    case coordinator::RolloverPhase::kIssuing: return authorities_->end(wish.force || too_early, {}, now);
  }
  return {};
}

// A step that was refused is tried again another day. One that went wrong wants a restart, as its message says.
net::Awaitable<void> CoordinatorRole::take_step() {
  if (steps_) co_return;
  steps_ = true;
  const WallTime now = runtime().clock.wall_now();
  const auto view = co_await runtime().pool.run([&] { return authorities_->view(now); });
  if (!view.ok()) co_return fail("no rollover", view.error());
  const Rollovers::Wish wish = cast_.rollovers().draw(*view);
  cast_.rollovers().attempts(wish);
  const Status taken = co_await runtime().pool.run([&] { return step(view->phase, wish); });
  steps_ = false;
  if (!taken.ok() && taken.error().code == Code::kFailedPrecondition) co_return;
  const Status said = taken.ok() ? journal_says() : taken;
  if (!said.ok()) co_return fail("rollover cut off", said.error());
  world().trace().event(host(), "rolled over", 0, 0, [&] { return std::string(coordinator::phase_name(view->phase)); });
  issue_own();
}

// Somebody gives new tokens to those whom a forced end has left behind.
net::Awaitable<void> CoordinatorRole::help_stranded() {
  for (;;) {
    co_await net::sleep_for(kHelpEvery);
    const std::set<HostId> stranded = cast_.rollovers().stranded();
    for (const HostId host : stranded) {
      if (!cast_.is_revoked(host)) cast_.enrol_anew(host);
    }
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
