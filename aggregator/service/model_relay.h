// The model of the open round or the next, as it comes from the parent and is passed on to children: those that ask for
// it while it is on its way get what is here, and the rest as it comes. On the node's strand.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/tree/model_receiver.h"
#include "core/tree/model_slot.h"
#include "core/tree/overtaken_models.h"

namespace fluvial::aggregator {

class ModelRelay {
 public:
  // `post`: to the parent. `complete`: all of it is here, and is what was announced.
  ModelRelay(tree::Runtime& runtime, net::TaskGroup& tasks, std::function<void(v1::Envelope)> post,
             std::function<void()> complete);

  void want(const round::ModelRef& ref);  // the parent has named it; the one before is overtaken
  // It will be wanted once the present one is here. Children hear of it before, and who asks for it waits.
  void expect(const round::ModelRef& ref);
  // It will name this one, unless a commit fails. False: it does not follow on what is here, or ModelReceiver::ahead().
  bool ahead(const round::ModelRef& unnamed);
  // With windows: a whole one that is overtaken is given for a while longer.
  void give_overtaken(bool gives) { gives_overtaken_ = gives; }
  void forget();  // it may be of rounds that are lost
  void forget_ahead(RunId run);
  void stop();
  tree::ModelReceiver& receiver() { return receiver_; }  // what the parent sends of it

  std::shared_ptr<tree::ModelSlot> slot() const { return slot_; }     // null: none is wanted
  std::shared_ptr<tree::ModelSlot> slot(const round::ModelRef& ref);  // null: that one is not, nor comes ahead
  bool is_complete() const { return slot_ && slot_->complete(); }
  // Of the newest model of this run that was whole here; null: none was. Integers only grow, so those of an older model
  // bound an update of a newer one from below.
  struct Integers {
    RunId run;
    std::shared_ptr<const round::Schema> schema;
    std::shared_ptr<const std::vector<std::int64_t>> values;
  };
  Integers integers_of(RunId run) const;

 private:
  using As = tree::ModelReceiver::Owner::As;
  std::shared_ptr<tree::ModelSink> begin(const round::ModelRef& ref, As as);
  void promote(std::shared_ptr<tree::ModelSlot> slot);
  std::optional<tree::ModelReceiver::Held> have() const;
  void give_up_ahead();
  void give_up_next();

  net::Executor strand_;
  const Clock& clock_;
  std::function<void()> complete_;
  std::shared_ptr<tree::ModelSlot> slot_;
  std::shared_ptr<tree::ModelSlot> ahead_;  // of the model that is not named yet
  std::shared_ptr<tree::ModelSlot> next_;   // of the model that is expected
  bool gives_overtaken_ = false;
  tree::OvertakenModels overtaken_;
  Integers integers_;                              // of the last one that was whole
  std::optional<tree::ModelReceiver::Held> base_;  // the model before, until it is known that no difference needs it
  tree::ModelReceiver receiver_;
};

}  // namespace fluvial::aggregator
