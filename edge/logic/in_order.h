// Carries out effects in the order in which they were decided. If carrying out an effect makes the machine decide more
// effects, these come after all that were decided before.
#pragma once

#include <deque>
#include <utility>
#include <variant>
#include <vector>

namespace fluvial::edge {

template <typename Effect>
class InOrder {
 public:
  // `apply` takes each of the effect's alternatives, and may call back here.
  template <typename Apply>
  void carry_out(std::vector<Effect> effects, const Apply& apply) {
    for (Effect& effect : effects) queue_.push_back(std::move(effect));
    if (is_busy_) return;
    is_busy_ = true;
    while (!queue_.empty()) {
      const Effect effect = std::move(queue_.front());
      queue_.pop_front();
      std::visit(apply, effect);
    }
    is_busy_ = false;
  }

 private:
  std::deque<Effect> queue_;
  bool is_busy_ = false;
};

}  // namespace fluvial::edge
