#include "core/tree/vectors.h"

#include <boost/asio/awaitable.hpp>
#include <utility>

#include "core/base/check.h"

namespace fluvial::tree {
namespace {

// What it holds only codecs know; its length is signed.
round::Schema schema_of(const round::ModelRef& ref) {
  Result<round::Schema> schema = round::Schema::make({{"vector", round::DType::kF32, {ref.bytes / sizeof(float)}}});
  FLUVIAL_CHECK(schema.ok(), "a vector's length was checked");
  return std::move(*schema);
}

class IntoSlot final : public ModelSink {
 public:
  IntoSlot(std::shared_ptr<ModelSlot> slot, std::function<void()> complete)
      : slot_(std::move(slot)), complete_(std::move(complete)) {}

  net::Awaitable<Status> begin(round::Schema schema) override {
    FLUVIAL_CO_TRY(round::check_same_schema(schema_of(slot_->ref()), schema));
    co_return slot_->begin(std::move(schema));
  }
  Status append(ByteSpan bytes) override { return slot_->append(bytes); }
  Status begin_form(std::optional<round::ModelForm> form) override {
    return form ? Status{Error{Code::kDataLoss, "a vector in another form than its bytes"}} : Status{};
  }
  Status append_form(ByteSpan) override { return Error{Code::kDataLoss, "a vector has no other form"}; }
  SharedBytes form_bytes() override { return {}; }
  MutableByteSpan room() override { return {}; }
  ByteSpan bytes() override { return slot_->bytes(); }
  void named(const round::ModelRef&) override {}
  void complete() override { complete_(); }

 private:
  std::shared_ptr<ModelSlot> slot_;
  std::function<void()> complete_;
};

}  // namespace

round::ModelRef called(const round::VectorRef& vector, const round::ModelRef& base) {
  return {base.run, base.version, vector.digest, vector.bytes};
}

std::shared_ptr<ModelSlot> slot_of_vector(const net::Executor& strand, const round::ModelRef& ref, SharedBytes bytes) {
  return std::make_shared<ModelSlot>(strand, ref, schema_of(ref), std::move(bytes));
}

Vectors::Vectors(Runtime& runtime, net::TaskGroup& tasks, std::function<void(v1::Envelope)> post, Here here)
    : strand_(runtime.strand),
      here_(std::move(here)),
      receiver_(runtime, tasks,
                {.post = std::move(post),
                 .sink = [this](const round::ModelRef& ref, ModelReceiver::Owner::As) { return begin(ref); },
                 .refused = {},
                 .part = 1}) {}

// A slot is complete before its digest is known.
void Vectors::want(const round::ModelRef& ref, const OpenedBy& by) {
  const bool is_new = by_ != by;
  by_ = by;
  if (is_checked_ && slot_->ref() == ref) return here_(ref, slot_->shared());
  receiver_.want(ref, is_new ? ModelReceiver::Ask::kAnew : ModelReceiver::Ask::kOnce);
}

// Children that are being sent what came before, and was damaged, or is not wanted any more, ask again or for another.
std::shared_ptr<ModelSink> Vectors::begin(const round::ModelRef& ref) {
  give_up();
  slot_ = std::make_shared<ModelSlot>(strand_, ref);
  return std::make_shared<IntoSlot>(slot_, [this, slot = slot_] {
    is_checked_ = slot == slot_;
    here_(slot->ref(), slot->shared());
  });
}

std::shared_ptr<ModelSlot> Vectors::slot(const round::ModelRef& ref) const {
  return slot_ && slot_->ref() == ref ? slot_ : nullptr;
}

void Vectors::give_up() {
  if (slot_) slot_->abandon();
  slot_.reset();
  is_checked_ = false;
}

void Vectors::forget() {
  receiver_.forget();
  give_up();
  by_.reset();
}

void Vectors::stop() {
  receiver_.stop();
  give_up();
}

}  // namespace fluvial::tree
