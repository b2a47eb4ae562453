// How many requests of one caller are answered at once; its others wait. So nobody who asks for much at a time keeps
// the pool from rounds. On the node's strand.
#pragma once

#include <cstddef>
#include <map>
#include <memory>

#include "core/base/ids.h"
#include "core/net/awaitable.h"
#include "core/net/signal.h"

namespace fluvial::coordinator::admin {

class Turns {
 public:
  static constexpr std::size_t kOfOneMax = 2;

  explicit Turns(const net::Executor& strand) : freed_(strand) {}

  // The caller's turn, as long as this is held: on the strand, and no longer than the Turns live.
  net::Awaitable<std::shared_ptr<void>> take(NodeId who);

 private:
  void end(NodeId who);

  std::map<NodeId, std::size_t> taken_;
  net::AsyncSignal freed_;
};

}  // namespace fluvial::coordinator::admin
