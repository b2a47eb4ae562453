// The model on its way to a child: which form of it, from where on, as it becomes available.
#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <utility>

#include "core/tree/ask.h"
#include "core/tree/form_word.h"
#include "core/tree/hub.h"
#include "core/tree/hub_stream.h"
#include "core/wire/mapping.h"
#include "core/wire/record_mapping.h"

namespace fluvial::tree {
namespace {

constexpr int kModelsAtOnceMax = 16;       // of one child; it waits for one
constexpr std::uint64_t kSchemaShare = 4;  // of a frame with the model's bytes: a slow line has it within its deadline

}  // namespace

struct Hub::Wanted {
  round::ModelRef model;     // as the child calls it
  std::uint64_t offset = 0;  // of the model's bytes
  bool takes_form = false;
  std::optional<round::ModelRef> have;
  std::optional<round::ModelForm> begun;
  std::uint64_t form_offset = 0;
  std::uint32_t part = 0;

  static Result<Wanted> from(const v1::ModelRequest& request) {
    Wanted wanted{.model = {}, .offset = request.offset(), .takes_form = request.takes_form(), .have = {}, .begun = {}};
    FLUVIAL_ASSIGN(wanted.model, wire::from_proto(request.model()));
    wanted.part = request.part();
    if (wanted.part >= kModelParts) return Error{Code::kInvalidArgument, "no such part of a run"};
    if (request.has_have()) {
      FLUVIAL_ASSIGN(wanted.have, wire::from_proto(request.have()));
    }
    if (request.has_begun()) {
      FLUVIAL_ASSIGN(wanted.begun, wire::from_proto(request.begun()));
      wanted.form_offset = request.form_offset();
    }
    return wanted;
  }

