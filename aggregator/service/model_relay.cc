#include "aggregator/service/model_relay.h"

#include <boost/asio/awaitable.hpp>
#include <utility>

namespace fluvial::aggregator {
namespace {

class IntoSlot final : public tree::ModelSink {
 public:
  IntoSlot(std::shared_ptr<tree::ModelSlot> slot, std::function<void()> complete)
      : slot_(std::move(slot)), complete_(std::move(complete)) {}

  net::Awaitable<Status> begin(round::Schema schema) override { co_return slot_->begin(std::move(schema)); }
  Status append(ByteSpan bytes) override { return slot_->append(bytes); }
  ByteSpan bytes() override { return slot_->bytes(); }
  void complete() override { complete_(); }

 private:
  std::shared_ptr<tree::ModelSlot> slot_;
  std::function<void()> complete_;
};

}  // namespace

ModelRelay::ModelRelay(tree::Runtime& runtime, net::TaskGroup& tasks, std::function<void(v1::Envelope)> post,
                       std::function<void()> complete)
    : strand_(runtime.strand),
      complete_(std::move(complete)),
      receiver_(runtime, tasks, {std::move(post), [this](const round::ModelRef& ref) { return begin(ref); }, {}}) {}

void ModelRelay::want(const round::ModelRef& ref) {
  if (slot_ && slot_->ref() == ref && slot_->complete()) return;
  receiver_.want(ref);
}

// Children that are being sent the one before hear of this one, and ask.
std::shared_ptr<tree::ModelSink> ModelRelay::begin(const round::ModelRef& ref) {
  give_up_slot();
  slot_ = std::make_shared<tree::ModelSlot>(strand_, ref);
  return std::make_shared<IntoSlot>(slot_, complete_);
}

std::shared_ptr<tree::ModelSlot> ModelRelay::slot(const round::ModelRef& ref) const {
  return slot_ && slot_->ref() == ref ? slot_ : nullptr;
}

void ModelRelay::give_up_slot() {
  if (slot_) slot_->abandon();
  slot_.reset();
}

void ModelRelay::forget() {
  receiver_.forget();
  give_up_slot();
}

void ModelRelay::stop() {
  receiver_.stop();
  if (slot_) slot_->abandon();
}

}  // namespace fluvial::aggregator
