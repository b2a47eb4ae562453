#include "core/tree/model_receiver.h"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "core/aggregate/model_form.h"
#include "core/digest/model_digest.h"
#include "core/digest/sha256.h"
#include "core/net/deadline.h"
#include "core/net/pool_parallel.h"
#include "core/tree/form_word.h"
#include "core/wire/mapping.h"
#include "core/wire/record_mapping.h"

namespace fluvial::tree {
namespace {

constexpr int kAttemptsMax = 5;  // of a model that arrives damaged, until the next session
constexpr Duration kStillMax =
    std::chrono::seconds(3);  // a parent that has another model by then may send no more of it
constexpr Duration kAskedAgainAfter =
    std::chrono::seconds(10);  // without a move: a parent may have taken another request
constexpr int kAheadMax = 5;   // models that come ahead, until one is whole and named: each may take memory

}  // namespace

// What is hashed of a model while its bytes come, on the pool.
struct ModelReceiver::Hashing {
  Hashing(std::shared_ptr<ModelSink> place, std::uint64_t bytes) : sink(std::move(place)), digest(bytes) {}
  std::shared_ptr<ModelSink> sink;
  ModelDigest digest;
  std::uint64_t given = 0;  // bytes, from the start, of which a job was told
  int jobs = 0;             // under way
  bool is_short = false;    // the pool did not take one
};

struct ModelReceiver::Fetch {
  Fetch(round::ModelRef wanted, std::shared_ptr<ModelSink> place, const net::BackoffSettings& settings)
      : ref(wanted), sink(std::move(place)), backoff(settings, Rng(wanted.version.value())) {}

  std::uint64_t bytes() const { return form ? form->bytes : ref.bytes; }  // that are sent
  bool is_whole() const { return schema && received == bytes(); }
  bool is_called(const round::ModelRef& name) const { return name == ref || (ahead && name == *ahead); }

