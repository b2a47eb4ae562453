// A parent's end of the tree: its children's sessions, what they send verified and staged, the model passed on to them.
// What to do about it is the owner's: the coordinator's service or the aggregator's, each with its state machine.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "core/digest/submission_digest.h"
#include "core/identity/deny.h"
#include "core/identity/live_tls.h"
#include "core/net/listener.h"
#include "core/net/session.h"
#include "core/net/signal.h"
#include "core/net/task_group.h"
#include "core/round/history.h"
#include "core/round/report.h"
#include "core/store/staging.h"
#include "core/telemetry/node_metrics.h"
#include "core/transfer/cut.h"
#include "core/transfer/inflow.h"
#include "core/tree/children.h"
#include "core/tree/model_slot.h"
#include "core/tree/runtime.h"
#include "core/wire/protocol.h"

namespace fluvial::tree {

struct Child {
  NodeId node;
  Role role = Role::kSite;
  std::string name;
  Epoch lease;
  Incarnation incarnation;
  round::HistoryId history;  // that its lease is of
  std::shared_ptr<net::Session> session;
  std::uint32_t protocol = 0;                          // that both ends speak
  std::shared_ptr<const v1::Signed> lease_shown = {};  // LeaseStatement, not verified; null: it shows none
  bool takes_renewed = false;
  bool takes_models_ahead = false;
  std::shared_ptr<const identity::PeerIdentity> renewed = {};  // by the certificate that it has said to have since
  // Who it is, by the last certificate that it has shown.
  const identity::PeerIdentity& peer() const { return renewed ? *renewed : session->member(); }
};

// All on the node's strand.
class HubOwner : public transfer::Receiver {
 public:
  // kStale: come for a new lease first. It is asked twice: an older session of the child may end meanwhile.
  virtual Status may_join(const Child& child) = 0;
  virtual void child_joined(const Child& child) = 0;  // may be told things from here on
  virtual void child_left(NodeId child) = 0;
  virtual void members_changed(NodeId child, const v1::MemberChange& change) = 0;
  // Both from `remote`, on a session of their own.
  virtual net::Awaitable<Result<v1::LeaseGrant>> lease(identity::PeerIdentity peer, v1::LeaseRequest request,
                                                       std::string remote) = 0;
  // What becomes of it is said in the reply.
  virtual net::Awaitable<v1::RenewReply> renew(identity::PeerIdentity peer, v1::RenewRequest request,
                                               std::string remote);

  // Which of what this child has brought is not as its sites signed it, and why. Blocking and thread safe: on the pool.
  virtual std::vector<round::Refusal> forged(const Child& child, const transfer::Brought& brought);
  bool knows_authors() override { return false; }  // whether forged() looks at what partials bring
  void accused(RunId, RoundId, NodeId, const std::vector<round::Refusal>&) override {}

  virtual void declined(NodeId child, const round::Decline& decline) = 0;
  // Until it is answered, or passed on: a child's questions wait for each other.
  virtual net::Awaitable<void> outcome_asked(NodeId child, v1::OutcomeQuery query) = 0;

  virtual std::shared_ptr<ModelSlot> model(const round::ModelRef& ref) = 0;  // null: not here, and not expected

  // Whether the child, or a node that it says this of, is below it the owner looks itself. Its clock is as it is from
  // here.
  virtual void reported(NodeId child, round::NodeReport report) { (void)child, (void)report; }
};

struct HubOptions {
  std::string host;
  std::uint16_t port = 0;
  std::size_t sessions_max = 10'000;
  std::optional<std::uint64_t> staging_bytes_max = {};  // none: by the model that is summed (core/store/staging.h)
  std::string spill_folder;
  NodeId self;
  std::string software;
  std::uint64_t model_part_bytes = 1 << 20;  // a frame's
  config::Budgets budget;
  wire::Protocols protocols;                   // others than this build's: tests of what the next version will do
  DigestKind digest_kind = DigestKind::kTree;  // that it takes beside kStream; kStream: as a parent of 0.2, for tests
  // Verifies a chain of certificates (PEM) as a handshake would. Thread safe. None: this hub takes no Renewed.
  std::function<Result<identity::PeerIdentity>(const std::string& chain_pem)> verify = {};
  Duration past_certificate_max = std::chrono::hours(1);  // core/round/renewal.h
};

class Hub final : public Children {
 public:
  Hub(Runtime& runtime, HubOwner& owner, HubOptions options, std::shared_ptr<identity::DenyList> deny);

  Result<std::uint16_t> open(std::shared_ptr<const identity::LiveTls> tls);  // the port
  net::Awaitable<void> run();                                                // until stop()
  void stop();
  // One session to its end, on its executor, as run() has it for each that is accepted.
  net::Awaitable<void> serve(std::shared_ptr<net::Session> session);

