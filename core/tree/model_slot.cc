#include "core/tree/model_slot.h"

#include <boost/asio/awaitable.hpp>
#include <cstring>
#include <utility>

namespace fluvial::tree {

ModelSlot::ModelSlot(const net::Executor& strand, round::ModelRef ref) : ref_(ref), changed_(strand) {}

ModelSlot::ModelSlot(const net::Executor& strand, round::ModelRef ref, round::Schema schema, SharedBytes bytes)
    : ref_(ref),
      schema_(std::make_shared<const round::Schema>(std::move(schema))),
      bytes_(std::move(bytes)),
      available_(bytes_.bytes.size()),
      changed_(strand) {
  FLUVIAL_CHECK(bytes_.bytes.size() == ref_.bytes && schema_->model_bytes() == ref_.bytes, "a model of another size");
}

void ModelSlot::named(const round::ModelRef& ref) {
  FLUVIAL_CHECK(ref.bytes == ref_.bytes, "a name of another model");
  if (ref != ref_) ahead_ = std::exchange(ref_, ref);
}

Status ModelSlot::begin(round::Schema schema) {
  if (schema_ != nullptr) return round::check_same_schema(*schema_, schema);
  if (schema.model_bytes() != ref_.bytes) {
    return Error{Code::kDataLoss, "the schema makes " + std::to_string(schema.model_bytes()) +
                                      " bytes, the model has " + std::to_string(ref_.bytes)};
  }
  writable_ = std::make_shared<Buffer>(ref_.bytes);
  bytes_ = {writable_, writable_->span()};
  schema_ = std::make_shared<const round::Schema>(std::move(schema));
  return {};
}

Status ModelSlot::append(ByteSpan bytes) {
  if (writable_ == nullptr || bytes.size() > ref_.bytes - available_) {
    return Error{Code::kDataLoss, "model bytes beyond the model's end"};
  }
  if (!bytes.empty()) std::memcpy(writable_->data() + available_, bytes.data(), bytes.size());
  available_ += bytes.size();
  changed_.notify_all();
  return {};
}

std::shared_ptr<const std::vector<std::int64_t>> ModelSlot::integers() {
  if (integers_ == nullptr && complete()) {
    std::vector<std::int64_t> values(schema_->integer_count());
    round::read_integers(*schema_, bytes_.bytes, values);
    integers_ = std::make_shared<const std::vector<std::int64_t>>(std::move(values));
  }
  return integers_;
}

// ---- another form -------------------------------------------------------------------------------------------------

void ModelSlot::also(round::ModelForm form, SharedBytes bytes) {
  FLUVIAL_CHECK(bytes.bytes.size() == form.bytes, "a form of another size");
  form_ = std::move(form);
  form_bytes_ = std::move(bytes);
  form_available_ = form_->bytes;
}

void ModelSlot::begin_form(round::ModelForm form) {
  form_writable_ = std::make_shared<Buffer>(form.bytes);
  form_bytes_ = {form_writable_, form_writable_->span()};
  form_available_ = 0;
  form_ = std::move(form);
  changed_.notify_all();
}

Status ModelSlot::append_form(ByteSpan bytes) {
  if (form_writable_ == nullptr || bytes.size() > form_->bytes - form_available_) {
    return Error{Code::kDataLoss, "model bytes beyond the model's end"};
  }
  if (!bytes.empty()) std::memcpy(form_writable_->data() + form_available_, bytes.data(), bytes.size());
  form_available_ += bytes.size();
  changed_.notify_all();
  return {};
}

void ModelSlot::drop_form() {
  form_.reset();
  form_writable_.reset();
  form_bytes_ = {};
  form_available_ = 0;
  changed_.notify_all();
}

MutableByteSpan ModelSlot::room() {
  FLUVIAL_CHECK(writable_ != nullptr, "room before the schema is known");
  return writable_->span();
}

void ModelSlot::decoded() {
  available_ = ref_.bytes;
  changed_.notify_all();
}

// ---- those who are sent it ----------------------------------------------------------------------------------------

bool ModelSlot::gives_form(bool takes_form, const std::optional<round::ModelRef>& have) const {
  return takes_form && form_ && (!form_->base || form_->base == have);
}

net::Awaitable<void> ModelSlot::wait_begun() {
  while (!abandoned_ && !(begun() && (available_ > 0 || form_available_ > 0))) co_await changed_.wait();
}

net::Awaitable<void> ModelSlot::wait_beyond(std::uint64_t offset, std::optional<round::ModelForm> form) {
  const auto is_more = [&] {
    if (!form) return available_ > offset || complete();
    return form_ != form || form_available_ > offset || form_available_ == form_->bytes;
  };
  while (!abandoned_ && !(begun() && is_more())) co_await changed_.wait();
}

void ModelSlot::give_up() {
  given_up_ = true;
  abandon();
}

void ModelSlot::abandon() {
  abandoned_ = true;
  changed_.notify_all();
}

}  // namespace fluvial::tree
