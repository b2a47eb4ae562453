#include "core/tree/visit.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <exception>
#include <utility>

#include "core/base/clock.h"
#include "core/net/deadline.h"
#include "core/net/run_on.h"
#include "core/tree/process.h"
#include "core/wire/protocol.h"

namespace fluvial::tree {
namespace {

using Outcome = std::optional<Result<Visit>>;

constexpr int kClockLooks = 50;
constexpr std::chrono::milliseconds kClockPause{20};

// A peer of an earlier version tells none, and another may be slow to.
net::Awaitable<void> compare_clocks(std::shared_ptr<net::Session> session, Visit* visit) {
  net::asio::steady_timer timer(session->executor());
  for (int i = 0; i < kClockLooks && session->is_open() && !session->peer_clock(); ++i) {
    timer.expires_after(kClockPause);
    co_await timer.async_wait(net::asio::as_tuple(net::asio::use_awaitable));
  }
  if (const auto offset = session->peer_clock()) visit->wall_offset = offset->wall;
}

// On the session's strand.
net::Awaitable<Status> say_hello(std::shared_ptr<net::Session> session, Duration deadline, Visit* visit) {
  const SystemClock clock;
  const wire::Protocols protocols;
  net::OutFrame hello;
  hello.header.mutable_hello()->set_protocol_min(protocols.oldest);
  hello.header.mutable_hello()->set_protocol_max(protocols.newest);
  hello.header.mutable_hello()->set_software(software_name());
  session->measure_clock();
  const TimePoint asked = clock.now();
  FLUVIAL_CO_TRY(co_await session->send(std::move(hello)));
  Result<net::Frame> welcome = co_await net::with_deadline(session->receive(), deadline);
  if (!welcome.ok()) co_return welcome.error();
  visit->round_trip = clock.now() - asked;
  if (!welcome->header.has_welcome()) {
    co_return Error{Code::kFailedPrecondition, "the peer did not answer with a Welcome"};
  }
  FLUVIAL_CO_TRY(wire::check_protocol(protocols, welcome->header.welcome(), software_name()));
  co_await compare_clocks(session, visit);
  co_return Status{};
}

net::Awaitable<void> keep(net::Awaitable<Status> operation, Status* out) { *out = co_await std::move(operation); }

net::Awaitable<void> go(Host host, std::shared_ptr<const identity::TlsContext> tls, net::SessionSettings settings,
                        Outcome* out) {
  static const SystemClock clock;  // sessions keep it
  settings.clock = &clock;
  const TimePoint begun = clock.now();
  const net::Executor executor = co_await net::asio::this_coro::executor;
  auto admission = [role = host.role](const identity::PeerIdentity& peer) {
    return role ? identity::may_speak_as(peer, *role) : Status();
  };
  auto session =
      co_await net::connect(executor, host.address.host, host.address.port, std::move(tls), settings, {}, admission);
  if (!session.ok()) {
    out->emplace(session.error());
    co_return;
  }
  const std::shared_ptr<net::Session>& open = *session;
  Visit visit;
  visit.handshake = clock.now() - begun;
  if (open->peer()) {
    visit.peer = identity::describe(*open->peer());
    visit.node = open->peer()->node;
  }
  Status met;
  if (host.role) {
    co_await net::run_on(open->executor(), keep(say_hello(open, settings.handshake_deadline, &visit), &met));
  }
  open->close({Code::kCancelled, "only looking"}, true);
  if (met.ok()) {
    out->emplace(std::move(visit));
  } else {
    out->emplace(met.error());
  }
}

}  // namespace

Result<Visit> visit_blocking(const Host& host, std::shared_ptr<const identity::TlsContext> tls,
                             net::SessionSettings settings) {
  net::asio::io_context context(1);
  Outcome outcome;
  std::exception_ptr failed;
  net::asio::co_spawn(context, go(host, std::move(tls), std::move(settings), &outcome),
                      [&failed](std::exception_ptr error) { failed = error; });
  context.run();
  if (!failed && outcome) return std::move(*outcome);
  try {
    if (failed) std::rethrow_exception(failed);
  } catch (const std::exception& error) {
    return Error{Code::kInternal, std::string("the visit failed: ") + error.what()};
  }
  return Error{Code::kInternal, "the visit ended without an outcome"};
}

}  // namespace fluvial::tree
