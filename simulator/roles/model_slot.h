// One version of the model as it arrives, and as it is passed on meanwhile: core/tree/model_slot.h without waiting.
#pragma once

#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/round/record.h"
#include "core/round/schema.h"

namespace fluvial::simulator {

class ModelSlot {
 public:
  explicit ModelSlot(const round::ModelRef& ref) : ref_(ref) {}
  ModelSlot(const round::ModelRef& ref, round::Schema schema, SharedBytes bytes)
      : ref_(ref), schema_(std::move(schema)), bytes_(std::move(bytes)), available_(ref.bytes) {}

  const round::ModelRef& ref() const { return ref_; }
  bool begun() const { return schema_.has_value(); }
  bool complete() const { return begun() && available_ == ref_.bytes; }
  std::uint64_t available() const { return available_; }
  const round::Schema& schema() const { return *schema_; }
  ByteSpan bytes() const { return bytes_.bytes; }
  SharedBytes shared() const { return bytes_; }
  // Null before it is complete.
  std::shared_ptr<const std::vector<std::int64_t>> integers() {
    if (integers_ == nullptr && complete()) {
      std::vector<std::int64_t> values(schema_->integer_count(), 0);
      round::read_integers(*schema_, bytes_.bytes, values);
      integers_ = std::make_shared<const std::vector<std::int64_t>>(std::move(values));
    }
    return integers_;
  }
  SharedBytes part(std::uint64_t offset, std::uint64_t size) const { return bytes_.part(offset, size); }

  Status begin(round::Schema schema) {
    if (schema_) return round::check_same_schema(*schema_, schema);
    if (schema.model_bytes() != ref_.bytes) return Error{Code::kDataLoss, "a schema of another size"};
    schema_ = std::move(schema);
    return {};
  }
  Status append(ByteSpan bytes) {
    if (!begun() || bytes.size() > ref_.bytes - available_) return Error{Code::kDataLoss, "beyond the model's end"};
    if (!writable_) {
      writable_ = std::make_shared<Buffer>(ref_.bytes);
      bytes_ = {writable_, writable_->span()};
    }
    if (!bytes.empty()) std::memcpy(writable_->data() + available_, bytes.data(), bytes.size());
    available_ += bytes.size();
    return {};
  }

 private:
  round::ModelRef ref_;
  std::optional<round::Schema> schema_;
  std::shared_ptr<Buffer> writable_;
  SharedBytes bytes_;
  std::shared_ptr<const std::vector<std::int64_t>> integers_;  // once they were asked for
  std::uint64_t available_ = 0;
};

}  // namespace fluvial::simulator
