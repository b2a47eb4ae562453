#include "core/tree/hub.h"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/post.hpp>
#include <utility>

#include "core/base/clock_limits.h"
#include "core/base/printable.h"
#include "core/config/named.h"
#include "core/net/deadline.h"
#include "core/tree/ask.h"
#include "core/tree/hub_stream.h"
#include "core/tree/orders.h"
#include "core/wire/mapping.h"
#include "core/wire/record_mapping.h"
#include "core/wire/report_mapping.h"

namespace fluvial::tree {
namespace {

constexpr std::size_t kAdvertiseBytesMax = 300;

}  // namespace

// A site's own: of what its children pass on, only the root knows all keys.
std::vector<round::Refusal> HubOwner::forged(const Child& child, const transfer::Brought& brought) {
  const round::Contribution* const own = brought.contributors.find(child.node);
  if (child.role != Role::kSite || own == nullptr || !own->signature) return {};
  const identity::PublicKey& key = child.session->member().key;
  if (!key) return {};
  const std::optional<transfer::Brought::Signed> what = brought.signed_of(*own);
  if (!what) return {{child.node, {Code::kUnauthenticated, "an update of a model that none may be of"}}};
  const Status authentic = check_author(key, brought.run, what->round, what->base, *own);
  if (authentic.ok()) return {};
  return {{child.node, authentic.error()}};
}

Hub::Hub(Runtime& runtime, HubOwner& owner, HubOptions options, std::shared_ptr<identity::DenyList> deny)
    : runtime_(runtime),
      owner_(owner),
      options_(std::move(options)),
      deny_(std::move(deny)),
      budget_(options_.staging_bytes_max.value_or(store::kStagingBytesLeast)),
      streams_(runtime.io),
      child_left_(runtime.strand),
      stop_(std::make_shared<Stop>(runtime.strand)),
      bytes_(runtime.metrics, telemetry::Tier::kChildren) {}

Result<std::uint16_t> Hub::open(std::shared_ptr<const identity::LiveTls> tls) {
  net::ListenerSettings settings;
  settings.session = runtime_.session;
  settings.session.stranger_bytes_max = static_cast<std::uint32_t>(options_.budget.stranger_bytes_max);
  settings.sessions_max = options_.sessions_max;
  settings.strangers_max = options_.budget.strangers_max;
  settings.strangers_per_address_max = options_.budget.strangers_per_address_max;
  settings.sessions_per_member_max = options_.budget.sessions_per_member_max;
  settings.payload_bytes_in_flight_max = options_.budget.payload_bytes_max;
  settings.payload_bytes_per_member_max = options_.budget.payload_bytes_per_member_max;
  auto admission = [deny = deny_](const identity::PeerIdentity& peer) -> Status {
    if (peer.role == Role::kCoordinator) return Error{Code::kPermissionDenied, "a coordinator is nobody's child"};
    if (peer.role == Role::kOperator) {
      return Error{Code::kPermissionDenied, "an operator is no member of the tree: the admin port is theirs"};
    }
    return deny->check(peer);
  };
  auto opened = net::Listener::open(runtime_.io, options_.host, options_.port, std::move(tls), settings, runtime_.hooks,
                                    admission);
  if (!opened.ok()) return config::named_address(opened.error(), "listen");
  listener_ = std::move(*opened);
  return listener_->port();
}

net::Awaitable<void> Hub::run() {
  streams_.spawn(runtime_.strand, "certificates", watch_certificates());
  co_await listener_->run([this](std::shared_ptr<net::Session> session) { return serve(std::move(session)); });
  co_await streams_.join();
}

void Hub::stop() {
  net::asio::post(runtime_.strand, [stop = stop_] {
    stop->stopping = true;
    stop->signal.notify_all();
  });
  if (listener_) listener_->stop();
}

void Hub::send(NodeId child, v1::Envelope message) {
  const auto found = children_.find(child);
  if (found != children_.end()) found->second.session->post({std::move(message), {}});
}

void Hub::cut(NodeId child, Error reason) {
  const auto found = children_.find(child);
  if (found != children_.end()) found->second.session->close(std::move(reason), true);
}

void Hub::drop_denied() {
  std::vector<std::pair<NodeId, Error>> denied;
  for (const auto& [node, child] : children_) {
    const Status admitted = deny_->check(child.peer());
    if (!admitted.ok()) denied.emplace_back(node, admitted.error());
  }
  for (auto& [node, reason] : denied) {
    runtime_.log.warn("a member is refused from now on; its session ends",
                      {{"member", children_.at(node).name}, {"reason", reason.message}});
    cut(node, std::move(reason));
  }
}

void Hub::tell_denials(const v1::Denials* denials) {
  for (const auto& [node, child] : children_) tell_denials(child, denials);
}

void Hub::tell_denials(const Child& child, const v1::Denials* denials) {
  if (child.role != Role::kAggregator || !child.lease_shown || denials == nullptr) return;
  v1::Envelope down;
  *down.mutable_denials() = *denials;
  send(child.node, std::move(down));
}

void Hub::sums(std::uint64_t value_count) {
  if (options_.staging_bytes_max) return;
  const std::uint64_t bytes_max = store::staging_bytes_for(value_count);
  if (bytes_max == budget_.bytes_max()) return;
  budget_.set_bytes_max(bytes_max);
  runtime_.log.info("the staging budget follows the model", {{"bytes", bytes_max}, {"values", value_count}});
}

net::Awaitable<void> Hub::serve(std::shared_ptr<net::Session> session) {
  Result<net::Frame> first = co_await net::with_deadline(session->receive(), runtime_.session.handshake_deadline);
  if (!first.ok()) {
    session->close(first.error(), false);
    co_return;
  }
  Status ended;
  if (!first->header.has_hello()) {
    ended = Error{Code::kFailedPrecondition, "the first frame must be a Hello"};
  } else {
    ended = co_await greet(session, first->header.hello());
  }
  if (!ended.ok()) session->close(ended.error(), true);
}

net::Awaitable<Status> Hub::greet(std::shared_ptr<net::Session> session, v1::Hello hello) {
  const Result<std::uint32_t> protocol = wire::choose_protocol(options_.protocols, hello, options_.software);
  if (!protocol.ok()) co_return protocol.error();
  if (hello.lease_epoch() == 0) co_return co_await serve_lease(session, *protocol);
  const identity::PeerIdentity& peer = session->member();
  Child child{peer.node,
              peer.role,
              peer.name,
              Epoch(hello.lease_epoch()),
              Incarnation(hello.incarnation()),
              round::HistoryId(hello.history()),
              session};
  child.protocol = *protocol;
  child.takes_renewed = hello.takes_renewed();
  child.takes_models_ahead = hello.takes_models_ahead();
  if (hello.software() != options_.software) {
    runtime_.log.info("a child of another version",
                      {{"member", peer.name}, {"software", printable(hello.software(), 64)}});
  }
  if (hello.has_lease()) child.lease_shown = std::make_shared<const v1::Signed>(std::move(*hello.mutable_lease()));
  co_return co_await serve_member(session, std::move(child));
}

void Hub::welcome(net::Session& session, std::uint32_t protocol) const {
  v1::Envelope welcome;
  welcome.mutable_welcome()->set_protocol(protocol);
  welcome.mutable_welcome()->set_software(options_.software);
  welcome.mutable_welcome()->set_takes_reports(true);
  welcome.mutable_welcome()->set_takes_tree_digests(options_.digest_kind == DigestKind::kTree);
  welcome.mutable_welcome()->set_takes_renewed(options_.verify != nullptr);
  session.post({std::move(welcome), {}});
}

net::Awaitable<Status> Hub::serve_lease(std::shared_ptr<net::Session> session, std::uint32_t protocol) {
  welcome(*session, protocol);
  Result<net::Frame> asked = co_await net::with_deadline(session->receive(), runtime_.session.handshake_deadline);
  if (!asked.ok()) co_return asked.error();
  if (asked->header.has_renew_request()) co_return co_await serve_renewal(session, std::move(asked->header));
  if (!asked->header.has_lease_request() || asked->header.lease_request().advertise().size() > kAdvertiseBytesMax) {
    co_return Error{Code::kFailedPrecondition, "a session without a lease may only ask for one"};
  }
  const identity::PeerIdentity peer = session->member();
  const Result<v1::LeaseGrant> grant =
      co_await run_on(runtime_.strand, owner_.lease(peer, asked->header.lease_request(), session->remote()));
  if (!grant.ok()) co_return grant.error();
  v1::Envelope reply;
  *reply.mutable_lease_grant() = *grant;
  co_return co_await say_last(session, std::move(reply));
}

net::Awaitable<Status> Hub::say_last(std::shared_ptr<net::Session> session, v1::Envelope reply) {
  session->post({std::move(reply), {}});
  Result<net::Frame> bye = co_await net::with_deadline(session->receive(), runtime_.session.handshake_deadline);
  co_return bye.ok() ? Status{Error{Code::kFailedPrecondition, "nothing more to say on this session"}} : Status{};
}

net::Awaitable<void> Hub::left_by(Child child) {
  const auto is_here = [&] {
    const auto found = children_.find(child.node);
    return found != children_.end() && found->second.session == child.session;
  };
  while (is_here()) co_await child_left_.wait();
}

// An older session of the child is ended first, so that what it leaves behind is here when the round is opened to the
// new one.
net::Awaitable<Status> Hub::take_in(Child child) {
  if (const Status may = may_join(child); !may.ok()) co_return may.error();
  const TimePoint until = runtime_.clock.now() + runtime_.session.handshake_deadline / 2;  // the child waits, too
  for (;;) {
    const auto before = children_.find(child.node);
    if (before == children_.end()) co_return join(child);
    if (child.incarnation < before->second.incarnation) {
      co_return Error{Code::kStale, "incarnation " + std::to_string(child.incarnation.value()) + " of " + child.name +
                                        " is older than the one that is connected"};
    }
    const Child old = before->second;
    old.session->close({Code::kStale, "replaced by a newer session of " + child.name}, true);
    const Duration left = until - runtime_.clock.now();
    const Status ended = left > Duration(0) ? co_await net::with_deadline(left_by(old), left)
                                            : Status{Error{Code::kDeadlineExceeded, "the older session"}};
    if (!ended.ok()) leave(old);  // it goes on its own; what it had is lost
  }
}

// It may have been shut out since its session was accepted; nobody ends a session that is not joined.
Status Hub::may_join(const Child& child) const {
  FLUVIAL_TRY(deny_->check(child.session->member()));
  return owner_.may_join(child);
}

Status Hub::join(const Child& child) {
  FLUVIAL_TRY(may_join(child));
  child.session->admitted();
  welcome(*child.session, child.protocol);
  const Child& here = children_.emplace(child.node, child).first->second;
  // Its handshake may have been with the certificate before.
  if (!renewed_pem_.empty() && runtime_.clock.now() - renewed_at_ < 2 * runtime_.session.handshake_deadline) {
    say_renewed(here);
  }
  owner_.child_joined(child);
  return {};
}

void Hub::leave(const Child& child) {
  const auto found = children_.find(child.node);
  if (found == children_.end() || found->second.session != child.session) return;  // replaced
  children_.erase(found);
  clocks_apart_.erase(child.node);
  child_left_.notify_all();
  owner_.child_left(child.node);
}

net::Awaitable<Status> Hub::serve_member(std::shared_ptr<net::Session> session, Child child) {
  const Status joined = co_await run_on(runtime_.strand, take_in(child));
  if (!joined.ok()) co_return joined.error();
  session->measure_clock();
  auto stream = std::make_shared<Stream>(*this, child);
  Status ended;
  while (ended.ok()) {
    Result<net::Frame> frame = co_await session->receive();
    if (!frame.ok()) break;
    payload_bytes_in_.fetch_add(frame->payload.size(), std::memory_order_relaxed);
    ended = co_await dispatch(child, stream, std::move(*frame));
  }
  for (std::uint64_t& generation : stream->generation) ++generation;
  std::optional<transfer::Incoming> cut = stream->intake.cut_off();
  if (!ended.ok()) cut.reset();  // a breach
  const Status left = co_await ask(runtime_.strand, [&] {
    const auto found = children_.find(child.node);
    const bool is_replaced = found != children_.end() && found->second.session != session;
    if (cut && !is_replaced) book_.keep(child.node, std::move(*cut));
    leave(child);
    return Status{};
  });
  co_return left.ok() ? ended : left;
}

net::Awaitable<Status> Hub::dispatch(Child child, std::shared_ptr<Stream> stream, net::Frame frame) {
  v1::Envelope& message = frame.header;
  switch (message.body_case()) {
    case v1::Envelope::kUpdateBegin:
      co_return co_await stream->intake.begin(std::move(*message.mutable_update_begin()));
    case v1::Envelope::kPartialBegin:
      co_return co_await stream->intake.begin(std::move(*message.mutable_partial_begin()));
    case v1::Envelope::kUpdateChunk:
      co_return co_await stream->intake.chunk(message.update_chunk().index(), std::move(frame.payload));
    case v1::Envelope::kPartialChunk:
      co_return co_await stream->intake.chunk(message.partial_chunk().index(), std::move(frame.payload));
    case v1::Envelope::kUpdateEnd:
      co_return co_await stream->intake.end(std::move(*message.mutable_update_end()), std::move(frame.payload));
    case v1::Envelope::kPartialEnd: {
      v1::UpdateEnd end;
      end.set_sha256(message.partial_end().sha256());
      co_return co_await stream->intake.end(std::move(end), std::move(frame.payload));
    }
    case v1::Envelope::kModelRequest:
      co_return co_await start_model(std::move(child), std::move(stream), std::move(*message.mutable_model_request()));
    case v1::Envelope::kMemberChange:
    case v1::Envelope::kDecline: co_return co_await tell_owner(std::move(child), std::move(message));
    case v1::Envelope::kOutcomeQuery:
      co_return co_await answer(std::move(child), std::move(stream), std::move(*message.mutable_outcome_query()));
    case v1::Envelope::kRenewed:
      co_return co_await take_renewed(std::move(child), std::move(stream), std::move(*message.mutable_renewed()));
    case v1::Envelope::kReport: co_return co_await take_report(std::move(child), std::move(*message.mutable_report()));
    default: co_return Error{Code::kFailedPrecondition, "a message that no child sends"};
  }
}

net::Awaitable<Status> Hub::tell_owner(Child child, v1::Envelope message) {
  const bool is_site = child.role == Role::kSite;
  const auto own = [&](std::uint32_t site) { return !is_site || site == child.node.value(); };
  co_return co_await ask(runtime_.strand, [&]() -> Status {
    if (message.has_member_change()) {
      if (is_site) return Error{Code::kPermissionDenied, "a site has no members"};
      owner_.members_changed(child.node, message.member_change());
    } else if (message.has_decline()) {
      if (!own(message.decline().site())) return Error{Code::kPermissionDenied, "in the name of another site"};
      owner_.declined(child.node, wire::from_proto(message.decline()));
    }
    return {};
  });
}

// The next message of this session waits until this one is answered: who asks much waits for itself.
net::Awaitable<Status> Hub::answer(Child child, std::shared_ptr<Stream> stream, v1::OutcomeQuery query) {
  if (child.role == Role::kSite && query.site() != child.node.value()) {
    co_return Error{Code::kPermissionDenied, "in the name of another site"};
  }
  const Duration early = stream->questions.take(runtime_.clock.now());
  if (early > Duration(0)) co_await net::sleep_for(early);
  co_await run_on(runtime_.strand, owner_.outcome_asked(child.node, std::move(query)));
  co_return Status{};
}

// By the child's clock as it is known on its session.
net::Awaitable<Status> Hub::take_report(Child child, v1::Report message) {
  Result<std::vector<round::NodeReport>> reports = wire::from_proto(message);
  if (!reports.ok()) co_return reports.error();
  const std::optional<ClockOffset> clock = child.session->peer_clock();
  co_return co_await ask(runtime_.strand, [&]() -> Status {
    if (clock) note_clock(child, *clock);
    for (round::NodeReport& report : *reports) {
      if (child.role == Role::kSite && report.node != child.node) {
        return Error{Code::kPermissionDenied, "a site reports of itself alone"};
      }
      round::cross(report, clock);
      if (clock && report.node == child.node) report.wall_offset = clock->wall;
      report.heard = runtime_.clock.now();
      owner_.reported(child.node, std::move(report));
    }
    return {};
  });
}

void Hub::note_clock(const Child& child, const ClockOffset& clock) {
  const bool apart = std::chrono::abs(clock.wall) > kWallClocksApart;
  if (apart == clocks_apart_.contains(child.node)) return;
  if (!apart) {
    clocks_apart_.erase(child.node);
    return;
  }
  clocks_apart_.insert(child.node);
  runtime_.log.warn("a child's wall clock is apart from this node's; rounds go on, certificates and logs go by it",
                    {{"member", child.name}, {"seconds", std::chrono::duration<double>(clock.wall).count()}});
}

}  // namespace fluvial::tree
