#include "core/tree/model_receiver.h"

#include <boost/asio/awaitable.hpp>
#include <optional>
#include <utility>

#include "core/aggregate/model_form.h"
#include "core/digest/sha256.h"
#include "core/net/deadline.h"
#include "core/net/pool_parallel.h"
#include "core/tree/form_word.h"
#include "core/wire/mapping.h"
#include "core/wire/record_mapping.h"

namespace fluvial::tree {
namespace {

constexpr int kAttemptsMax = 5;  // of a model that arrives damaged, until the next session

}  // namespace

struct ModelReceiver::Fetch {
  Fetch(round::ModelRef wanted, std::shared_ptr<ModelSink> place, const net::BackoffSettings& settings)
      : ref(wanted), sink(std::move(place)), backoff(settings, Rng(wanted.version.value())) {}

  std::uint64_t bytes() const { return form ? form->bytes : ref.bytes; }  // that are sent
  bool is_whole() const { return schema && received == bytes(); }

  round::ModelRef ref;
  std::shared_ptr<ModelSink> sink;
  net::Backoff backoff;
  std::optional<round::Schema> schema;   // once the sink has room for it
  bool takes_form = true;                // none that was sent was damaged, or could not be decoded here
  std::optional<round::ModelForm> form;  // in which it comes; none: its bytes
  std::optional<Held> base;              // of that form
  std::uint64_t received = 0;            // in the sink
  std::uint64_t position = 0;            // of the parent's stream; at most `received`
  bool promised = false;                 // asked for on this session, when the parent had named it
  bool flowing = false;                  // begun on this session, not whole yet
  bool held_up = false;                  // being checked, or waiting to be asked for again
  int attempts = 1;
};

ModelReceiver::ModelReceiver(Runtime& runtime, net::TaskGroup& tasks, Owner owner)
    : runtime_(runtime), tasks_(tasks), owner_(std::move(owner)), stop_(runtime.strand) {}
ModelReceiver::~ModelReceiver() = default;

void ModelReceiver::want(const round::ModelRef& ref) {
  if (stopping_) return;
  if (!fetch_ || fetch_->ref != ref) fetch_ = std::make_shared<Fetch>(ref, owner_.sink(ref), runtime_.backoff);
  if (std::exchange(fetch_->promised, true)) return;           // on its way: asked again, it would be sent once more
  if (!fetch_->flowing && !fetch_->held_up) request(*fetch_);  // the parent names it: it has it, or gets it
}

void ModelReceiver::request(Fetch& fetch) {
  fetch.flowing = false;
  v1::Envelope message;
  *message.mutable_model_request()->mutable_model() = wire::to_proto(fetch.ref);
  if (fetch.takes_form) {
    message.mutable_model_request()->set_takes_form(true);
    const std::optional<Held> base = fetch.base ? fetch.base : have();
    if (base) *message.mutable_model_request()->mutable_have() = wire::to_proto(base->ref);
  }
  if (fetch.form) {  // a parent that knows no form begins at the model's first byte
    *message.mutable_model_request()->mutable_begun() = wire::to_proto(*fetch.form);
    message.mutable_model_request()->set_form_offset(fetch.received);
  } else {
    message.mutable_model_request()->set_offset(fetch.received);
  }
  owner_.post(std::move(message));
}

void ModelReceiver::parent_up() {
  if (!fetch_) return;
  fetch_->promised = false;
  if (fetch_->held_up) return;
  fetch_->attempts = 1;
  request(*fetch_);
}

void ModelReceiver::parent_down() {
  if (fetch_) fetch_->flowing = false;
}

void ModelReceiver::forget() { fetch_.reset(); }

std::optional<std::uint64_t> ModelReceiver::bytes_expected() const {
  return fetch_ ? std::optional(fetch_->bytes()) : std::nullopt;
}

void ModelReceiver::stop() {
  stopping_ = true;
  forget();
  stop_.notify_all();
}

net::Awaitable<Status> ModelReceiver::begin(v1::ModelBegin message) {
  const Result<round::ModelRef> ref = wire::from_proto(message.model());
  if (!ref.ok()) co_return ref.error();
  const std::shared_ptr<Fetch> fetch = fetch_;
  if (!fetch || fetch->ref != *ref || fetch->held_up) co_return Status{};  // replaced meanwhile
  Result<round::Schema> schema = wire::from_proto(message.schema());
  if (!schema.ok()) co_return schema.error();
  if (schema->model_bytes() != ref->bytes) co_return Error{Code::kDataLoss, "a schema that does not fit the model"};
  std::optional<round::ModelForm> form;
  const Status taken = take_form(*fetch, message, *schema, &form);
  if (!taken.ok()) co_return taken.error();
  if (message.has_form() && !form) co_return Status{};  // asked for whole instead
  if (fetch->schema) {
    const Status same = round::check_same_schema(*fetch->schema, *schema);
    if (!same.ok()) co_return same.error();
  } else {
    const Status begun = co_await fetch->sink->begin(*schema);
    if (fetch_ != fetch) co_return Status{};
    if (!begun.ok()) {
      fetch->held_up = true;
      tasks_.spawn(runtime_.strand, "model", again(fetch, begun.error()));
      co_return Status{};
    }
    fetch->schema = std::move(*schema);
  }
  const Status begun = begin_form(*fetch, std::move(form), message.offset());
  if (!begun.ok()) co_return begun.error();
  fetch->position = message.offset();
  fetch->flowing = true;
  co_return Status{};
}

// The form that the parent announces, if this node can decode it; else the model is asked for whole.
Status ModelReceiver::take_form(Fetch& fetch, const v1::ModelBegin& message, const round::Schema& schema,
                                std::optional<round::ModelForm>* form) {
  if (!message.has_form()) return {};
  fetch.flowing = false;
  if (!fetch.takes_form) return {};  // the answer to an earlier request
  FLUVIAL_ASSIGN(round::ModelForm announced, wire::from_proto(message.form()));
  std::optional<Held> base;
  if (announced.base) {
    base = fetch.form == announced ? fetch.base : have();
    if (!base || base->ref != *announced.base) return ask_whole(fetch), Status();
  }
  // Of a newer version's codec, too.
  if (!aggregate::check_form(announced, schema).ok()) return ask_whole(fetch), Status();
  fetch.base = std::move(base);
  *form = std::move(announced);
  return {};
}

// What comes now, from `offset` on. In another form than before it comes from the start.
Status ModelReceiver::begin_form(Fetch& fetch, std::optional<round::ModelForm> form, std::uint64_t offset) {
  if (form == fetch.form) {
    if (offset > fetch.received) return Error{Code::kDataLoss, "a model that begins after what is here"};
    return {};
  }
  if (offset > 0) return Error{Code::kDataLoss, "a model that begins after what is here"};
  if (!fetch.form && fetch.received > 0) return Error{Code::kDataLoss, "another form of a model that had begun"};
  if (!form) fetch.base.reset();
  FLUVIAL_TRY(fetch.sink->begin_form(form));
  fetch.form = std::move(form);
  fetch.received = 0;
  return {};
}

void ModelReceiver::ask_whole(Fetch& fetch) {
  fetch.takes_form = false;
  fetch.base.reset();
  if (fetch.form) {
    fetch.form.reset();
    fetch.received = 0;
    static_cast<void>(fetch.sink->begin_form(std::nullopt));  // which takes nothing
  }
  request(fetch);
}

Status ModelReceiver::chunk(const v1::ModelChunk& message, ByteSpan bytes) {
  if (!fetch_ || !fetch_->flowing || message.run() != fetch_->ref.run.value() ||
      message.version() != fetch_->ref.version.value()) {
    return {};
  }
  Fetch& fetch = *fetch_;
  if (message.offset() != fetch.position || bytes.empty() || bytes.size() > fetch.bytes() - fetch.position) {
    return Error{Code::kDataLoss, "model bytes out of place"};
  }
  fetch.position += bytes.size();
  bytes_received_ += bytes.size();
  if (fetch.position <= fetch.received) return {};  // a request before this one brought them
  const ByteSpan fresh = bytes.last(fetch.position - fetch.received);
  FLUVIAL_TRY(fetch.form ? fetch.sink->append_form(fresh) : fetch.sink->append(fresh));
  fetch.received = fetch.position;
  if (fetch.is_whole()) {
    fetch.flowing = false;
    fetch.held_up = true;
    tasks_.spawn(runtime_.strand, "model", check(fetch_));
  }
  return {};
}

net::Awaitable<void> ModelReceiver::check(std::shared_ptr<Fetch> fetch) {
  const Status sealed = co_await runtime_.pool.run([fetch, this]() -> Status {
    if (fetch->form) {
      net::PoolParallel parallel(runtime_.pool);
      const SharedBytes encoded = fetch->sink->form_bytes();
      FLUVIAL_TRY(aggregate::decode_model(parallel, *fetch->form, *fetch->schema,
                                          fetch->base ? fetch->base->bytes.bytes : ByteSpan(), encoded.bytes,
                                          fetch->sink->room()));
    }
    const Digest digest = sha256(fetch->sink->bytes());
    if (digest != fetch->ref.digest) {
      return Error{Code::kDataLoss, "its digest is " + to_hex(digest) + ", expected " + to_hex(fetch->ref.digest)};
    }
    return fetch->sink->seal();
  });
  if (fetch_ != fetch) co_return;
  if (!sealed.ok()) {
    if (sealed.error().code == Code::kDataLoss && owner_.refused) owner_.refused(fetch->ref, sealed.error());
    co_await again(fetch, sealed.error());
    co_return;
  }
  runtime_.metrics.counter("models_received_total", {{"form", form_word(fetch->form)}}).add();
  fetch_.reset();
  fetch->sink->complete();
}

// From the start, after a while.
net::Awaitable<void> ModelReceiver::again(std::shared_ptr<Fetch> fetch, Error why) {
  if (stopping_ || fetch_ != fetch) co_return;
  runtime_.metrics.counter("models_refused_total").add();
  const telemetry::Logger log = runtime_.log.with({{"run", fetch->ref.run}, {"model_version", fetch->ref.version}});
  fetch->received = fetch->position = 0;
  fetch->schema.reset();
  if (fetch->form) fetch->takes_form = false;  // it is not what it was said to be, or its base is not
  fetch->form.reset();
  fetch->base.reset();
  fetch->sink = owner_.sink(fetch->ref);
  if (fetch->attempts == kAttemptsMax) {
    log.error("model refused; it is asked for again in the next session",
              {{"reason", why.message}, {"tries", fetch->attempts}});
    fetch->held_up = false;
    co_return;
  }
  ++fetch->attempts;
  log.warn("model refused; fetching it again", {{"reason", why.message}, {"tries", fetch->attempts}});
  const Status slept = co_await net::with_deadline(stop_.wait(), fetch->backoff.next());
  (void)slept.ok();  // the wait is over, or stopping_ is set
  if (stopping_ || fetch_ != fetch) co_return;
  fetch->held_up = false;
  request(*fetch);
}

}  // namespace fluvial::tree
