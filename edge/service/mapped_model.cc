#include "edge/service/mapped_model.h"

#include <boost/asio/awaitable.hpp>
#include <cstring>
#include <utility>

namespace fluvial::edge {

MappedModel::MappedModel(net::WorkerPool& pool, std::shared_ptr<local::ModelMemory> memory, const round::ModelRef& ref,
                         std::function<void()> begun, std::function<void(HeldModel)> done)
    : pool_(pool), memory_(std::move(memory)), ref_(ref), begun_(std::move(begun)), done_(std::move(done)) {}

net::Awaitable<Status> MappedModel::begin(round::Schema schema) {
  begun_();
  Result<local::MemfdWriter> writer =
      co_await pool_.run([memory = memory_, bytes = ref_.bytes] { return memory->writer(bytes); });
  if (!writer.ok()) co_return writer.error();
  writer_ = std::move(*writer);
  schema_ = std::move(schema);
  co_return Status{};
}

Status MappedModel::append(ByteSpan bytes) {
  FLUVIAL_CHECK(writer_ && bytes.size() <= ref_.bytes - filled_bytes_, "no room for it");
  std::memcpy(writer_->span().data() + filled_bytes_, bytes.data(), bytes.size());
  filled_bytes_ += bytes.size();
  return {};
}

Status MappedModel::begin_form(std::optional<round::ModelForm> form) {
  form_ = form ? std::make_shared<Buffer>(form->bytes) : nullptr;
  form_filled_bytes_ = 0;
  return {};
}

Status MappedModel::append_form(ByteSpan bytes) {
  FLUVIAL_CHECK(form_ && bytes.size() <= form_->size() - form_filled_bytes_, "no room for it");
  std::memcpy(form_->data() + form_filled_bytes_, bytes.data(), bytes.size());
  form_filled_bytes_ += bytes.size();
  return {};
}

Status MappedModel::seal() {
  form_.reset();
  FLUVIAL_ASSIGN(sealed_, std::move(*writer_).seal());
  return {};
}

void MappedModel::complete() { done_({ref_, std::move(*schema_), std::move(sealed_)}); }

}  // namespace fluvial::edge
