// The memory that workers map, while a model comes into it: filled in order, or decoded from a form that was gathered
// beside it; sealed once it is whole. On the node's strand, seal() on the pool.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "core/local/model_memory.h"
#include "core/net/worker_pool.h"
#include "core/tree/model_receiver.h"
#include "edge/service/trained.h"

namespace fluvial::edge {

class MappedModel final : public tree::ModelSink {
 public:
  // `begun`: when the parent says what its tensors are called.
  MappedModel(net::WorkerPool& pool, std::shared_ptr<local::ModelMemory> memory, const round::ModelRef& ref,
              std::function<void()> begun, std::function<void(HeldModel)> done);

  net::Awaitable<Status> begin(round::Schema schema) override;
  Status append(ByteSpan bytes) override;
  Status begin_form(std::optional<round::ModelForm> form) override;
  Status append_form(ByteSpan bytes) override;
  SharedBytes form_bytes() override { return {form_, form_->span()}; }
  MutableByteSpan room() override { return writer_->span(); }
  ByteSpan bytes() override { return writer_->span(); }
  void named(const round::ModelRef& ref) override { ref_ = ref; }
  Status seal() override;
  void complete() override;

 private:
  net::WorkerPool& pool_;
  std::shared_ptr<local::ModelMemory> memory_;
  round::ModelRef ref_;
  std::function<void()> begun_;
  std::function<void(HeldModel)> done_;
  std::optional<round::Schema> schema_;
  std::optional<local::MemfdWriter> writer_;
  std::uint64_t filled_bytes_ = 0;
  std::shared_ptr<Buffer> form_;  // that it comes in; null: as its bytes
  std::uint64_t form_filled_bytes_ = 0;
  std::shared_ptr<const local::SharedModel> sealed_;
};

}  // namespace fluvial::edge
