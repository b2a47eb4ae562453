// One version of the model as it arrives, and those it is passed on to meanwhile: a child may be sent bytes that came a
// moment ago (cut-through). The bytes are written once, in order, and never changed.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/net/awaitable.h"
#include "core/net/signal.h"
#include "core/round/record.h"
#include "core/round/schema.h"

namespace fluvial::tree {

// On the node's strand, except where noted.
class ModelSlot {
 public:
  // Empty, to be filled by append(). The memory is taken when the schema is known.
  ModelSlot(const net::Executor& strand, round::ModelRef ref);
  // Whole.
  ModelSlot(const net::Executor& strand, round::ModelRef ref, round::Schema schema, SharedBytes bytes);

  const round::ModelRef& ref() const { return ref_; }

  // kDataLoss when the schema does not make ref().bytes bytes; the same schema again is fine.
  Status begin(round::Schema schema);
  // At available(), no further than the end.
  Status append(ByteSpan bytes);
  bool begun() const { return schema_ != nullptr; }
  bool complete() const { return begun() && available_ == ref_.bytes; }
  std::uint64_t available() const { return available_; }
  std::shared_ptr<const round::Schema> schema() const { return schema_; }
  // [offset, offset + size) of what is available. The part keeps the memory alive; any thread may read it.
  SharedBytes part(std::uint64_t offset, std::uint64_t size) const { return bytes_.part(offset, size); }
  ByteSpan bytes() const { return bytes_.bytes; }
  // The values of its integer tensors; null before it is complete.
  std::shared_ptr<const std::vector<std::int64_t>> integers();

  // Until there is more than `offset`, or the slot is given up.
  net::Awaitable<void> wait_beyond(std::uint64_t offset);
  void abandon();
  bool abandoned() const { return abandoned_; }

 private:
  round::ModelRef ref_;
  std::shared_ptr<const round::Schema> schema_;
  std::shared_ptr<Buffer> writable_;
  SharedBytes bytes_;
  std::shared_ptr<const std::vector<std::int64_t>> integers_;  // once they were asked for
  std::uint64_t available_ = 0;
  bool abandoned_ = false;
  net::AsyncSignal changed_;
};

}  // namespace fluvial::tree
