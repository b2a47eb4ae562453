#include "core/net/throttle.h"

#include <utility>

namespace fluvial::net {

Throttle::Throttle(const Executor& executor, Duration pause, std::function<void()> act)
    : timer_(executor), pause_(pause), act_(std::move(act)) {}

void Throttle::ask() {
  if (is_pausing_) {
    is_asked_ = true;
  } else {
    act_now();
  }
}

void Throttle::act_now() {
  if (is_stopped_) return;
  is_asked_ = false;
  is_pausing_ = true;
  timer_.after(pause_, [this] {
    is_pausing_ = false;
    if (is_asked_) act_now();
  });
  act_();
}

void Throttle::stop() {
  is_stopped_ = true;
  timer_.cancel();
}

}  // namespace fluvial::net
