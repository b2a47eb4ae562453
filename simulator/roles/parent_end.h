// A parent's end of the tree: its children's sessions, what they send verified and staged, the model passed on to them.
// What core/tree/hub.h and intake.h are over sockets.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/round/history.h"
#include "core/store/staging.h"
#include "core/transfer/inflow.h"
#include "simulator/roles/cast.h"
#include "simulator/roles/model_slot.h"

namespace fluvial::simulator {

struct Child {
  NodeId node;
  Role role = Role::kSite;
  Epoch lease;
  Incarnation incarnation;
  round::HistoryId history;  // that its lease is of
  SessionId session;
};

class ParentOwner : public transfer::Receiver {
 public:
  virtual Status may_join(const Child& child) = 0;  // kStale: come for a new lease first
  virtual void child_joined(const Child& child) = 0;
  virtual void child_left(NodeId child) = 0;
  virtual void members_changed(NodeId child, const v1::MemberChange& change) = 0;
  virtual void lease_asked(SessionId session, const Identity& peer, const v1::LeaseRequest& request) = 0;

  virtual void declined(NodeId child, const round::Decline& decline) = 0;
  virtual void outcome_asked(NodeId child, const v1::OutcomeQuery& query) = 0;
  virtual std::shared_ptr<ModelSlot> model(const round::ModelRef& ref) = 0;  // null: not here, not expected
};

class ParentEnd {
 public:
  ParentEnd(Cast& cast, HostId host, ParentOwner& owner);

  // ---- the process' events
  void accepted(SessionId session, HostId from);
  bool owns(SessionId session) const { return connections_.contains(session); }
  void received(SessionId session, Frame frame);
  void closed(SessionId session);
  void writable(SessionId session);

  // ---- the owner's
  const std::map<NodeId, Child>& children() const { return children_; }
  void send(NodeId child, const v1::Envelope& message);  // nothing when it is not here
  void cut(NodeId child, const Error& reason);
  void answer_lease(SessionId session, const Result<v1::LeaseGrant>& grant);
  void model_grew(const std::shared_ptr<ModelSlot>& slot);  // those who wait for it are sent more
  transfer::RoundBook& book() { return book_; }             // of the open round, which the owner opens and closes
  const store::StagingBudget& budget() const { return budget_; }

 private:
  enum class Stage { kNew, kLeaseHello, kLeaseAsked, kLeaseGiven, kMember };
  struct Outflow {  // the model on its way out
    std::shared_ptr<ModelSlot> slot;
    std::uint64_t offset = 0;
    bool begun = false;
  };
  struct Connection {
    HostId from;
    Stage stage = Stage::kNew;
    NodeId node;
    std::optional<transfer::Inflow> inflow;  // an update or partial on its way in
    std::optional<Outflow> outflow;
  };

  Status hello(SessionId session, Connection& connection, const v1::Hello& hello);
  Status join(const Child& child);
  void leave(SessionId session, bool breach = false);
  Status dispatch(SessionId session, Connection& connection, Frame frame);
  Status tell_owner(const Child& child, const v1::Envelope& message);
  void admit(transfer::Inflow& inflow, const Child& child);
  Status chunk(Connection& connection, const Child& child, std::uint64_t index, const Payload& payload);
  Status end(Connection& connection, const Child& child, const std::string& sha256, const Payload& integers);
  void refuse(transfer::Inflow& inflow, const Child& child, const Error& error);
  Status start_model(SessionId session, Connection& connection, const v1::ModelRequest& request);
  void pump_model(SessionId session, Connection& connection);
  void end_session(SessionId session, const Error& why, bool breach = false);

  Cast& cast_;
  HostId host_;
  ParentOwner& owner_;
  store::StagingBudget budget_;
  transfer::Staging staging_;
  transfer::RoundBook book_;  // after the budget that it counts against
  std::map<SessionId, Connection> connections_;
  std::map<NodeId, Child> children_;
};

}  // namespace fluvial::simulator
