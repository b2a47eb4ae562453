// One child's update or partial on its way in: checked and staged chunk by chunk as it arrives, handed over only when
// it is whole and good. On the child's session.
#pragma once

#include <memory>
#include <optional>

#include "core/digest/sha256.h"
#include "core/tree/hub.h"

namespace fluvial::tree {

class Intake {
 public:
  Intake(Runtime& runtime, HubOwner& owner, store::StagingBudget& budget, std::string spill_folder, Child child);
  ~Intake();

  // An error is a breach of the protocol: the session ends. What is wrong with an update alone is told to the child in
  // a receipt (and to the owner), the rest of it is skipped, and the session goes on.
  net::Awaitable<Status> begin(v1::UpdateBegin begin);
  net::Awaitable<Status> begin(v1::PartialBegin begin);
  net::Awaitable<Status> chunk(std::uint64_t index, Buffer bytes);
  net::Awaitable<Status> end(std::string sha256, Buffer integers);

 private:
  struct Incoming;
  net::Awaitable<Status> refuse(Error error, bool tell_owner);
  Status verify_chunk(Incoming& incoming, ByteSpan bytes);
  Status verify_end(Incoming& incoming, const std::string& sha256, ByteSpan integers);

  Runtime& runtime_;
  HubOwner& owner_;
  store::StagingBudget& budget_;
  std::string spill_folder_;
  Child child_;
  std::unique_ptr<Incoming> incoming_;
};

v1::Envelope receipt(RunId run, RoundId round, SiteId site, std::uint64_t sequence, const Status& status,
                     const std::vector<SiteId>& overlap = {});

}  // namespace fluvial::tree
