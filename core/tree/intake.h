// One child's updates and partials on their way in (core/transfer/incoming.h), on the child's session: the owner is
// asked before, the checking and staging runs on the pool, the child is told what was refused.
#pragma once

#include <memory>
#include <optional>

#include "core/transfer/round_book.h"
#include "core/tree/hub.h"

namespace fluvial::tree {

class Intake {
 public:
  // `book` is on the node's strand, as the owner is.
  Intake(Runtime& runtime, HubOwner& owner, transfer::RoundBook& book, transfer::Staging staging, Child child);

  // An error is a breach of the protocol: the session ends. What is wrong with an update alone is told to the child in
  // a receipt (and to the owner), the rest of it is skipped, and the session goes on.
  net::Awaitable<Status> begin(v1::UpdateBegin begin);
  net::Awaitable<Status> begin(v1::PartialBegin begin);
  net::Awaitable<Status> chunk(std::uint64_t index, Buffer bytes);
  net::Awaitable<Status> end(std::string sha256, Buffer integers);
  // When the session has ended: what was in the middle of its way.
  std::optional<transfer::Incoming> cut_off();

 private:
  struct Admitted {
    transfer::Terms terms;
    std::optional<transfer::Incoming> kept;  // of an earlier session; the new beginning goes on from it
  };
  struct Current {
    std::optional<transfer::UpdateHead> update;    // one of
    std::optional<transfer::PartialHead> partial;  // the two
    std::optional<transfer::Incoming> incoming;    // none: refused, the rest is read and thrown away
  };
  template <typename Head>
  net::Awaitable<Status> begin_with(Head head);
  Result<Admitted> admit(const transfer::UpdateHead& head);
  Result<Admitted> admit(const transfer::PartialHead& head);
  std::vector<SiteId> report(const Current& refused, const Error& error, bool tell_owner);
  net::Awaitable<Status> refuse(Error error, bool tell_owner);

  Runtime& runtime_;
  HubOwner& owner_;
  transfer::RoundBook& book_;
  transfer::Staging staging_;
  Child child_;
  std::optional<Current> current_;
};

}  // namespace fluvial::tree
