#include "simulator/roles/renewing.h"

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <utility>

#include "core/net/deadline.h"

namespace fluvial::simulator {
namespace {

using Opened = Result<std::shared_ptr<net::Session>>;

net::Awaitable<Opened> refuse() { co_return Error{Code::kUnavailable, "nobody thinks of it"}; }

}  // namespace

Renewing::Renewing(Cast& cast, HostId host, tree::Runtime& runtime, const tree::Dial& dial, const tree::Dial& enrolment)
    : cast_(cast),
      host_(host),
      runtime_(runtime),
      has_since_(runtime.clock.wall_now()),
      renewal_(runtime, parts(dial, enrolment)) {}

tree::Renewal::Parts Renewing::parts(const tree::Dial& dial, const tree::Dial& enrolment) {
  tree::Renewal::Parts parts{.credentials = cast_.credentials(host_), .coordinator = Cast::host_port(kRoot)};
  parts.dial = [this, dial](net::HostPort address, Role role) {
    asked_at_ = runtime_.clock.wall_now();
    return cast_.forgets_to_renew(host_) ? refuse() : dial(std::move(address), role);
  };
  parts.dial_enrolment = [this, enrolment] {
    asked_at_ = runtime_.clock.wall_now();
    return cast_.forgets_to_renew(host_) ? refuse() : reach_enrolment(enrolment);
  };
  parts.protocols = cast_.protocols(host_);
  parts.jitter_seed =
      (std::uint64_t{host_.value()} << 32) ^ cast_.world().chance().seed() ^ cast_.world().starts(host_);
  parts.take = [this](const identity::Credentials& next) -> Status {
    cast_.took(host_, next);
    has_since_ = runtime_.clock.wall_now();
    return {};
  };
  parts.tick_max = std::max<Duration>(cast_.past_certificate_max() / 4, std::chrono::milliseconds(50));
  return parts;
}

// As a member knows that port: by the authorities that it trusts, of which it shows those that issue or did.
net::Awaitable<Opened> Renewing::reach_enrolment(tree::Dial dial) {
  Opened opened = co_await dial(Cast::host_port(kRoot), Role::kCoordinator);
  if (!opened.ok() || cast_.rollovers().finds_enrolment(host_)) co_return opened;
  const Error unknown{Code::kUnauthenticated, "the enrolment port shows an authority that this member does not know"};
  (*opened)->close(unknown, false);
  co_return unknown;
}

void Renewing::told() {
  if (!told_at_) told_at_ = runtime_.clock.wall_now();
}

// A member that was there from the middle of a certificate's life on, and that knew of renewals, has asked in time.
net::Awaitable<void> Renewing::watch() {
  const std::chrono::milliseconds life = cast_.certificate_life();
  for (;;) {
    co_await net::sleep_for(life / 16);
    const identity::Credentials& has = cast_.credentials(host_);
    const WallTime ends = has.chain.front().not_after();
    const WallTime due = ends - life / 4;  // renew_at() spreads up to five eighths of the life
    if (runtime_.clock.wall_now() < ends || !told_at_ || std::max(*told_at_, has_since_) > due - life / 8) continue;
    if (asked_at_ && *asked_at_ > ends - life) continue;
    cast_.world().violate("renews_in_time", cast_.identity(host_).name + " lets its certificate end and has not asked");
    co_return;
  }
}

}  // namespace fluvial::simulator
