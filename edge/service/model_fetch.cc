#include "edge/service/model_fetch.h"

#include <boost/asio/awaitable.hpp>
#include <cstring>
#include <optional>
#include <utility>

#include "core/digest/sha256.h"
#include "core/net/deadline.h"
#include "core/wire/mapping.h"
#include "core/wire/record_mapping.h"

namespace fluvial::edge {
namespace {

constexpr int kAttemptsMax = 5;  // of a model that arrives damaged, until the next session

}  // namespace

struct ModelFetch::Fetch {
  Fetch(round::ModelRef wanted, const net::BackoffSettings& settings)
      : ref(wanted), backoff(settings, Rng(wanted.version.value())) {}

  round::ModelRef ref;
  net::Backoff backoff;
  std::optional<round::Schema> schema;
  std::optional<local::MemfdWriter> writer;
  std::uint64_t received = 0;
  bool promised = false;  // asked for on this session, when the parent had named it
  bool flowing = false;   // begun on this session, not whole yet
  bool held_up = false;   // being checked, or waiting to be asked for again
  int attempts = 1;
};

ModelFetch::ModelFetch(tree::Runtime& runtime, net::TaskGroup& tasks, Post post, Done done, Refused refused)
    : runtime_(runtime),
      tasks_(tasks),
      post_(std::move(post)),
      done_(std::move(done)),
      refused_(std::move(refused)),
      stop_(runtime.strand) {}
ModelFetch::~ModelFetch() = default;

void ModelFetch::want(const round::ModelRef& ref) {
  if (!fetch_ || fetch_->ref != ref) fetch_ = std::make_shared<Fetch>(ref, runtime_.backoff);
  if (std::exchange(fetch_->promised, true)) return;           // on its way: asked again, it would be sent once more
  if (!fetch_->flowing && !fetch_->held_up) request(*fetch_);  // the parent names it: it has it, or gets it
}

void ModelFetch::request(Fetch& fetch) {
  fetch.flowing = false;
  v1::Envelope message;
  *message.mutable_model_request()->mutable_model() = wire::to_proto(fetch.ref);
  message.mutable_model_request()->set_offset(fetch.received);
  post_(std::move(message));
}

void ModelFetch::parent_up() {
  if (!fetch_) return;
  fetch_->promised = false;
  if (fetch_->held_up) return;
  fetch_->attempts = 1;
  request(*fetch_);
}

void ModelFetch::parent_down() {
  if (fetch_) fetch_->flowing = false;
}

void ModelFetch::stop() {
  stopping_ = true;
  fetch_.reset();
  stop_.notify_all();
}

net::Awaitable<Status> ModelFetch::begin(v1::ModelBegin message) {
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
    Result<local::MemfdWriter> writer =
        co_await runtime_.pool.run([bytes = ref->bytes] { return local::MemfdWriter::create(bytes); });
    if (fetch_ != fetch) co_return Status{};
    if (!writer.ok()) {
      fetch->held_up = true;
      tasks_.spawn(runtime_.strand, "model", again(fetch, writer.error()));
      co_return Status{};
    }
    fetch->writer = std::move(*writer);
    fetch->schema = std::move(*schema);
  }
  fetch->received = message.offset();
  fetch->flowing = true;
  co_return Status{};
}

Status ModelFetch::chunk(const v1::ModelChunk& message, ByteSpan bytes) {
  if (!fetch_ || !fetch_->flowing || message.run() != fetch_->ref.run.value() ||
      message.version() != fetch_->ref.version.value()) {
    return {};
  }
  Fetch& fetch = *fetch_;
  if (message.offset() != fetch.received || bytes.empty() || bytes.size() > fetch.ref.bytes - fetch.received) {
    return Error{Code::kDataLoss, "model bytes out of place"};
  }
  std::memcpy(fetch.writer->span().data() + fetch.received, bytes.data(), bytes.size());
  fetch.received += bytes.size();
  bytes_received_ += bytes.size();
  if (fetch.received == fetch.ref.bytes) {
    fetch.flowing = false;
    fetch.held_up = true;
    tasks_.spawn(runtime_.strand, "model", check(fetch_));
  }
  return {};
}

net::Awaitable<void> ModelFetch::check(std::shared_ptr<Fetch> fetch) {
  using Sealed = Result<std::shared_ptr<const local::SharedModel>>;
  Sealed sealed = co_await runtime_.pool.run([fetch]() -> Sealed {
    const Digest digest = sha256(fetch->writer->span());
    if (digest != fetch->ref.digest) {
      return Error{Code::kDataLoss, "its digest is " + to_hex(digest) + ", expected " + to_hex(fetch->ref.digest)};
    }
    return std::move(*fetch->writer).seal();
  });
  if (fetch_ != fetch) co_return;
  if (!sealed.ok()) {
    if (sealed.error().code == Code::kDataLoss) refused_(fetch->ref, sealed.error());
    co_await again(fetch, sealed.error());
    co_return;
  }
  fetch_.reset();
  done_({fetch->ref, std::move(*fetch->schema), std::move(*sealed)});
}

// From the start, after a while.
net::Awaitable<void> ModelFetch::again(std::shared_ptr<Fetch> fetch, Error why) {
  const telemetry::Logger log = runtime_.log.with({{"run", fetch->ref.run}, {"version", fetch->ref.version}});
  fetch->received = 0;
  fetch->schema.reset();
  fetch->writer.reset();
  if (fetch->attempts == kAttemptsMax) {
    log.error("model given up until the next session", {{"reason", why.message}, {"attempts", fetch->attempts}});
    fetch->held_up = false;
    co_return;
  }
  ++fetch->attempts;
  log.warn("model refused; fetching it again", {{"reason", why.message}, {"attempt", fetch->attempts}});
  const Status slept = co_await net::with_deadline(stop_.wait(), fetch->backoff.next());
  (void)slept.ok();  // the wait is over, or stopping_ is set
  if (stopping_ || fetch_ != fetch) co_return;
  fetch->held_up = false;
  request(*fetch);
}

}  // namespace fluvial::edge
