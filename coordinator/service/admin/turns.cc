#include "coordinator/service/admin/turns.h"

#include <boost/asio/awaitable.hpp>

namespace fluvial::coordinator::admin {

net::Awaitable<std::shared_ptr<void>> Turns::take(NodeId who) {
  while (taken_[who] >= kOfOneMax) co_await freed_.wait();
  ++taken_[who];
  co_return std::shared_ptr<void>(nullptr, [this, who](void*) { end(who); });
}

void Turns::end(NodeId who) {
  if (--taken_[who] == 0) taken_.erase(who);
  freed_.notify_all();
}

}  // namespace fluvial::coordinator::admin
