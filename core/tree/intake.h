// One child's updates and partials on their way in (core/transfer/inflow.h), on the child's session: the owner is asked
// on the node's strand, the checking and staging runs on the pool, the child is told what was refused.
#pragma once

#include <optional>

#include "core/transfer/inflow.h"
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
  net::Awaitable<Status> end(v1::UpdateEnd end, Buffer integers);  // a partial's has no signature
  // When the session has ended: what was in the middle of its way.
  std::optional<transfer::Incoming> cut_off();

 private:
  net::Awaitable<void> admit();
  net::Awaitable<void> refuse(Error error);
  telemetry::Field sender() const;  // of log lines

  Runtime& runtime_;
  HubOwner& owner_;
  transfer::RoundBook& book_;
  transfer::Staging staging_;
  Child child_;
  std::optional<transfer::Inflow> current_;
};

}  // namespace fluvial::tree
