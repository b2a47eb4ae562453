// A session between two simulated hosts, with the interface that everything above core/net uses.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/net/clock_probe.h"
#include "core/net/session.h"
#include "core/net/signal.h"
#include "core/net/timer.h"
#include "simulator/node/context.h"

namespace fluvial::simulator {

// Sees a node's message before it leaves; a dishonest node changes it. False: it is not sent.
using Outgoing = std::function<bool(SessionId session, v1::Envelope& message, SharedBytes& payload)>;

class NodeSession final : public net::Session {
 public:
  NodeSession(World& world, HostId host, NodeContext& context, SessionId id, identity::PeerIdentity peer,
              Outgoing* outgoing);
  ~NodeSession() override;

  const std::optional<identity::PeerIdentity>& peer() const override { return peer_; }
  const std::string& remote() const override { return remote_; }
  net::Executor executor() const override { return context_.executor(); }
  net::Counters counters() const override { return {}; }
  void measure_clock() override;
  std::optional<ClockOffset> peer_clock() const override { return probe_.offset(); }
  net::Awaitable<Result<net::Frame>> receive() override;
  net::Awaitable<Status> send(net::OutFrame frame) override;
  void post(net::OutFrame frame) override;
  void close(Error reason, bool drain) override;
  net::Awaitable<void> closed() override;
  bool is_open() const override { return open_; }
  Error close_reason() const override { return reason_; }

  // ---- the world's
  SessionId id() const { return id_; }
  void came(Frame frame);
  void ended(Error why);  // by the other end, or by the network between
  void writable() { room_.notify_all(); }

 private:
  bool take_clock_message(const v1::Envelope& message);
  void ask_clock();
  bool put(net::OutFrame frame);  // false: the process is dead
  void over(Error why);
  net::Awaitable<void> never();

  World& world_;
  HostId host_;
  NodeContext& context_;
  SessionId id_;
  std::optional<identity::PeerIdentity> peer_;
  std::string remote_;
  Outgoing* outgoing_;
  bool open_ = true;
  Error reason_{Code::kInternal, "still open"};
  net::ClockProbe probe_;
  std::uint64_t questions_ = 0;
  net::Timer question_;
  std::deque<net::Frame> frames_;
  net::AsyncSignal arrival_;
  net::AsyncSignal room_;
  net::AsyncSignal ended_;
};

}  // namespace fluvial::simulator
