// The way in of a TLS port, whoever it is for: accepts connections at a pace, keeps those that have shown no
// certificate within their bounds (strangers.h), and sees each through its handshake in its time. What becomes of it
// then is its host's.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "core/base/clock.h"
#include "core/net/awaitable.h"
#include "core/net/greeting.h"
#include "core/net/hooks.h"
#include "core/net/strangers.h"
#include "core/net/task_group.h"

namespace fluvial::net {

TaskGroup::Failed told_to(std::shared_ptr<NetHooks> hooks);  // of handlers that throw

// Thread safe. What it turns away is told to the hooks by reason (hooks.h).
class FrontDoor : public std::enable_shared_from_this<FrontDoor> {
 public:
  struct Settings {
    double accepts_per_s;
    double accepts_burst;
    std::size_t strangers_max;
    std::size_t strangers_per_address_max;
    Duration handshake_deadline;
    const Clock* clock = nullptr;  // outlives the door; none: the machine's
  };

  // A connection that has not proved to be a member's. All but `strand` and `remote` is its strand's.
  struct Stranger {
    Stranger(const Executor& executor, std::string from, Duration limit)
        : strand(executor), remote(std::move(from)), timer(executor, limit) {}
    const Executor strand;
    const std::string remote;
    Strangers::Ticket ticket = 0;
    asio::steady_timer timer;  // its handshake ends with it
    bool gives_way = false;
    std::function<void(Error)> end;  // when it gives way after its handshake; may be empty
  };
  struct Guest {
    Greeted greeted;
    std::shared_ptr<Stranger> stranger;
    std::shared_ptr<void> until_known;  // it counts as a stranger while this lives
  };
  struct Host {
    std::function<std::shared_ptr<const identity::TlsContext>()> tls;  // asked for each connection
    std::function<bool(std::size_t handshakes)> has_room;              // no: a newcomer is refused
    std::function<Awaitable<void>(Guest)> came;                        // on the connection's strand
  };

  // `acceptor` has a strand of its own.
  FrontDoor(Executor executor, asio::ip::tcp::acceptor acceptor, Settings settings, std::shared_ptr<NetHooks> hooks);

  // Until stop(); returns when every handshake has ended. Once. Keeps `host` until then.
  static Awaitable<void> run(std::shared_ptr<FrontDoor> self, Host host);
  void stop();
  std::uint16_t port() const { return port_; }

 private:
  using Tcp = asio::ip::tcp;
  static Awaitable<void> accept_all(std::shared_ptr<FrontDoor> self, std::shared_ptr<const Host> host);
  Awaitable<void> pause(Duration duration);
  void take(Tcp::socket socket, const std::shared_ptr<const Host>& host);
  bool arrive(const std::shared_ptr<Stranger>& stranger);
  void moved(Strangers::Ticket ticket);
  void left(Strangers::Ticket ticket);
  static Awaitable<Result<Greeted>> greet(std::shared_ptr<FrontDoor> self, std::shared_ptr<const Host> host,
                                          Tcp::socket socket, std::shared_ptr<std::optional<TlsFault>> fault,
                                          std::shared_ptr<Stranger> stranger);
  static Awaitable<void> welcome(std::shared_ptr<FrontDoor> self, std::shared_ptr<const Host> host, Tcp::socket socket,
                                 std::shared_ptr<Stranger> stranger);

  const Executor executor_;
  Tcp::acceptor acceptor_;  // with pause_ and stopping_ on a strand of its own
  asio::steady_timer pause_;
  bool stopping_ = false;
  const Settings settings_;
  const std::shared_ptr<NetHooks> hooks_;
  TaskGroup handshakes_;
  const std::uint16_t port_;
  const SystemClock machines_;
  const Clock& clock_ = settings_.clock != nullptr ? *settings_.clock : machines_;
  std::mutex mutex_;
  Strangers strangers_;
  std::map<Strangers::Ticket, std::weak_ptr<Stranger>> strangers_here_;
};

}  // namespace fluvial::net
