// An HTTP proxy (CONNECT alone) on the loopback, as a site's network has it: it knows the peers' names, which nobody
// else can resolve, and may want credentials.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/local/fd.h"

namespace fluvial::integration {

// Threads of its own: one that accepts, one a connection. All functions may be called from any thread.
class ConnectProxy {
 public:
  // `credentials` as base64 of "user:password"; empty: it asks for none.
  explicit ConnectProxy(std::string credentials = "");
  ~ConnectProxy();  // ends every tunnel
  ConnectProxy(const ConnectProxy&) = delete;
  ConnectProxy& operator=(const ConnectProxy&) = delete;

  std::uint16_t port() const { return port_; }
  void route(const std::string& host, bool open);  // its ports are ours on the loopback; closed: 403 Forbidden
  std::vector<std::string> opened() const;         // the tunnels, host:port, in their order

 private:
  struct Connection {
    local::UniqueFd client;
    local::UniqueFd peer;
    std::thread thread;
  };
  void accept_all();
  void serve(Connection* connection);
  std::string answer_to(const std::string& request, Connection* connection);

  const std::string credentials_;
  local::UniqueFd listener_;
  std::uint16_t port_ = 0;
  mutable std::mutex mutex_;  // of everything below
  std::map<std::string, bool> routes_;
  std::vector<std::string> opened_;
  std::list<Connection> connections_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace fluvial::integration
