// A process of shipped code on a simulated host, in the place of core/tree/process.h and core/net. A role derives from
// it, makes its services in start() with runtime(), and serves accepted sessions.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "core/net/task_group.h"
#include "core/telemetry/metrics.h"
#include "core/tree/runtime.h"
#include "core/tree/uplink.h"
#include "simulator/node/context.h"
#include "simulator/node/pool.h"
#include "simulator/node/session.h"

namespace fluvial::simulator {

class Node : public Process {
 public:
  using IdentityOf = std::function<identity::PeerIdentity(HostId)>;

  // Without metrics (null) it has some of its own.
  Node(World& world, HostId host, Role role, IdentityOf identity_of, const WorkCosts& costs,
       telemetry::Metrics* metrics = nullptr);
  ~Node() override;

  void accepted(SessionId session, HostId from) override;
  void connected(SessionId session) override;
  void received(SessionId session, Frame frame) override;
  void closed(SessionId session, const Error& why) override;
  void writable(SessionId session) override;

 protected:
  // Each final role's destructor calls this first, while no member of the role has been destroyed.
  void take_down();

  virtual net::Awaitable<void> serve(std::shared_ptr<net::Session> session) = 0;  // an accepted session
  virtual void after_frame() {}  // a frame has come and is being handled

  World& world() { return world_; }
  HostId host() const { return host_; }
  tree::Runtime& runtime() { return runtime_; }
  net::TaskGroup& tasks() { return tasks_; }
  void spawn(std::string name, net::Awaitable<void> task) {
    tasks_.spawn(runtime_.strand, std::move(name), std::move(task));
  }
  struct Answer {     // at an address
    HostId host;      // that answers there
    HostId takes_it;  // whose certificate this process takes it to show
    // Set where the connection is for the enrolment port, and told of it: there certificates are not checked.
    std::function<void(SessionId)> at_enrolment = {};
  };
  // What a handshake of this process with who answers checks besides dates; without it, nothing.
  void set_trusts(std::function<Status(const identity::PeerIdentity&)> trusts) { trusts_ = std::move(trusts); }
  tree::Dial dial(std::function<Answer(const net::HostPort&)> who_is_at);
  void set_outgoing(Outgoing outgoing) { outgoing_ = std::move(outgoing); }
  bool is_dead() { return !world_.is_up(host_); }

 private:
  net::Awaitable<Result<std::shared_ptr<net::Session>>> connect(Answer to);
  net::Awaitable<void> serve_to_the_end(std::shared_ptr<NodeSession> session);
  std::shared_ptr<NodeSession> find(SessionId session) const;

  struct Connecting {
    explicit Connecting(const net::Executor& executor) : changed(executor) {}
    bool up = false;
    std::optional<Error> failed;
    net::AsyncSignal changed;
  };

  World& world_;
  HostId host_;
  IdentityOf identity_of_;
  NodeContext context_;
  NodePool pool_;
  std::unique_ptr<telemetry::Metrics> own_metrics_;
  tree::Runtime runtime_;
  net::TaskGroup tasks_;
  Outgoing outgoing_;
  std::function<Status(const identity::PeerIdentity&)> trusts_;
  std::map<SessionId, std::weak_ptr<NodeSession>> sessions_;
  std::map<SessionId, std::shared_ptr<Connecting>> connecting_;
};

}  // namespace fluvial::simulator
