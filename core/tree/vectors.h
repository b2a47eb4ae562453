// The vector that the open pass of a round begins with (docs/design/phases.md), as it comes from the parent and is
// passed on to children: as a model is, by its digest, but beside the models. On the node's strand.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "core/net/task_group.h"
#include "core/round/pass.h"
#include "core/tree/model_receiver.h"
#include "core/tree/model_slot.h"

namespace fluvial::tree {

// As it is asked for, in a round on this model.
round::ModelRef called(const round::VectorRef& vector, const round::ModelRef& base);
// One that is here, for those who ask.
std::shared_ptr<ModelSlot> slot_of_vector(const net::Executor& strand, const round::ModelRef& ref, SharedBytes bytes);

// The opening that names a vector.
struct OpenedBy {
  Epoch epoch;
  AttemptId attempt;
  std::uint32_t pass = 0;
  bool operator==(const OpenedBy&) const = default;
};

class Vectors {
 public:
  using Here = std::function<void(const round::ModelRef&, const SharedBytes&)>;

  // `post`: to the parent. `here`: all of one that was wanted is here, and is what the coordinator signed.
  Vectors(Runtime& runtime, net::TaskGroup& tasks, std::function<void(v1::Envelope)> post, Here here);

  // The vector before is given up, unless it is this one: then it is told again if it is here and checked. A vector
  // that is on its way is asked for again by each new opening that names it: the parent gives up the state of the codec
  // when the next pass opens, and ends what it was sending of it without a word.
  void want(const round::ModelRef& ref, const OpenedBy& by);
  std::shared_ptr<ModelSlot> slot(const round::ModelRef& ref) const;  // null: that one is not wanted
  ModelReceiver& receiver() { return receiver_; }                     // what the parent sends of it
  void forget();                                                      // it may be of rounds that are lost
  void stop();

 private:
  std::shared_ptr<ModelSink> begin(const round::ModelRef& ref);
  void give_up();

  net::Executor strand_;
  Here here_;
  std::shared_ptr<ModelSlot> slot_;
  bool is_checked_ = false;  // the slot's bytes are what its digest says
  std::optional<OpenedBy> by_;
  ModelReceiver receiver_;
};

}  // namespace fluvial::tree