  // On the strand.
  const std::map<NodeId, Child>& children() const { return children_; }
  std::set<NodeId> nodes() const override { return transfer::nodes_of(children_); }
  void send(NodeId child, v1::Envelope message) override;
  void cut(NodeId child, Error reason);
  // What a model will be called that is here and is nobody's yet; owner_.model() gives it to those who ask.
  void tell_ahead(const round::ModelRef& unnamed);
  // This node's own certificate is another from now on: children that take it are told.
  void tell_renewed(const std::string& chain_pem);
  void end_past_certificates();  // run() does it now and then
  void drop_denied();            // the deny list has changed: whom it names goes, with all that is under way
  // Passes whom the coordinator refuses on to the aggregators below, or to this child if it is one; null: that is not
  // known. One that shows no lease is of the version before, which knows no denials.
  void tell_denials(const v1::Denials* denials);
  void tell_denials(const Child& child, const v1::Denials* denials);
  transfer::RoundBook& book() override { return book_; }
  const store::StagingBudget& budget() const override { return budget_; }
  void sums(std::uint64_t value_count) override;
  std::uint64_t payload_bytes_in() const { return payload_bytes_in_.load(std::memory_order_relaxed); }
  std::uint64_t payload_bytes_out() const { return payload_bytes_out_.load(std::memory_order_relaxed); }

 private:
  struct Stream;  // what one child's session has going on
  net::Awaitable<Status> greet(std::shared_ptr<net::Session> session, v1::Hello hello);
  net::Awaitable<Status> serve_member(std::shared_ptr<net::Session> session, Child child);
  void welcome(net::Session& session, std::uint32_t protocol) const;
  net::Awaitable<Status> serve_lease(std::shared_ptr<net::Session> session, std::uint32_t protocol);
  net::Awaitable<Status> serve_renewal(std::shared_ptr<net::Session> session, v1::Envelope asked);
  net::Awaitable<Status> say_last(std::shared_ptr<net::Session> session, v1::Envelope reply);  // then the peer ends it
  void say_renewed(const Child& child) const;
  net::Awaitable<Status> take_renewed(Child child, std::shared_ptr<Stream> stream, v1::Renewed message);
  net::Awaitable<void> watch_certificates();
  net::Awaitable<Status> dispatch(Child child, std::shared_ptr<Stream> stream, net::Frame frame);
  net::Awaitable<Status> tell_owner(Child child, v1::Envelope message);
  net::Awaitable<Status> answer(Child child, std::shared_ptr<Stream> stream, v1::OutcomeQuery query);
  net::Awaitable<Status> take_report(Child child, v1::Report message);
  void note_clock(const Child& child, const ClockOffset& clock);
  net::Awaitable<Status> start_model(Child child, std::shared_ptr<Stream> stream, v1::ModelRequest request);
  struct Wanted;  // what a child asked for
  net::Awaitable<void> send_model(Child child, std::shared_ptr<Stream> stream, std::shared_ptr<ModelSlot> slot,
                                  Wanted wanted, std::uint64_t generation);
  net::Awaitable<Status> stream_model(Child child, std::shared_ptr<Stream> stream, std::shared_ptr<ModelSlot> slot,
                                      Wanted wanted, std::uint64_t generation);
  net::Awaitable<Status> send_begin(Child child, std::shared_ptr<Stream> stream, std::uint64_t generation,
                                    v1::ModelBegin begin, std::shared_ptr<const round::Schema> schema);
  net::Awaitable<Status> send_in_turn(std::shared_ptr<net::Session> session, std::shared_ptr<Stream> stream,
                                      std::uint32_t part, std::uint64_t generation, net::OutFrame frame);
  net::Awaitable<Status> take_in(Child child);
  net::Awaitable<void> left_by(Child child);  // when this session of the child's has ended
  Status may_join(const Child& child) const;
  Status join(const Child& child);
  void leave(const Child& child);

  Runtime& runtime_;
  HubOwner& owner_;
  HubOptions options_;
  std::shared_ptr<identity::DenyList> deny_;
  store::StagingBudget budget_;
  transfer::RoundBook book_;  // after the budget that it counts against
  std::shared_ptr<net::Listener> listener_;
  net::TaskGroup streams_;
  std::map<NodeId, Child> children_;
  std::set<NodeId> clocks_apart_;  // children whose wall clocks are
  net::AsyncSignal child_left_;
  struct Stop {  // on the strand
    explicit Stop(const net::Executor& strand) : signal(strand) {}
    net::AsyncSignal signal;
    bool stopping = false;
  };
  std::shared_ptr<Stop> stop_;
  std::string renewed_pem_;  // the chain that children were told of last
  TimePoint renewed_at_;
  telemetry::EdgeBytes bytes_;
  std::atomic<std::uint64_t> payload_bytes_in_{0};
  std::atomic<std::uint64_t> payload_bytes_out_{0};
};

}  // namespace fluvial::tree