  // Where to go on, in this form.
  std::uint64_t begins_at(const std::optional<round::ModelForm>& form) const {
    if (!form) return offset;
    return form == begun && form_offset <= form->bytes ? form_offset : 0;
  }
};

void Hub::tell_ahead(const round::ModelRef& unnamed) {
  v1::Envelope message;
  *message.mutable_model_ahead()->mutable_model() = wire::to_proto(unnamed);
  for (const auto& [node, child] : children_) {
    if (child.takes_models_ahead) send(node, message);
  }
}

net::Awaitable<Status> Hub::start_model(Child child, std::shared_ptr<Stream> stream, v1::ModelRequest request) {
  Result<Wanted> wanted = Wanted::from(request);
  if (!wanted.ok()) co_return wanted.error();
  const round::ModelRef ref = wanted->model;
  if (request.offset() > ref.bytes) co_return Error{Code::kInvalidArgument, "an offset beyond the model's end"};
  const Result<std::shared_ptr<ModelSlot>> slot =
      co_await ask(runtime_.strand, [&]() -> Result<std::shared_ptr<ModelSlot>> { return owner_.model(ref); });
  if (*slot == nullptr) {  // overtaken: the child will hear of a newer one
    runtime_.log.debug(wanted->part == 0 ? "model asked for that is not here" : "vector asked for that is not here",
                       {{"member", child.name}, {"run", ref.run}, {"model_version", ref.version}});
    co_return Status{};
  }
  if (stream->models >= kModelsAtOnceMax) {
    co_return Error{Code::kResourceExhausted, "too many models asked for at once"};
  }
  ++stream->models;
  const std::uint64_t generation = ++stream->generation[wanted->part];
  streams_.spawn(child.session->executor(), "model to " + child.name,
                 send_model(child, stream, *slot, std::move(*wanted), generation));
  co_return Status{};
}

// Its end is the session's, or the child has asked for another.
net::Awaitable<void> Hub::send_model(Child child, std::shared_ptr<Stream> stream, std::shared_ptr<ModelSlot> slot,
                                     Wanted wanted, std::uint64_t generation) {
  const round::ModelRef model = wanted.model;
  const Status sent = co_await stream_model(child, stream, std::move(slot), std::move(wanted), generation);
  if (sent.ok() || sent.error().code == Code::kCancelled) co_return;
  runtime_.log.debug("a model was not sent whole; the child asks for the rest of it",
                     {{"member", child.name},
                      {"run", model.run},
                      {"model_version", model.version},
                      {"reason", sent.error().to_string()}});
}

// A frame that waits for room is out before the next one of its part. kCancelled: another was asked for meanwhile.
net::Awaitable<Status> Hub::send_in_turn(std::shared_ptr<net::Session> session, std::shared_ptr<Stream> stream,
                                         std::uint32_t part, std::uint64_t generation, net::OutFrame frame) {
  while (stream->is_sending[part]) co_await stream->sent.wait();
  if (stream->generation[part] != generation) co_return Error{Code::kCancelled, "another was asked for"};
  stream->is_sending[part] = true;
  const Status sent = co_await session->send(std::move(frame));
  stream->is_sending[part] = false;
  stream->sent.notify_all();
  co_return sent;
}

// The schema comes in as many ModelBegins as it takes, with nothing of this part between them.
net::Awaitable<Status> Hub::send_begin(Child child, std::shared_ptr<Stream> stream, std::uint64_t generation,
                                       v1::ModelBegin begin, std::shared_ptr<const round::Schema> schema) {
  std::size_t next = 0;
  do {
    v1::Envelope message;
    v1::ModelBegin& one = *message.mutable_model_begin() = begin;
    one.set_first_tensor(static_cast<std::uint32_t>(next));
    if (child.protocol < wire::kProtocolOfSchemaParts) {
      *one.mutable_schema() = wire::to_proto(*schema);
      next = schema->tensors().size();
    } else {
      next = wire::put_tensors(*schema, next, options_.model_part_bytes / kSchemaShare, one.mutable_schema());
    }
    one.set_more_tensors(next < schema->tensors().size());
    FLUVIAL_CO_TRY(co_await send_in_turn(child.session, stream, begin.part(), generation, {std::move(message), {}}));
  } while (next < schema->tensors().size());
  co_return Status{};
}

net::Awaitable<Status> Hub::stream_model(Child child, std::shared_ptr<Stream> stream, std::shared_ptr<ModelSlot> slot,
                                         Wanted wanted, std::uint64_t generation) {
  const std::shared_ptr<void> until_sent(nullptr, [stream](void*) { --stream->models; });
  bool begun = false;
  std::optional<round::ModelForm> form;  // that it is sent; none: the model's bytes
  std::uint64_t offset = 0;              // in it
  const std::uint64_t& newest = stream->generation[wanted.part];
  while (newest == generation) {
    // What is available is asked for on the node's strand, a part at a time.
    co_await run_on(runtime_.strand, begun ? slot->wait_beyond(offset, form) : slot->wait_begun());
    std::shared_ptr<const round::Schema> schema;
    SharedBytes source;
    bool begins = false;
    const Result<std::uint64_t> available = co_await ask(runtime_.strand, [&]() -> Result<std::uint64_t> {
      // Overtaken; or what came was damaged, and comes anew, as the model itself.
      if (slot->is_given_up() || (slot->abandoned() && !slot->complete())) {
        std::shared_ptr<ModelSlot> anew = owner_.model(wanted.model);
        if (anew == nullptr || anew->abandoned()) return Error{Code::kCancelled, "overtaken"};
        slot = std::move(anew);
        wanted.takes_form = begun = false;
        return std::uint64_t{0};
      }
      schema = slot->schema();
      if (!begun || (form && form != slot->form())) {  // the latter: that form does not come any more
        const bool gives_form = wanted.offset == 0 && slot->gives_form(wanted.takes_form, wanted.have);
        form = gives_form ? slot->form() : std::nullopt;
        offset = wanted.begins_at(form);
        begins = true;
      }
      source = form ? slot->form_shared() : slot->shared();
      return form ? slot->form_available() : slot->available();
    });
    if (!available.ok()) co_return available.error();
    if (newest != generation) break;
    if (!begins && !begun) continue;
    if (begins) {
      v1::ModelBegin begin;
      *begin.mutable_model() = wire::to_proto(wanted.model);
      begin.set_offset(offset);
      begin.set_part(wanted.part);
      if (form) *begin.mutable_form() = wire::to_proto(*form);
      FLUVIAL_CO_TRY(co_await send_begin(child, stream, generation, std::move(begin), schema));
      runtime_.metrics.counter("models_sent_total", {{"form", form_word(form)}}).add();
      begun = true;
    }
    while (offset < *available && newest == generation) {
      const std::uint64_t size = std::min(options_.model_part_bytes, *available - offset);
      v1::Envelope part;
      part.mutable_model_chunk()->set_run(wanted.model.run.value());
      part.mutable_model_chunk()->set_version(wanted.model.version.value());
      part.mutable_model_chunk()->set_offset(offset);
      part.mutable_model_chunk()->set_part(wanted.part);
      net::OutFrame frame{std::move(part), source.part(offset, size)};
      FLUVIAL_CO_TRY(co_await send_in_turn(child.session, stream, wanted.part, generation, std::move(frame)));
      payload_bytes_out_.fetch_add(size, std::memory_order_relaxed);
      bytes_.model_bytes.add(static_cast<double>(size));
      offset += size;
    }
    if (offset == (form ? form->bytes : wanted.model.bytes)) co_return Status{};
  }
  co_return Error{Code::kCancelled, "another was asked for"};
}

}  // namespace fluvial::tree
