#include "core/tree/model_receiver.h"

#include <boost/asio/awaitable.hpp>
#include <optional>
#include <utility>

#include "core/digest/sha256.h"
#include "core/net/deadline.h"
#include "core/wire/mapping.h"
#include "core/wire/record_mapping.h"

namespace fluvial::tree {
namespace {

constexpr int kAttemptsMax = 5;  // of a model that arrives damaged, until the next session

}  // namespace

struct ModelReceiver::Fetch {
  Fetch(round::ModelRef wanted, std::shared_ptr<ModelSink> place, const net::BackoffSettings& settings)
      : ref(wanted), sink(std::move(place)), backoff(settings, Rng(wanted.version.value())) {}

  bool is_whole() const { return schema && received == ref.bytes; }

  round::ModelRef ref;
  std::shared_ptr<ModelSink> sink;
  net::Backoff backoff;
  std::optional<round::Schema> schema;  // once the sink has room for it
  std::uint64_t received = 0;           // in the sink
  std::uint64_t position = 0;           // of the parent's stream; at most `received`
  bool promised = false;                // asked for on this session, when the parent had named it
  bool flowing = false;                 // begun on this session, not whole yet
  bool held_up = false;                 // being checked, or waiting to be asked for again
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
  message.mutable_model_request()->set_offset(fetch.received);
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
  if (message.offset() > fetch->received) co_return Error{Code::kDataLoss, "a model that begins after what is here"};
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
  fetch->position = message.offset();
  fetch->flowing = true;
  co_return Status{};
}

Status ModelReceiver::chunk(const v1::ModelChunk& message, ByteSpan bytes) {
  if (!fetch_ || !fetch_->flowing || message.run() != fetch_->ref.run.value() ||
      message.version() != fetch_->ref.version.value()) {
    return {};
  }
  Fetch& fetch = *fetch_;
  if (message.offset() != fetch.position || bytes.empty() || bytes.size() > fetch.ref.bytes - fetch.position) {
    return Error{Code::kDataLoss, "model bytes out of place"};
  }
  fetch.position += bytes.size();
  bytes_received_ += bytes.size();
  if (fetch.position <= fetch.received) return {};  // a request before this one brought them
  FLUVIAL_TRY(fetch.sink->append(bytes.last(fetch.position - fetch.received)));
  fetch.received = fetch.position;
  if (fetch.is_whole()) {
    fetch.flowing = false;
    fetch.held_up = true;
    tasks_.spawn(runtime_.strand, "model", check(fetch_));
  }
  return {};
}

net::Awaitable<void> ModelReceiver::check(std::shared_ptr<Fetch> fetch) {
  const Status sealed = co_await runtime_.pool.run([fetch]() -> Status {
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
  fetch_.reset();
  fetch->sink->complete();
}

// From the start, after a while.
net::Awaitable<void> ModelReceiver::again(std::shared_ptr<Fetch> fetch, Error why) {
  if (stopping_ || fetch_ != fetch) co_return;
  const telemetry::Logger log = runtime_.log.with({{"run", fetch->ref.run}, {"model_version", fetch->ref.version}});
  fetch->received = fetch->position = 0;
  fetch->schema.reset();
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
