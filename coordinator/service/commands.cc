#include "coordinator/service/commands.h"

#include <boost/asio/awaitable.hpp>
#include <utility>

namespace fluvial::coordinator {

void Commands::answer(const Status& result) {
  FLUVIAL_CHECK(!waiting_.empty(), "an answer that nobody waits for");
  const std::shared_ptr<Waiting> oldest = std::move(waiting_.front());
  waiting_.pop_front();
  oldest->answer = result;
  oldest->answered.notify_all();
}

void Commands::stop() {
  stopping_ = true;
  for (const auto& one : waiting_) one->answered.notify_all();
}

}  // namespace fluvial::coordinator
