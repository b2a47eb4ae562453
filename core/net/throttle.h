// Work that looks at everything, after events that come in crowds: the first event has it done at once, those that
// follow within a pause have it done once more at the end of the pause.
#pragma once

#include <functional>

#include "core/net/timer.h"

namespace fluvial::net {

// Not thread safe: on the executor's strand, where it calls `act`, too.
class Throttle {
 public:
  Throttle(const Executor& executor, Duration pause, std::function<void()> act);

  void ask();      // acts now, or at the end of the pause
  void act_now();  // whatever is asked for is done with it
  void stop();     // from here on asking does nothing

 private:
  Timer timer_;
  Duration pause_;
  std::function<void()> act_;
  bool is_pausing_ = false;
  bool is_asked_ = false;  // during the pause
  bool is_stopped_ = false;
};

}  // namespace fluvial::net
