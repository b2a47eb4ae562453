// A child's end of the tree: come for a lease, connect to the parent it names, serve the session until it ends, and
// again with capped, jittered backoff. What core/tree/uplink.h is over sockets.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "core/base/backoff.h"
#include "core/round/history.h"
#include "simulator/roles/cast.h"

namespace fluvial::simulator {

struct ParentLease {
  Epoch epoch;
  NodeId parent;  // 0: the coordinator
  HostId host;
};

class ChildOwner {
 public:
  virtual ~ChildOwner() = default;
  virtual Result<round::Standing> standing() = 0;
  // `done` once the lease's history is entered, or why the lease is not taken.
  virtual void granted(const round::Lineage& lineage, Epoch lease, std::function<void(const Status&)> done) = 0;
  virtual void parent_up(const ParentLease& lease) = 0;
  virtual void parent_down(const Error& why) = 0;
  virtual Status from_parent(Frame frame) = 0;  // an error ends the session
};

class ChildEnd {
 public:
  ChildEnd(Cast& cast, HostId host, Incarnation incarnation, ChildOwner& owner);

  void start();
  bool owns(SessionId session) const { return session == session_; }
  void connected();
  void received(Frame frame);
  void closed(const Error& why);

  bool is_up() const { return stage_ == Stage::kUp; }
  bool post(const v1::Envelope& message, Payload payload = Payload::none());  // false while there is no parent
  bool has_room() const;                                                      // otherwise wait for writable()
  SessionId session() const { return session_; }  // of the moment: another one is another transfer
  const ParentLease& lease() const { return lease_; }
  Incarnation incarnation() const { return incarnation_; }

 private:
  enum class Stage { kIdle, kLeaseConnect, kLeaseHello, kLeaseAsked, kLeaseGiven, kConnect, kHello, kUp };
  void ask_lease();
  void again(std::optional<Duration> lasted);
  void hello(Epoch lease);
  Status ask();
  Status granted(const v1::LeaseGrant& grant);
  void connect();
  void arm();
  TimePoint now() { return cast_.world().clock(host_).now(); }

  Cast& cast_;
  HostId host_;
  Incarnation incarnation_;
  ChildOwner& owner_;
  Backoff backoff_;
  Stage stage_ = Stage::kIdle;
  SessionId session_;
  ParentLease lease_;
  round::HistoryId history_;  // of the last lease
  TimePoint up_since_;
  NodeId unreachable_;  // the parent that could not be reached last
  EventId deadline_;
};

}  // namespace fluvial::simulator
