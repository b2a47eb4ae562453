// Brings one model here from the parent: asks for it, goes on where a session broke, checks each part and in the end
// the digest of the whole, and asks again when that is another. It may come before the coordinator has signed its name,
// and waits for that. It may come in another form, as a difference from a
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
  virtual SharedBytes form_bytes() = 0;  // once all of it is here
  virtual MutableByteSpan room() = 0;    // all of the model's memory, which it is decoded into, on the pool
  // All of the model's memory, from begin() on. What was appended of it may be read on any thread.
  virtual ByteSpan bytes() = 0;
  virtual void named(const round::ModelRef& ref) = 0;  // that came ahead; while the pool is at its bytes
  virtual Status seal() { return Status{}; }           // its digest is right; on the pool
  virtual void complete() = 0;                         // and it is sealed
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
    // Of a model that is to come, from its first byte. What the sink before holds of one is not wanted any more. One
    // that comes ahead may turn out to be none: what the owner has stays until the sink is named().
    enum class As { kWanted, kAhead };
    std::function<std::shared_ptr<ModelSink>(const round::ModelRef&, As)> sink;
    std::function<void(const round::ModelRef&, const Error&)>
        refused;                                     // or empty: what came is not it, and is asked for again
    std::function<std::optional<Held>()> have = {};  // or empty: a model that a difference may begin at
    std::uint32_t part = 0;  // of a run: its models, or 1, the vectors of its passes. What is of another it passes over
  };

  ModelReceiver(Runtime& runtime, net::TaskGroup& tasks, Owner owner);
  ~ModelReceiver();

  // The parent has named it; replaces another that is on its way. One that is on its way already is asked for again
  // with kAnew, from where it stopped: the parent may have let it go since, and then sends no more of it. So it is when
  // nothing of it has come for long: a parent sends what it was asked for last, whichever request that was.
  enum class Ask { kOnce, kAnew };
  void want(const round::ModelRef& ref, Ask ask = Ask::kOnce);
  // As the coordinator signed it: a model of this name is checked by its tree digest, side by side and as it comes, and
  // may be one that came ahead. Without this it is checked by its SHA-256 in the end.
  void known(const round::ModelRef& ref, const std::optional<Digest>& tree) { known_ = Known{ref, tree}; }
  // The parent is about to name a model and says so, with its tree digest for its digest. It is brought here and kept
  // until it is wanted by its name, or another is. False, and nothing happens, while another is on its way, after many
  // of which none was named, and for the one that comes already.
  bool ahead(const round::ModelRef& unnamed);
  void parent_up();  // asks for what is missing, from where it stopped
  void parent_down();
  void forget();                 // nothing is wanted any more
  void forget_ahead(RunId run);  // none of its models will be named next: it has ended, rests, or makes the round anew
  void stop();
  std::uint64_t bytes_received() const { return bytes_received_; }  // of all models: grows while something comes
  std::optional<std::uint64_t> bytes_expected() const;              // of the one that comes, as it comes
  // That comes from the parent just now, or is being checked, and was asked for by its name; none, too, when nothing of
  // it has come for a while: a parent may have lost it.
  std::optional<round::ModelRef> flowing() const;
  std::uint64_t bytes_here() const;  // of those

  // What the parent sends. An error is a breach of the protocol; what belongs to an earlier request is passed over.
  net::Awaitable<Status> begin(v1::ModelBegin message);
  Status chunk(const v1::ModelChunk& message, ByteSpan bytes);

 private:
  struct Fetch;
  struct Hashing;
  struct Known {
    round::ModelRef ref;
    std::optional<Digest> tree;  // none: nobody signed it
  };
  std::optional<Digest> tree_of(const round::ModelRef& ref) const;
  void adopt(const round::ModelRef& ref);
  void drop_ahead();
  void request(Fetch& fetch);
  std::optional<Held> have() const { return owner_.have ? owner_.have() : std::nullopt; }
  Status take_form(Fetch& fetch, const v1::ModelBegin& message, const round::Schema& schema,
                   std::optional<round::ModelForm>* form);
  Status begin_form(Fetch& fetch, std::optional<round::ModelForm> form, std::uint64_t offset);
  void ask_whole(Fetch& fetch);
  void arrived();
  net::Awaitable<void> hash(std::shared_ptr<Fetch> fetch, std::uint64_t from, std::uint64_t to);
  net::Awaitable<void> check(std::shared_ptr<Fetch> fetch);
  net::Awaitable<void> hand_on(std::shared_ptr<Fetch> fetch);
  void complete(std::shared_ptr<Fetch> fetch);
  net::Awaitable<void> again(std::shared_ptr<Fetch> fetch, Error why);

  Runtime& runtime_;
  net::TaskGroup& tasks_;
  Owner owner_;
  std::shared_ptr<Fetch> fetch_;
  std::optional<Known> known_;  // of the model that was named last
  int announced_ = 0;           // that came ahead, since a model was complete
  std::uint64_t bytes_received_ = 0;
  net::AsyncSignal stop_;
  bool stopping_ = false;
};

}  // namespace fluvial::tree
