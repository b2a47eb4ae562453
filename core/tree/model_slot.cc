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

net::Awaitable<void> ModelSlot::wait_beyond(std::uint64_t offset) {
  while (!abandoned_ && !(begun() && (available_ > offset || complete()))) co_await changed_.wait();
}

void ModelSlot::abandon() {
  abandoned_ = true;
  changed_.notify_all();
}

}  // namespace fluvial::tree
