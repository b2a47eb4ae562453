// The hub's part in certificates that change while sessions go on.
#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <utility>

#include "core/identity/token.h"
#include "core/net/deadline.h"
#include "core/round/renewal.h"
#include "core/telemetry/node_metrics.h"
#include "core/tree/ask.h"
#include "core/tree/hub_stream.h"
#include "core/tree/renewed.h"
#include "core/wire/mapping.h"

namespace fluvial::tree {
namespace {

constexpr Duration kLookMin = std::chrono::milliseconds(50);
constexpr Duration kLookMax = std::chrono::seconds(30);

}  // namespace

net::Awaitable<v1::RenewReply> HubOwner::renew(identity::PeerIdentity, v1::RenewRequest, std::string) {
  v1::RenewReply reply;
  reply.set_code(wire::code_to_proto(Code::kFailedPrecondition));
  reply.set_message("certificates are the coordinator's to renew");
  co_return reply;
}

net::Awaitable<Status> Hub::serve_renewal(std::shared_ptr<net::Session> session, v1::Envelope asked) {
  const identity::PeerIdentity peer = session->member();
  v1::Envelope reply;
  *reply.mutable_renew_reply() = co_await run_on(
      runtime_.strand, owner_.renew(peer, std::move(*asked.mutable_renew_request()), session->remote()));
  co_return co_await say_last(session, std::move(reply));
}

void Hub::say_renewed(const Child& child) const {
  if (!child.takes_renewed) return;
  v1::Envelope message;
  message.mutable_renewed()->set_certificate_pem(renewed_pem_);
  child.session->post({std::move(message), {}});
}

void Hub::tell_renewed(const std::string& chain_pem) {
  renewed_pem_ = chain_pem;
  renewed_at_ = runtime_.clock.now();
  for (const auto& [node, child] : children_) say_renewed(child);
}

// Whoever says it often waits for itself.
net::Awaitable<Status> Hub::take_renewed(Child child, std::shared_ptr<Stream> stream, v1::Renewed message) {
  if (!options_.verify) co_return Error{Code::kFailedPrecondition, "a message that no child sends here"};
  const Duration early = stream->renewals.take(runtime_.clock.now());
  if (early > Duration(0)) co_await net::sleep_for(early);
  Result<identity::PeerIdentity> shown = options_.verify(message.certificate_pem());
  if (!shown.ok()) co_return shown.error();
  if (const Status same = check_renewed(child.session->member(), *shown); !same.ok()) co_return same.error();
  co_return co_await ask(runtime_.strand, [&]() -> Status {
    const auto found = children_.find(child.node);
    if (found == children_.end() || found->second.session != child.session) return {};  // replaced
    FLUVIAL_TRY(deny_->check(*shown));
    found->second.renewed = std::make_shared<const identity::PeerIdentity>(std::move(*shown));
    return {};
  });
}

void Hub::end_past_certificates() {
  const WallTime now = runtime_.clock.wall_now();
  std::vector<NodeId> past;
  for (const auto& [node, child] : children_) {
    if (round::outlives_certificate(child.peer().not_after, now, options_.past_certificate_max)) past.push_back(node);
  }
  for (const NodeId node : past) {
    const Child& child = children_.at(node);
    runtime_.log.warn("a child's certificate has ended and it has shown no other; its session ends",
                      {{"member", child.name}, {"certificate_ended_at", identity::format_utc(child.peer().not_after)}});
    telemetry::SessionMetrics(runtime_.metrics).session_refused(kCertificateEnded);
    cut(node, {Code::kUnauthenticated, "the certificate has ended"});
  }
}

net::Awaitable<void> Hub::watch_certificates() {
  const Duration interval = std::clamp<Duration>(options_.past_certificate_max / 4, kLookMin, kLookMax);
  while (!stop_->stopping) {
    const Status slept = co_await net::with_deadline(stop_->signal.wait(), interval);
    if (slept.ok() || stop_->stopping) continue;
    end_past_certificates();
    (void)co_await runtime_.pool.run([this]() -> Status {
      budget_.files().close_idle();
      return {};
    });
  }
}

}  // namespace fluvial::tree
