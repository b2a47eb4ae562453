// A child's end of the tree: come for a lease, connect to the parent it names, serve the session until it ends, and
// again with capped, jittered backoff. On the node's strand.
//
// Who answers at the parent's address must be the node that the lease names, by role, node, name and key; another one
// is told nothing.
//
// A parent that cannot be reached is named in the next request, so that the coordinator grants another. After a session
// is lost (at the latest when the parent has said nothing for heartbeat_timeout) the coordinator is asked within one
// step of the backoff; a reconnect that fails takes connect_deadline and handshake_deadline at most, and one more step.
// Each step is at most reconnect_delay_max; a session that lasted longer than the wait before it begins anew with
// reconnect_delay_min.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/digest/submission_digest.h"
#include "core/identity/live_tls.h"
#include "core/identity/signature.h"
#include "core/net/connector.h"
#include "core/net/session.h"
#include "core/net/signal.h"
#include "core/round/history.h"
#include "core/round/lease.h"
#include "core/telemetry/node_metrics.h"
#include "core/tree/runtime.h"
#include "core/wire/protocol.h"

namespace fluvial::tree {

struct Lease {
  Epoch epoch;
  NodeId parent;  // 0: the coordinator
  std::string parent_name;
  net::HostPort address;
  Digest parent_key{};                               // zeros: not known
  identity::PublicKey coordinator_key = {};          // none: the coordinator signs nothing
  std::shared_ptr<const v1::Signed> statement = {};  // by that key, to be shown to the parent; null: none
};

class UplinkOwner {
 public:
  virtual ~UplinkOwner() = default;
  // What the node shows when it comes for a lease, and the lineage of the history that the lease is of, before any
  // parent is connected to under it. An error: the node does not take it.
  virtual net::Awaitable<Result<round::Standing>> standing() = 0;
  virtual net::Awaitable<Status> granted(round::Lineage lineage, Epoch lease) = 0;
  // Before granted(), of the coordinator's answer: whom it refuses (null: it says nothing of that). An error: the lease
  // is not taken.
  virtual Status denials_told(round::HistoryId history, const identity::PublicKey& coordinator,
                              const v1::Denials* denials) {
    (void)history, (void)coordinator, (void)denials;
    return {};
  }
  // The number of the list of authorities that it trusts; whom it has heard to be refused (null: of nobody).
  virtual std::uint64_t trust() const { return 0; }
  virtual const v1::Denials* denials_heard() const { return nullptr; }
  // With each lease: for how long the coordinator issues certificates now (0: it renews none), and the number of its
  // list of authorities.
  virtual void renewal_told(Duration validity, std::uint64_t trust) { (void)validity, (void)trust; }
  virtual void parent_up(const Lease& lease) = 0;
  virtual void parent_down(const Error& why) = 0;
  // Everything the parent sends, one after the other; the next is read when this has ended. An error ends the session.
  virtual net::Awaitable<Status> from_parent(net::Frame frame) = 0;
};

// Opens a session to the node at `address`, which must be a member of this role. Not greeted yet.
using Dial = std::function<net::Awaitable<Result<std::shared_ptr<net::Session>>>(net::HostPort address, Role role)>;
Dial dial_over_tls(Runtime& runtime, std::shared_ptr<const identity::LiveTls> tls);

struct UplinkOptions {
  net::HostPort coordinator;
  std::string advertise;  // an aggregator's
  Incarnation incarnation;
  std::string software;
  std::uint64_t jitter_seed = 0;
  wire::Protocols protocols;  // as HubOptions'
  std::uint64_t process = 0;  // drawn: this process, and no other with the same identity
  // As HubOptions'.
  std::function<Result<identity::PeerIdentity>(const std::string& chain_pem)> verify = {};
  Duration past_certificate_max = std::chrono::hours(1);
};

class Uplink {
 public:
  Uplink(Runtime& runtime, UplinkOwner& owner, UplinkOptions options, Dial dial);

  net::Awaitable<void> run();  // until stop()
  void stop();                 // drains the session

  void post(v1::Envelope message);  // nothing while there is no parent
  // This node's own certificate is another from now on: a parent that takes it is told.
  void tell_renewed(const std::string& chain_pem);
  void end_past_certificate();  // of the parent; to be called now and then
  const std::shared_ptr<net::Session>& session() const { return session_; }
  const Lease& lease() const { return lease_; }
  Incarnation incarnation() const { return options_.incarnation; }
  net::Counters counters() const { return session_ ? session_->counters() : net::Counters{}; }  // of this session
  bool takes_reports() const { return takes_reports_; }                                         // the parent
  // What the parent takes, or the last one took.
  DigestKind digest_kind() const { return digest_kind_; }
  bool is_up() const { return session_ != nullptr; }
  const telemetry::EdgeBytes& bytes() const { return bytes_; }  // for who sends updates through the session

 private:
  net::Awaitable<Result<std::vector<Lease>>> ask_lease();
  net::Awaitable<Result<std::shared_ptr<net::Session>>> reach_parent();
  net::Awaitable<Result<Duration>> serve_parent();
  net::Awaitable<Result<std::shared_ptr<net::Session>>> open(net::HostPort address, round::Party expected,
                                                             const Lease* lease);
  v1::Envelope hello(const Lease* lease) const;
  void distrust(const Error& why);
  void say_renewed();
  Status take_renewed(const v1::Renewed& message);
  net::Awaitable<void> relay(std::shared_ptr<net::Session> session, Error* why);

  Runtime& runtime_;
  UplinkOwner& owner_;
  UplinkOptions options_;
  Dial dial_;
  telemetry::ParentMetrics counts_;
  telemetry::EdgeBytes bytes_;
  Lease lease_;
  round::HistoryId history_;  // of the last lease
  NodeId unreachable_;        // the nearest parent granted, when it could not be reached or trusted; else 0
  std::shared_ptr<net::Session> session_;
  std::shared_ptr<net::Session> opening_;
  bool takes_reports_ = false;
  DigestKind digest_kind_ = DigestKind::kStream;
  bool takes_renewed_ = false;
  std::optional<WallTime> parent_ends_;  // by the certificate that the parent has said to have since
  std::string renewed_pem_;              // the chain that parents were told of last
  TimePoint renewed_at_;
  net::AsyncSignal stop_;
  bool stopping_ = false;
};

}  // namespace fluvial::tree
