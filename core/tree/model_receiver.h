// Brings one model here from the parent: asks for it, goes on where a session broke, checks each part and in the end
// the digest of the whole, and asks again when that is another. It may come in another form, as a difference from a
// model that the owner holds: then it is decoded here, and the digest is of what that gives. Where its bytes go is the
// owner's (ModelSink).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "core/net/awaitable.h"
#include "core/net/backoff.h"
#include "core/net/signal.h"
#include "core/net/task_group.h"
#include "core/round/model_form.h"
#include "core/round/schema.h"
#include "core/tree/runtime.h"
#include "fluvial/v1/wire.pb.h"

namespace fluvial::tree {

// The place of one model. On the node's strand, except seal().
class ModelSink {
 public:
  virtual ~ModelSink() = default;
  // Once, before anything else: room for all of it. An error has it tried again, as damage has.
  virtual net::Awaitable<Status> begin(round::Schema schema) = 0;
  virtual Status append(ByteSpan bytes) = 0;
  // It comes in this form, which fits the schema, or (none) as its bytes after all: what came of a form is dropped.
  virtual Status begin_form(std::optional<round::ModelForm> form) = 0;
  virtual Status append_form(ByteSpan bytes) = 0;
  virtual SharedBytes form_bytes() = 0;       // once all of it is here
  virtual MutableByteSpan room() = 0;         // all of the model's memory, which it is decoded into, on the pool
  virtual ByteSpan bytes() = 0;               // all of it, once it is here
  virtual Status seal() { return Status{}; }  // its digest is right; on the pool
  virtual void complete() = 0;                // and it is sealed
};

// On the node's strand.
class ModelReceiver {
 public:
  struct Held {
    round::ModelRef ref;
    SharedBytes bytes;
  };
  struct Owner {
    std::function<void(v1::Envelope)> post;  // to the parent; nothing while there is none
    // Of a model that is to come, from its first byte. What the sink before holds of one is not wanted any more.
    std::function<std::shared_ptr<ModelSink>(const round::ModelRef&)> sink;
    std::function<void(const round::ModelRef&, const Error&)>
        refused;                                     // or empty: what came is not it, and is asked for again
    std::function<std::optional<Held>()> have = {};  // or empty: a model that a difference may begin at
  };

  ModelReceiver(Runtime& runtime, net::TaskGroup& tasks, Owner owner);
  ~ModelReceiver();

  void want(const round::ModelRef& ref);  // the parent has named it; replaces another that is on its way
  void parent_up();                       // asks for what is missing, from where it stopped
  void parent_down();
  void forget();  // nothing is wanted any more
  void stop();
  std::uint64_t bytes_received() const { return bytes_received_; }  // of all models: grows while something comes
  std::optional<std::uint64_t> bytes_expected() const;              // of the one that comes, as it comes

  // What the parent sends. An error is a breach of the protocol; what belongs to an earlier request is passed over.
  net::Awaitable<Status> begin(v1::ModelBegin message);
  Status chunk(const v1::ModelChunk& message, ByteSpan bytes);

 private:
  struct Fetch;
  void request(Fetch& fetch);
  std::optional<Held> have() const { return owner_.have ? owner_.have() : std::nullopt; }
  Status take_form(Fetch& fetch, const v1::ModelBegin& message, const round::Schema& schema,
                   std::optional<round::ModelForm>* form);
  Status begin_form(Fetch& fetch, std::optional<round::ModelForm> form, std::uint64_t offset);
  void ask_whole(Fetch& fetch);
  net::Awaitable<void> check(std::shared_ptr<Fetch> fetch);
  net::Awaitable<void> again(std::shared_ptr<Fetch> fetch, Error why);

  Runtime& runtime_;
  net::TaskGroup& tasks_;
  Owner owner_;
  std::shared_ptr<Fetch> fetch_;
  std::uint64_t bytes_received_ = 0;
  net::AsyncSignal stop_;
  bool stopping_ = false;
};

}  // namespace fluvial::tree
