// A deadline on a strand: it calls back once, unless it is set anew or cancelled before.
#pragma once

#include <functional>
#include <memory>

#include "core/base/clock.h"
#include "core/net/awaitable.h"

namespace fluvial::net {

// Not thread safe: on the executor's strand, where it calls back, too. Destroying it cancels. After cancel(), or when
// it is set anew, the earlier callback is never called.
class Timer {
 public:
  explicit Timer(const Executor& executor);
  ~Timer();
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  void after(Duration delay, std::function<void()> fired);  // a negative delay is none
  void cancel();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace fluvial::net
