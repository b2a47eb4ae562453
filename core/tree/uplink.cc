#include "core/tree/uplink.h"

#include <algorithm>
#include <utility>

#include "core/base/printable.h"
#include "core/identity/token.h"
#include "core/net/deadline.h"
#include "core/round/renewal.h"
#include "core/tree/ask.h"
#include "core/tree/lease_statement.h"
#include "core/tree/renewed.h"
#include "core/wire/history_mapping.h"
#include "core/wire/mapping.h"

namespace fluvial::tree {
namespace {

constexpr std::size_t kParentsMax = 64;
constexpr std::uint64_t kCertificateMax_s = 100ULL * 365 * 86'400;

// receive() belongs to the session's strand.
net::Awaitable<void> receive_one(std::shared_ptr<net::Session> session, std::optional<Result<net::Frame>>* out) {
  out->emplace(co_await session->receive());
}

net::Awaitable<Result<net::Frame>> receive_from(std::shared_ptr<net::Session> session) {
  std::optional<Result<net::Frame>> frame;
  co_await run_on(session->executor(), receive_one(session, &frame));
  co_return std::move(*frame);
}

net::Awaitable<Result<std::shared_ptr<net::Session>>> connect_over_tls(Runtime* runtime,
                                                                       std::shared_ptr<const identity::TlsContext> tls,
                                                                       net::HostPort address, Role role) {
  auto admission = [role](const identity::PeerIdentity& peer) { return identity::may_speak_as(peer, role); };
  co_return co_await net::connect(runtime->io, address.host, address.port, std::move(tls), runtime->session,
                                  runtime->hooks, admission);
}

// Who must answer at the lease's address.
round::Party expected_by(const Lease& lease) {
  if (lease.parent == NodeId(0)) return {Role::kCoordinator, {}, {}, lease.parent_key};
  return {Role::kAggregator, lease.parent, lease.parent_name, lease.parent_key};
}

}  // namespace

Dial dial_over_tls(Runtime& runtime, std::shared_ptr<const identity::LiveTls> tls) {
  return [runtime = &runtime, tls = std::move(tls)](net::HostPort address, Role role) {
    return connect_over_tls(runtime, tls->current(), std::move(address), role);
  };
}

Uplink::Uplink(Runtime& runtime, UplinkOwner& owner, UplinkOptions options, Dial dial)
    : runtime_(runtime),
      owner_(owner),
      options_(std::move(options)),
      dial_(std::move(dial)),
      counts_(runtime.metrics),
      bytes_(runtime.metrics, telemetry::Tier::kParent),
      stop_(runtime.strand) {}

void Uplink::stop() {
  stopping_ = true;
  const Error reason{Code::kCancelled, "the node is stopping"};
  if (session_) session_->close(reason, true);
  if (opening_) opening_->close(reason, false);
  stop_.notify_all();
}

void Uplink::post(v1::Envelope message) {
  if (session_) session_->post({std::move(message), {}});
}

net::Awaitable<void> Uplink::run() {
  net::Backoff backoff(runtime_.backoff, Rng(options_.jitter_seed));
  for (bool again = false; !stopping_; again = true) {
    if (again) counts_.reconnects.add();
    const Result<Duration> lasted = co_await serve_parent();
    if (stopping_) break;
    const Duration wait = backoff.next_after(lasted.ok() ? std::optional(*lasted) : std::nullopt);
    const double seconds = std::chrono::duration<double>(wait).count();
    if (lasted.ok()) {  // the owner has said why
      runtime_.log.info("coming for a lease", {{"parent", lease_.parent_name}, {"retry_in_s", seconds}});
    } else {
      runtime_.log.warn("no parent; trying again", {{"reason", lasted.error().to_string()}, {"retry_in_s", seconds}});
    }
    const Status slept = co_await net::with_deadline(stop_.wait(), wait);
    (void)slept.ok();  // either the wait is over or stopping_ is set
  }
}

// The parents of a new lease in their order, until one lets us in.
net::Awaitable<Result<std::shared_ptr<net::Session>>> Uplink::reach_parent() {
  Result<std::vector<Lease>> leases = co_await ask_lease();
  if (!leases.ok()) co_return leases.error();
  Error why;
  NodeId unreachable;
  for (Lease& lease : *leases) {
    if (stopping_) co_return Error{Code::kCancelled, "the node is stopping"};
    Result<std::shared_ptr<net::Session>> opened = co_await open(lease.address, expected_by(lease), &lease);
    if (opened.ok()) {
      lease_ = std::move(lease);
      unreachable_ = {};
      co_return std::move(*opened);
    }
    why = {opened.error().code, "parent " + lease.parent_name + ": " + opened.error().message};
    // Stale is an answer: it knows of a newer lease, or does not know this one yet.
    if (unreachable == NodeId(0) && why.code != Code::kStale) unreachable = lease.parent;
    if (&lease != &leases->back()) {  // of the last one run() tells
      runtime_.log.warn("the parent cannot be reached at its address; going past it",
                        {{"parent", lease.parent_name},
                         {"parent_address", net::to_string(lease.address)},
                         {"reason", opened.error().to_string()}});
    }
  }
  unreachable_ = unreachable;
  co_return why;
}

// How long a session was up; an error when none came up.
net::Awaitable<Result<Duration>> Uplink::serve_parent() {
  Result<std::shared_ptr<net::Session>> opened = co_await reach_parent();
  if (!stopping_) counts_.connect(opened.ok() ? "ok" : code_name(opened.error().code));
  if (!opened.ok()) co_return opened.error();
  const TimePoint begun = runtime_.clock.now();
  session_ = std::move(*opened);
  runtime_.log.info("connected to parent", {{"parent", lease_.parent_name}, {"lease_epoch", lease_.epoch}});
  counts_.connected.set(1);
  parent_ends_.reset();
  // The handshake may have been with the certificate before.
  if (begun - renewed_at_ < 2 * (runtime_.session.connect_deadline + runtime_.session.handshake_deadline)) {
    say_renewed();
  }
  owner_.parent_up(lease_);
  Error why;
  co_await relay(session_, &why);
  session_->close(why, true);
  session_.reset();
  counts_.connected.set(0);
  owner_.parent_down(why);
  co_return runtime_.clock.now() - begun;
}

net::Awaitable<void> Uplink::relay(std::shared_ptr<net::Session> session, Error* why) {
  for (;;) {
    Result<net::Frame> frame = co_await receive_from(session);
    if (!frame.ok()) {
      *why = frame.error();
      co_return;
    }
    if (frame->header.has_model_chunk()) bytes_.model_bytes.add(static_cast<double>(frame->payload.size()));
    if (frame->header.has_renewed()) {
      if (const Status renewed = take_renewed(frame->header.renewed()); !renewed.ok()) {
        distrust(renewed.error());
        *why = renewed.error();
        co_return;
      }
      continue;
    }
    const Status taken = co_await owner_.from_parent(std::move(*frame));
    if (!taken.ok()) {
      if (taken.error().code == Code::kUnauthenticated) {
        distrust(taken.error());
      } else {
        runtime_.log.warn("the parent sent what it may not; the session ends",
                          {{"parent", lease_.parent_name}, {"reason", taken.error().to_string()}});
      }
      *why = taken.error();
      co_return;
    }
  }
}

// The coordinator is told as if it could not be reached, and grants another parent for a while.
void Uplink::distrust(const Error& why) {
  counts_.distrusted.add();
  unreachable_ = lease_.parent;
  runtime_.log.error("the parent is not to be trusted: what it says is not the coordinator's; going elsewhere",
                     {{"parent", lease_.parent_name}, {"reason", why.to_string()}});
}

void Uplink::tell_renewed(const std::string& chain_pem) {
  renewed_pem_ = chain_pem;
  renewed_at_ = runtime_.clock.now();
  say_renewed();
}

void Uplink::say_renewed() {
  if (!session_ || !takes_renewed_ || renewed_pem_.empty()) return;
  v1::Envelope message;
  message.mutable_renewed()->set_certificate_pem(renewed_pem_);
  post(std::move(message));
}

Status Uplink::take_renewed(const v1::Renewed& message) {
  if (!options_.verify) return Error{Code::kUnauthenticated, "a renewed certificate that was not asked for"};
  FLUVIAL_ASSIGN(const identity::PeerIdentity shown, options_.verify(message.certificate_pem()));
  FLUVIAL_TRY(check_renewed(session_->member(), shown));
  parent_ends_ = shown.not_after;
  return {};
}

void Uplink::end_past_certificate() {
  if (!session_) return;
  const WallTime ends = parent_ends_.value_or(session_->member().not_after);
  if (!round::outlives_certificate(ends, runtime_.clock.wall_now(), options_.past_certificate_max)) return;
  runtime_.log.warn("the parent's certificate has ended and it has shown no other; going for a lease",
                    {{"parent", lease_.parent_name}, {"certificate_ended_at", identity::format_utc(ends)}});
  telemetry::SessionMetrics(runtime_.metrics).session_refused(kCertificateEnded);
  session_->close({Code::kUnauthenticated, "the parent's certificate has ended"}, true);
}

// Without a lease: to come for one.
v1::Envelope Uplink::hello(const Lease* lease) const {
  v1::Envelope message;
  v1::Hello& hello = *message.mutable_hello();
  hello.set_protocol_min(options_.protocols.oldest);
  hello.set_protocol_max(options_.protocols.newest);
  hello.set_software(options_.software);
  hello.set_incarnation(options_.incarnation.value());
  hello.set_history(history_.value());
  hello.set_takes_renewed(options_.verify != nullptr);
  hello.set_takes_models_ahead(true);
  if (lease != nullptr) hello.set_lease_epoch(lease->epoch.value());
  if (lease != nullptr && lease->statement) *hello.mutable_lease() = *lease->statement;
  return message;
}

// Connects, says Hello to whoever is expected there, and waits for the Welcome.
net::Awaitable<Result<std::shared_ptr<net::Session>>> Uplink::open(net::HostPort address, round::Party expected,
                                                                   const Lease* lease) {
  const std::string where = net::to_string(address);
  Result<std::shared_ptr<net::Session>> session = co_await dial_(std::move(address), expected.role);
  if (!session.ok()) co_return session.error();
  if (const Status right = round::check_party(expected, party_of((*session)->member())); !right.ok()) {
    runtime_.log.error(
        "another node than the lease names answers at the parent's address; it is told nothing, and the coordinator is "
        "asked for another parent",
        {{"parent_address", where}, {"reason", right.error().to_string()}});
    (*session)->close(right.error(), false);
    co_return right.error();
  }
  opening_ = *session;
  (*session)->post({hello(lease), {}});
  Result<net::Frame> welcome = co_await net::with_deadline(receive_from(*session), runtime_.session.handshake_deadline);
  opening_.reset();
  if (!welcome.ok()) {
    (*session)->close(welcome.error(), false);
    co_return welcome.error();
  }
  const Status agreed = welcome->header.has_welcome()
                            ? wire::check_protocol(options_.protocols, welcome->header.welcome(), options_.software)
                            : Status{Error{Code::kFailedPrecondition, "the parent did not answer with a Welcome"}};
  if (!agreed.ok()) {
    (*session)->close(agreed.error(), true);
    co_return agreed.error();
  }
  takes_reports_ = welcome->header.welcome().takes_reports();
  digest_kind_ = welcome->header.welcome().takes_tree_digests() ? DigestKind::kTree : DigestKind::kStream;
  if (const std::string& theirs = welcome->header.welcome().software(); theirs != options_.software) {
    runtime_.log.info("a parent of another version",
                      {{"software", printable(theirs, 64)}, {"takes_tree_digests", digest_kind_ == DigestKind::kTree}});
  }
  takes_renewed_ = welcome->header.welcome().takes_renewed();
  co_return std::move(*session);
}

net::Awaitable<Result<std::vector<Lease>>> Uplink::ask_lease() {
  Result<std::shared_ptr<net::Session>> session =
      co_await open(options_.coordinator, {Role::kCoordinator, {}, {}, {}}, nullptr);
  if (!session.ok()) co_return session.error();
  const Result<round::Standing> standing = co_await owner_.standing();
  if (!standing.ok()) {
    (*session)->close(standing.error(), false);
    co_return standing.error();
  }
  v1::Envelope request;
  *request.mutable_lease_request()->mutable_standing() = wire::to_proto(*standing);
  request.mutable_lease_request()->set_advertise(options_.advertise);
  request.mutable_lease_request()->set_unreachable(unreachable_.value());
  request.mutable_lease_request()->set_shows_lease(true);
  request.mutable_lease_request()->set_process(options_.process);
  request.mutable_lease_request()->set_trust(owner_.trust());
  if (owner_.denials_heard() != nullptr) *request.mutable_lease_request()->mutable_denials() = *owner_.denials_heard();
  (*session)->post({std::move(request), {}});
  Result<net::Frame> reply = co_await net::with_deadline(receive_from(*session), runtime_.session.handshake_deadline);
  const identity::PublicKey coordinator = (*session)->member().key;
  (*session)->close({Code::kCancelled, "lease taken"}, true);
  if (!reply.ok()) co_return reply.error();
  const v1::LeaseGrant& grant = reply->header.lease_grant();
  if (!reply->header.has_lease_grant() || grant.epoch() == 0 || grant.parents_size() == 0 ||
      grant.parents_size() > static_cast<int>(kParentsMax)) {
    co_return Error{Code::kDataLoss, "the coordinator's lease names no parent"};
  }
  if (grant.leases_size() != 0 && grant.leases_size() != grant.parents_size()) {
    co_return Error{Code::kDataLoss, "the coordinator has signed leases for some of the parents alone"};
  }
  Result<round::Lineage> lineage = wire::from_proto(grant.histories());
  if (!lineage.ok()) co_return lineage.error();
  const round::HistoryId history = round::current_of(*lineage);
  const Status told = owner_.denials_told(history, coordinator, grant.has_denials() ? &grant.denials() : nullptr);
  if (!told.ok()) co_return told.error();
  const Status taken = co_await owner_.granted(std::move(*lineage), Epoch(grant.epoch()));
  if (!taken.ok()) co_return taken.error();
  history_ = history;
  owner_.renewal_told(std::chrono::seconds(std::min(grant.certificate_s(), kCertificateMax_s)), grant.trust());
  std::vector<Lease> leases;
  for (int i = 0; i < grant.parents_size(); ++i) {
    const v1::Parent& parent = grant.parents(i);
    Lease lease{Epoch(grant.epoch()), NodeId(parent.node()), wire::printable(parent.name()), options_.coordinator,
                coordinator.id()};
    if (grant.leases_size() != 0) {
      lease.coordinator_key = coordinator;
      lease.statement = std::make_shared<const v1::Signed>(grant.leases(i));
    }
    if (lease.parent != NodeId(0)) {
      lease.parent_key = {};
      if (!parent.key_sha256().empty()) {
        FLUVIAL_CO_ASSIGN(lease.parent_key, wire::digest_from_proto(parent.key_sha256()));
      }
      Result<net::HostPort> address = net::parse_host_port(parent.address());
      if (!address.ok()) co_return address.error();
      lease.address = *address;
    }
    leases.push_back(std::move(lease));
  }
  co_return leases;
}

}  // namespace fluvial::tree
