// Brings one model here: from the parent straight into the memory that workers will map, checked, sealed. On the node's
// strand.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "core/net/awaitable.h"
#include "core/net/backoff.h"
#include "core/net/signal.h"
#include "core/net/task_group.h"
#include "core/tree/runtime.h"
#include "edge/service/trained.h"
#include "fluvial/v1/wire.pb.h"

namespace fluvial::edge {

class ModelFetch {
 public:
  using Post = std::function<void(v1::Envelope)>;  // to the parent; nothing while there is none
  using Done = std::function<void(HeldModel)>;
  using Refused = std::function<void(const round::ModelRef&, const Error&)>;  // what came is not it: fetched again

  ModelFetch(tree::Runtime& runtime, net::TaskGroup& tasks, Post post, Done done, Refused refused);
  ~ModelFetch();

  void want(const round::ModelRef& ref);  // the parent has named it; replaces a fetch of another model
  void parent_up();                       // asks for what is missing, from where it stopped
  void parent_down();
  void stop();
  std::uint64_t bytes_received() const { return bytes_received_; }  // of all models: grows while something comes

  // What the parent sends. An error is a breach of the protocol; what belongs to an earlier request is passed over.
  net::Awaitable<Status> begin(v1::ModelBegin message);
  Status chunk(const v1::ModelChunk& message, ByteSpan bytes);

 private:
  struct Fetch;
  void request(Fetch& fetch);
  net::Awaitable<void> check(std::shared_ptr<Fetch> fetch);
  net::Awaitable<void> again(std::shared_ptr<Fetch> fetch, Error why);

  tree::Runtime& runtime_;
  net::TaskGroup& tasks_;
  Post post_;
  Done done_;
  Refused refused_;
  std::shared_ptr<Fetch> fetch_;
  std::uint64_t bytes_received_ = 0;
  net::AsyncSignal stop_;
  bool stopping_ = false;
};

}  // namespace fluvial::edge
