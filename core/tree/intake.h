// One child's updates and partials on their way in (core/transfer/incoming.h), on the child's session: the owner is
// asked before, the checking and staging runs on the pool, the child is told what was refused.
#pragma once

#include <memory>
#include <optional>

#include "core/transfer/incoming.h"
#include "core/tree/hub.h"

namespace fluvial::tree {

class Intake {
 public:
  Intake(Runtime& runtime, HubOwner& owner, transfer::Staging staging, Child child);

  // An error is a breach of the protocol: the session ends. What is wrong with an update alone is told to the child in
  // a receipt (and to the owner), the rest of it is skipped, and the session goes on.
  net::Awaitable<Status> begin(v1::UpdateBegin begin);
  net::Awaitable<Status> begin(v1::PartialBegin begin);
  net::Awaitable<Status> chunk(std::uint64_t index, Buffer bytes);
  net::Awaitable<Status> end(std::string sha256, Buffer integers);

 private:
  struct Current {
    std::optional<transfer::UpdateHead> update;    // one of
    std::optional<transfer::PartialHead> partial;  // the two
    std::optional<transfer::Incoming> incoming;    // none: refused, the rest is read and thrown away
  };
  net::Awaitable<Status> refuse(Error error, bool tell_owner);

  Runtime& runtime_;
  HubOwner& owner_;
  transfer::Staging staging_;
  Child child_;
  std::optional<Current> current_;
};

}  // namespace fluvial::tree