  round::ModelRef ref;                   // while it is not wanted yet: as it was said ahead
  bool is_wanted = true;                 // false: nobody has signed its name
  std::optional<round::ModelRef> ahead;  // as it was asked for before it was wanted; none: it did not come ahead
  std::optional<Digest> tree;            // it is checked by; none: by the digest of its name
  std::shared_ptr<Hashing> hashing;      // once bytes of it came, with a tree to be checked by
  bool is_checked = false;               // and sealed
  std::shared_ptr<ModelSink> sink;
  net::Backoff backoff;
  std::vector<round::Tensor> tensors;    // of a schema that comes in parts
  std::optional<round::Schema> schema;   // once the sink has room for it
  bool takes_form = true;                // none that was sent was damaged, or could not be decoded here
  std::optional<round::ModelForm> form;  // in which it comes; none: its bytes
  std::optional<Held> base;              // of that form
  std::uint64_t received = 0;            // in the sink
  std::uint64_t position = 0;            // of the parent's stream; at most `received`
  bool promised = false;                 // asked for on this session, when the parent had named it
  bool asked = false;                    // on this session
  bool flowing = false;                  // begun on this session, not whole yet
  TimePoint moved_at;                    // when something of it came last, or it was asked for
  bool held_up = false;                  // being checked, or waiting to be asked for again
  int attempts = 1;
};

ModelReceiver::ModelReceiver(Runtime& runtime, net::TaskGroup& tasks, Owner owner)
    : runtime_(runtime), tasks_(tasks), owner_(std::move(owner)), stop_(runtime.strand) {}
ModelReceiver::~ModelReceiver() = default;

std::optional<Digest> ModelReceiver::tree_of(const round::ModelRef& ref) const {
  return known_ && known_->ref == ref ? known_->tree : std::nullopt;
}

void ModelReceiver::want(const round::ModelRef& ref, Ask ask) {
  if (stopping_) return;
  if (fetch_ && !fetch_->is_wanted) {
    const std::optional<Digest> tree = tree_of(ref);
    if (tree && fetch_->ref == round::called_ahead(ref, *tree)) return adopt(ref);
    drop_ahead();
  }
  if (!fetch_ || fetch_->ref != ref) {
    fetch_ = std::make_shared<Fetch>(ref, owner_.sink(ref, Owner::As::kWanted), runtime_.backoff);
    fetch_->tree = tree_of(ref);
  }
  const bool is_still = fetch_->asked && runtime_.clock.now() - fetch_->moved_at >= kAskedAgainAfter;
  const bool is_anew = ask == Ask::kAnew || is_still;
  if (std::exchange(fetch_->promised, true) && !is_anew) return;  // on its way: asked again, it would be sent once more
  if (fetch_->held_up || (!is_anew && fetch_->flowing)) return;
  if (is_still) {
    runtime_.log.info(owner_.part == 0 ? "nothing of the model has come for long; it is asked for again"
                                       : "nothing of the vector has come for long; it is asked for again",
                      {{"run", ref.run}, {"model_version", ref.version}, {"bytes", fetch_->received}});
  }
  request(*fetch_);  // who names it has it, or gets it
}

bool ModelReceiver::ahead(const round::ModelRef& unnamed) {
  if (stopping_ || (fetch_ && (fetch_->is_wanted || fetch_->ref == unnamed))) return false;
  if (announced_ == kAheadMax) return false;
  ++announced_;
  drop_ahead();
  fetch_ = std::make_shared<Fetch>(unnamed, owner_.sink(unnamed, Owner::As::kAhead), runtime_.backoff);
  fetch_->is_wanted = false;
  fetch_->ahead = unnamed;
  fetch_->tree = unnamed.digest;
  fetch_->promised = true;
  request(*fetch_);
  return true;
}

// What came ahead is what was signed.
void ModelReceiver::adopt(const round::ModelRef& ref) {
  const std::shared_ptr<Fetch> fetch = fetch_;
  fetch->ref = ref;
  fetch->is_wanted = true;
  fetch->sink->named(ref);
  const bool is_asked_for = std::exchange(fetch->promised, true);  // a parent that announced it has it under both names
  if (fetch->is_checked) {
    tasks_.spawn(runtime_.strand, "model", hand_on(fetch));
  } else if (!is_asked_for && !fetch->held_up) {
    request(*fetch);
  }
}

void ModelReceiver::drop_ahead() {
  if (!fetch_ || fetch_->is_wanted) return;
  runtime_.metrics.counter("models_ahead_total", {{"outcome", "dropped"}}).add();
  fetch_.reset();
}

void ModelReceiver::forget_ahead(RunId run) {
  if (fetch_ && fetch_->ref.run == run) drop_ahead();
}

void ModelReceiver::request(Fetch& fetch) {
  fetch.flowing = false;
  fetch.asked = true;
  fetch.moved_at = runtime_.clock.now();
  v1::Envelope message;
  *message.mutable_model_request()->mutable_model() = wire::to_proto(fetch.ref);
  message.mutable_model_request()->set_part(owner_.part);
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
  if (fetch_->held_up || !fetch_->is_wanted) return;  // another parent knows no more of it
  fetch_->attempts = 1;
  request(*fetch_);
}

std::optional<round::ModelRef> ModelReceiver::flowing() const {
  if (!fetch_ || !fetch_->is_wanted) return std::nullopt;
  const bool flows = (fetch_->asked || fetch_->flowing) && runtime_.clock.now() - fetch_->moved_at < kStillMax;
  return flows || fetch_->is_whole() ? std::optional(fetch_->ref) : std::nullopt;
}

void ModelReceiver::parent_down() {
  if (fetch_) fetch_->asked = fetch_->flowing = false;
}

void ModelReceiver::forget() {
  drop_ahead();
  fetch_.reset();
}

std::uint64_t ModelReceiver::bytes_here() const { return fetch_ ? fetch_->received : 0; }

std::optional<std::uint64_t> ModelReceiver::bytes_expected() const {
  return fetch_ ? std::optional(fetch_->bytes()) : std::nullopt;
}

void ModelReceiver::stop() {
  stopping_ = true;
  forget();
  stop_.notify_all();
}

net::Awaitable<Status> ModelReceiver::begin(v1::ModelBegin message) {
  if (message.part() != owner_.part) co_return Status{};
  const Result<round::ModelRef> ref = wire::from_proto(message.model());
  if (!ref.ok()) co_return ref.error();
  const std::shared_ptr<Fetch> fetch = fetch_;
  if (!fetch || !fetch->is_called(*ref) || fetch->held_up) co_return Status{};  // replaced meanwhile
  // The first part of a schema, or the next; what is neither belongs to an earlier request.
  if (message.first_tensor() == 0) fetch->tensors.clear();
  if (message.first_tensor() != fetch->tensors.size()) co_return Status{};
  const Status added = wire::add_tensors(message.schema(), &fetch->tensors);
  if (!added.ok()) co_return added.error();
  fetch->moved_at = runtime_.clock.now();
  if (message.more_tensors()) co_return Status{};
  Result<round::Schema> schema = round::Schema::make(std::exchange(fetch->tensors, {}));
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
  fetch->moved_at = runtime_.clock.now();
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
  if (message.part() != owner_.part || !fetch_ || !fetch_->flowing || message.run() != fetch_->ref.run.value() ||
      message.version() != fetch_->ref.version.value()) {
    return {};
  }
  Fetch& fetch = *fetch_;
  if (message.offset() != fetch.position || bytes.empty() || bytes.size() > fetch.bytes() - fetch.position) {
    return Error{Code::kDataLoss, "model bytes out of place"};
  }
  fetch.position += bytes.size();
  bytes_received_ += bytes.size();
  fetch.moved_at = runtime_.clock.now();
  if (fetch.position <= fetch.received) return {};  // a request before this one brought them
  const ByteSpan fresh = bytes.last(fetch.position - fetch.received);
  FLUVIAL_TRY(fetch.form ? fetch.sink->append_form(fresh) : fetch.sink->append(fresh));
  fetch.received = fetch.position;
  arrived();
  return {};
}

// More of it is here.
void ModelReceiver::arrived() {
  Fetch& fetch = *fetch_;
  if (fetch.is_whole()) {
    fetch.flowing = false;
    fetch.held_up = true;
  }
  if (!fetch.tree || fetch.form) {
    if (fetch.is_whole()) tasks_.spawn(runtime_.strand, "model", check(fetch_));
    return;
  }
  if (!fetch.hashing) fetch.hashing = std::make_shared<Hashing>(fetch.sink, fetch.ref.bytes);
  Hashing& hashing = *fetch.hashing;
  if (!fetch.is_whole() && fetch.received / kModelPartBytes == hashing.given / kModelPartBytes) return;
  ++hashing.jobs;
  tasks_.spawn(runtime_.strand, "model", hash(fetch_, std::exchange(hashing.given, fetch.received), fetch.received));
}

net::Awaitable<void> ModelReceiver::hash(std::shared_ptr<Fetch> fetch, std::uint64_t from, std::uint64_t to) {
  const std::shared_ptr<Hashing> hashing = fetch->hashing;
  const Status hashed = co_await runtime_.pool.run([&]() -> Status {
    hashing->digest.ready(hashing->sink->bytes(), from, to - from);
    return {};
  });
  if (!hashed.ok()) hashing->is_short = true;
  if (--hashing->jobs == 0 && fetch_ == fetch && fetch->hashing == hashing && fetch->is_whole()) co_await check(fetch);
}

net::Awaitable<void> ModelReceiver::check(std::shared_ptr<Fetch> fetch) {
  const Digest expected = fetch->tree.value_or(fetch->ref.digest);  // it may be named meanwhile
  const Status sealed = co_await runtime_.pool.run([fetch, expected, this]() -> Status {
    net::PoolParallel parallel(runtime_.pool);
    if (fetch->form) {
      const SharedBytes encoded = fetch->sink->form_bytes();
      FLUVIAL_TRY(aggregate::decode_model(parallel, *fetch->form, *fetch->schema,
                                          fetch->base ? fetch->base->bytes.bytes : ByteSpan(), encoded.bytes,
                                          fetch->sink->room()));
    }
    const bool is_hashed = fetch->hashing && !fetch->hashing->is_short;
    Digest digest;
    if (is_hashed) {
      digest = fetch->hashing->digest.finish();
    } else if (fetch->tree) {
      FLUVIAL_ASSIGN(digest, model_tree_digest(parallel, fetch->sink->bytes()));
    } else {
      digest = sha256(fetch->sink->bytes());
    }
    if (digest != expected) {
      return Error{Code::kDataLoss, "its digest is " + to_hex(digest) + ", expected " + to_hex(expected)};
    }
    return fetch->sink->seal();
  });
  if (fetch_ != fetch) co_return;
  if (!sealed.ok()) {
    const bool is_damaged = sealed.error().code == Code::kDataLoss;
    if (is_damaged && fetch->is_wanted && owner_.refused) owner_.refused(fetch->ref, sealed.error());
    co_await again(fetch, sealed.error());
    co_return;
  }
  fetch->is_checked = true;
  if (fetch->is_wanted) complete(fetch);
}

// Not while the owner is at it: a task runs up to its first wait where it is spawned.
net::Awaitable<void> ModelReceiver::hand_on(std::shared_ptr<Fetch> fetch) {
  co_await net::asio::post(runtime_.strand, net::asio::use_awaitable);
  if (fetch_ == fetch) complete(fetch);
  co_return;
}

void ModelReceiver::complete(std::shared_ptr<Fetch> fetch) {
  runtime_.metrics.counter("models_received_total", {{"form", form_word(fetch->form)}}).add();
  if (fetch->ahead) runtime_.metrics.counter("models_ahead_total", {{"outcome", "used"}}).add();
  announced_ = 0;
  fetch_.reset();
  fetch->sink->complete();
}

// From the start, after a while.
net::Awaitable<void> ModelReceiver::again(std::shared_ptr<Fetch> fetch, Error why) {
  if (stopping_ || fetch_ != fetch) co_return;
  runtime_.metrics.counter("models_refused_total").add();
  const bool is_vector = owner_.part != 0;
  const telemetry::Logger log = runtime_.log.with({{"run", fetch->ref.run}, {"model_version", fetch->ref.version}});
  if (!fetch->is_wanted) {  // it may never be
    log.warn("a model that came ahead is refused; it is fetched once it is named", {{"reason", why.message}});
    drop_ahead();
    co_return;
  }
  fetch->received = fetch->position = 0;
  fetch->hashing.reset();
  fetch->schema.reset();
  if (fetch->form) fetch->takes_form = false;  // it is not what it was said to be, or its base is not
  fetch->form.reset();
  fetch->base.reset();
  fetch->sink = owner_.sink(fetch->ref, Owner::As::kWanted);
  if (fetch->attempts == kAttemptsMax) {
    log.error(is_vector ? "vector refused; it is asked for again in the next session"
                        : "model refused; it is asked for again in the next session",
              {{"reason", why.message}, {"tries", fetch->attempts}});
    fetch->held_up = false;
    co_return;
  }
  ++fetch->attempts;
  log.warn(is_vector ? "vector refused; fetching it again" : "model refused; fetching it again",
           {{"reason", why.message}, {"tries", fetch->attempts}});
  const Status slept = co_await net::with_deadline(stop_.wait(), fetch->backoff.next());
  (void)slept.ok();  // the wait is over, or stopping_ is set
  if (stopping_ || fetch_ != fetch) co_return;
  fetch->held_up = false;
  request(*fetch);
}

}  // namespace fluvial::tree
