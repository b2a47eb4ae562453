// One version of the model as it arrives, and those it is passed on to meanwhile: a child may be sent bytes that came a
// moment ago (cut-through). The bytes are written once, in order, and never changed. Beside the model itself there may
// be another form of it, with fewer bytes (docs/design/down.md): either may arrive, and a child gets the one that it
// can use.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/net/awaitable.h"
#include "core/net/signal.h"
#include "core/round/model_form.h"
#include "core/round/schema.h"

namespace fluvial::tree {

// What of a run is fetched: its models, and the vectors that passes begin with (vectors.h). At most one of each is on
// its way to a child.
inline constexpr std::uint32_t kModelParts = 2;

// On the node's strand, except where noted.
class ModelSlot {
 public:
  // Empty, to be filled by append(). The memory is taken when the schema is known.
  ModelSlot(const net::Executor& strand, round::ModelRef ref);
  // Whole.
  ModelSlot(const net::Executor& strand, round::ModelRef ref, round::Schema schema, SharedBytes bytes);

  const round::ModelRef& ref() const { return ref_; }
  // It came ahead of its name (ModelAhead), which is this. Children may have asked for it as it was called before.
  void named(const round::ModelRef& ref);
  const std::optional<round::ModelRef>& called_ahead() const { return ahead_; }
  void also_called(const round::ModelRef& ahead) { ahead_ = ahead; }
  bool is_called(const round::ModelRef& ref) const { return ref == ref_ || (ahead_ && ref == *ahead_); }

  // kDataLoss when the schema does not make ref().bytes bytes; the same schema again is fine.
  Status begin(round::Schema schema);
  // At available(), no further than the end.
  Status append(ByteSpan bytes);
  bool begun() const { return schema_ != nullptr; }
  bool complete() const { return begun() && available_ == ref_.bytes; }
  std::uint64_t available() const { return available_; }
  std::shared_ptr<const round::Schema> schema() const { return schema_; }
  // Its memory, which this keeps alive; any thread may read what is available of it.
  SharedBytes shared() const { return bytes_; }
  ByteSpan bytes() const { return bytes_.bytes; }
  // The values of its integer tensors; null before it is complete.
  std::shared_ptr<const std::vector<std::int64_t>> integers();

  // ---- another form of it
  void also(round::ModelForm form, SharedBytes bytes);  // whole
  // It arrives, after begin(); what was here of another form is dropped. The form was checked against the schema.
  void begin_form(round::ModelForm form);
  Status append_form(ByteSpan bytes);
  void drop_form();  // it does not come any more: the model itself does
  const std::optional<round::ModelForm>& form() const { return form_; }
  std::uint64_t form_available() const { return form_available_; }
  SharedBytes form_shared() const { return form_bytes_; }
  // All of the model's memory, for what is decoded there, and that this is done. For the pool, while nothing is
  // appended.
  MutableByteSpan room();
  void decoded();
  // How much of what it arrives as is here, and how much that is.
  std::uint64_t progress() const { return form_ ? form_available_ : available_; }
  std::uint64_t progress_end() const { return form_ ? form_->bytes : ref_.bytes; }

  // ---- to those who are sent it
  // Which form they get: the other one if `takes` says so of it.
  bool gives_form(bool takes_form, const std::optional<round::ModelRef>& have) const;
  // Until there is more than `offset` of that form, or that one is not given any more, or the slot is given up.
  net::Awaitable<void> wait_begun();
  net::Awaitable<void> wait_beyond(std::uint64_t offset, std::optional<round::ModelForm> form = {});
  void abandon();
  bool abandoned() const { return abandoned_; }
  void give_up();  // also to those who would get the rest of a whole one
  bool is_given_up() const { return given_up_; }

 private:
  round::ModelRef ref_;
  std::optional<round::ModelRef> ahead_;  // as it was called before it had its name
  std::shared_ptr<const round::Schema> schema_;
  std::shared_ptr<Buffer> writable_;
  SharedBytes bytes_;
  std::shared_ptr<const std::vector<std::int64_t>> integers_;  // once they were asked for
  std::uint64_t available_ = 0;
  std::optional<round::ModelForm> form_;
  std::shared_ptr<Buffer> form_writable_;
  SharedBytes form_bytes_;
  std::uint64_t form_available_ = 0;
  bool abandoned_ = false;
  bool given_up_ = false;
  net::AsyncSignal changed_;
};

}  // namespace fluvial::tree
