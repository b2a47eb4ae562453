// With windows a model may be overtaken before everybody who needs it has asked for it, or has it. It is given for a
// while longer, and not all of them at once: each takes its memory.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>

#include "core/base/clock.h"
#include "core/tree/model_slot.h"

namespace fluvial::tree {

// On the node's strand.
class OvertakenModels {
 public:
  // Whole; its children have just been told of a newer one. Those who are being sent it get the rest, unless kMost
  // newer ones are overtaken meanwhile.
  void add(std::shared_ptr<ModelSlot> slot, TimePoint now);
  // For whoever asked for it before hearing of the newer one. Null: it is not given any more.
  std::shared_ptr<ModelSlot> find(const round::ModelRef& ref, TimePoint now);
  void clear();
  std::size_t alive() const;  // that somebody is being sent, or that are still given

  static constexpr std::size_t kMost = 4;
  static constexpr Duration kGiven = std::chrono::seconds(3);

 private:
  struct One {
    std::weak_ptr<ModelSlot> slot;
    std::shared_ptr<ModelSlot> given;
    TimePoint until;
  };
  void forget(TimePoint now);

  std::deque<One> all_;
};

}  // namespace fluvial::tree
