#include "aggregator/service/model_relay.h"

#include <boost/asio/awaitable.hpp>
#include <utility>

namespace fluvial::aggregator {
namespace {

class IntoSlot final : public tree::ModelSink {
 public:
  // `needs_base`: whether it comes as a difference.
  IntoSlot(std::shared_ptr<tree::ModelSlot> slot, std::function<void(bool)> needs_base, std::function<void()> complete)
      : slot_(std::move(slot)), needs_base_(std::move(needs_base)), complete_(std::move(complete)) {}

  net::Awaitable<Status> begin(round::Schema schema) override { co_return slot_->begin(std::move(schema)); }
  Status append(ByteSpan bytes) override {
    if (slot_->available() == 0) needs_base_(false);
    return slot_->append(bytes);
  }
  Status begin_form(std::optional<round::ModelForm> form) override {
    needs_base_(form && form->base);
    if (form) {
      slot_->begin_form(std::move(*form));
    } else {
      slot_->drop_form();
    }
    return {};
  }
  Status append_form(ByteSpan bytes) override { return slot_->append_form(bytes); }
  SharedBytes form_bytes() override { return slot_->form_shared(); }
  MutableByteSpan room() override { return slot_->room(); }
  ByteSpan bytes() override { return slot_->bytes(); }
  void complete() override {
    if (slot_->form()) slot_->decoded();
    needs_base_(false);
    complete_();
  }

 private:
  std::shared_ptr<tree::ModelSlot> slot_;
  std::function<void(bool)> needs_base_;
  std::function<void()> complete_;
};

}  // namespace

ModelRelay::ModelRelay(tree::Runtime& runtime, net::TaskGroup& tasks, std::function<void(v1::Envelope)> post,
                       std::function<void()> complete)
    : strand_(runtime.strand),
      complete_(std::move(complete)),
      receiver_(
          runtime, tasks,
          {std::move(post), [this](const round::ModelRef& ref) { return begin(ref); }, {}, [this] { return have(); }}) {
}

void ModelRelay::want(const round::ModelRef& ref) {
  if (slot_ && slot_->ref() == ref && slot_->complete()) return;
  receiver_.want(ref);
}

// Children that are being sent the one before hear of this one, and ask.
std::shared_ptr<tree::ModelSink> ModelRelay::begin(const round::ModelRef& ref) {
  base_ = have();
  give_up_slot();
  slot_ = std::make_shared<tree::ModelSlot>(strand_, ref);
  const auto needs_base = [this](bool needs) {
    if (!needs) base_.reset();
  };
  return std::make_shared<IntoSlot>(slot_, needs_base, complete_);
}

std::shared_ptr<tree::ModelSlot> ModelRelay::slot(const round::ModelRef& ref) const {
  return slot_ && slot_->ref() == ref ? slot_ : nullptr;
}

std::optional<tree::ModelReceiver::Held> ModelRelay::have() const {
  if (!is_complete()) return base_;
  return tree::ModelReceiver::Held{slot_->ref(), slot_->shared()};
}

void ModelRelay::give_up_slot() {
  if (slot_) slot_->abandon();
  slot_.reset();
}

void ModelRelay::forget() {
  receiver_.forget();
  give_up_slot();
  base_.reset();
}

void ModelRelay::stop() {
  receiver_.stop();
  if (slot_) slot_->abandon();
}

}  // namespace fluvial::aggregator
