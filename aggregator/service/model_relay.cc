#include "aggregator/service/model_relay.h"

#include <boost/asio/awaitable.hpp>
#include <utility>

namespace fluvial::aggregator {
namespace {

class IntoSlot final : public tree::ModelSink {
 public:
  struct Told {
    std::function<void(bool)> needs_base;  // whether it comes as a difference
    std::function<void(std::shared_ptr<tree::ModelSlot>)> named;
    std::function<void()> complete;
  };
  IntoSlot(std::shared_ptr<tree::ModelSlot> slot, Told told) : slot_(std::move(slot)), told_(std::move(told)) {}

  net::Awaitable<Status> begin(round::Schema schema) override { co_return slot_->begin(std::move(schema)); }
  Status append(ByteSpan bytes) override {
    if (slot_->available() == 0) told_.needs_base(false);
    return slot_->append(bytes);
  }
  Status begin_form(std::optional<round::ModelForm> form) override {
    told_.needs_base(form && form->base);
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
  void named(const round::ModelRef& ref) override {
    slot_->named(ref);
    told_.named(slot_);
    if (slot_->progress() > 0) told_.needs_base(slot_->form() && slot_->form()->base);
  }
  void complete() override {
    if (slot_->form()) slot_->decoded();
    told_.needs_base(false);
    told_.complete();
  }

 private:
  std::shared_ptr<tree::ModelSlot> slot_;
  Told told_;
};

}  // namespace

ModelRelay::ModelRelay(tree::Runtime& runtime, net::TaskGroup& tasks, std::function<void(v1::Envelope)> post,
                       std::function<void()> complete)
    : strand_(runtime.strand),
      clock_(runtime.clock),
      complete_(std::move(complete)),
      receiver_(runtime, tasks,
                {std::move(post),
                 [this](const round::ModelRef& ref, As as) { return begin(ref, as); },
                 {},
                 [this] { return have(); }}) {}

void ModelRelay::want(const round::ModelRef& ref) {
  if (slot_ && slot_->ref() == ref && slot_->complete()) return;
  receiver_.want(ref);
}

void ModelRelay::expect(const round::ModelRef& ref) {
  if (next_ && next_->ref() == ref) return;
  give_up_next();
  next_ = std::make_shared<tree::ModelSlot>(strand_, ref);
}

bool ModelRelay::ahead(const round::ModelRef& unnamed) {
  if (!is_complete() || !round::follows(unnamed, slot_->ref())) return false;
  return receiver_.ahead(unnamed);
}

std::shared_ptr<tree::ModelSink> ModelRelay::begin(const round::ModelRef& ref, As as) {
  const bool is_expected = as == As::kWanted && next_ && next_->ref() == ref;
  auto slot = is_expected ? std::exchange(next_, nullptr) : std::make_shared<tree::ModelSlot>(strand_, ref);
  if (as == As::kWanted) give_up_next();
  // What came ahead was damaged, or is not what was signed: who was sent it gets this one in its place.
  const std::optional<round::ModelRef> ahead = ahead_  ? std::optional(ahead_->ref())
                                               : slot_ ? slot_->called_ahead()
                                                       : std::nullopt;
  if (as == As::kWanted && ahead && ahead->run == ref.run && ahead->version == ref.version) slot->also_called(*ahead);
  give_up_ahead();
  if (as == As::kAhead) {
    ahead_ = slot;
  } else {
    promote(slot);
  }
  const auto needs_base = [this](bool needs) {
    if (!needs) base_.reset();
  };
  return std::make_shared<IntoSlot>(
      slot, IntoSlot::Told{needs_base, [this](auto named) { promote(std::move(named)); }, complete_});
}

// Children that are being sent the one before hear of this one, and ask.
void ModelRelay::promote(std::shared_ptr<tree::ModelSlot> slot) {
  ahead_.reset();
  if (is_complete()) integers_ = {slot_->ref().run, slot_->schema(), slot_->integers()};
  base_ = have();
  if (gives_overtaken_ && is_complete()) overtaken_.add(slot_, clock_.now());
  if (slot_) slot_->abandon();
  slot_ = std::move(slot);
}

std::shared_ptr<tree::ModelSlot> ModelRelay::slot(const round::ModelRef& ref) {
  if (ahead_ && ahead_->is_called(ref)) return ahead_;
  if (next_ && next_->is_called(ref)) return next_;
  if (slot_ && slot_->is_called(ref)) return slot_;
  return overtaken_.find(ref, clock_.now());
}

ModelRelay::Integers ModelRelay::integers_of(RunId run) const {
  if (is_complete() && slot_->ref().run == run) return {run, slot_->schema(), slot_->integers()};
  return integers_.run == run ? integers_ : Integers{run, {}, {}};
}

std::optional<tree::ModelReceiver::Held> ModelRelay::have() const {
  if (!is_complete()) return base_;
  return tree::ModelReceiver::Held{slot_->ref(), slot_->shared()};
}

void ModelRelay::give_up_ahead() {
  if (ahead_) ahead_->abandon();
  ahead_.reset();
}

void ModelRelay::give_up_next() {
  if (next_) next_->abandon();
  next_.reset();
}

void ModelRelay::forget_ahead(RunId run) {
  receiver_.forget_ahead(run);
  if (ahead_ && ahead_->ref().run == run) give_up_ahead();
}

void ModelRelay::forget() {
  receiver_.forget();
  give_up_ahead();
  give_up_next();
  if (slot_) slot_->abandon();
  slot_.reset();
  base_.reset();
  overtaken_.clear();
}

void ModelRelay::stop() {
  receiver_.stop();
  give_up_ahead();
  give_up_next();
  if (slot_) slot_->abandon();
}

}  // namespace fluvial::aggregator
