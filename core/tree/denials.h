// Who is refused, as the coordinator says it to every aggregator: signed, so that aggregators pass it on and cannot
// change it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>

#include "core/base/result.h"
#include "core/identity/deny.h"
#include "core/identity/signature.h"
#include "core/round/history.h"
#include "fluvial/v1/wire.pb.h"

namespace fluvial::tree {

// What is refused from `number` on. Of the entries, which certificate a member may show (serials_hex) is not told: the
// coordinator alone knows it.
Result<v1::Denials> signed_denials(const identity::DenyEntries& entries, round::HistoryId history, std::uint64_t number,
                                   const identity::PrivateKey& coordinator);

struct Denied {
  round::HistoryId history;
  std::uint64_t number = 0;
  identity::DenyEntries who;
};
// kUnauthenticated unless it is said by the holder of this key.
Result<Denied> read_denials(const v1::Denials& denials, const identity::PublicKey& coordinator);

// What an aggregator has heard, and follows. On the node's strand.
class HeardDenials {
 public:
  explicit HeardDenials(std::shared_ptr<identity::DenyList> deny) : deny_(std::move(deny)) {}

  // A lease has come from the coordinator: of this history, by the holder of this key, with its denials. One of the
  // version before tells none: then everybody is admitted, as before; not any more once a coordinator has told some.
  // kFailedPrecondition then.
  Status granted(round::HistoryId history, const identity::PublicKey& coordinator, const v1::Denials* denials);
  // A parent passes them on. Whether they are newer than those before and are followed from now on; an error when they
  // are not the coordinator's.
  Result<bool> told(const v1::Denials& denials);

  // kStale: nothing has been heard since this process began, so nobody may be admitted yet.
  Status may_admit() const;
  const v1::Denials* last() const { return last_ ? &*last_ : nullptr; }  // to pass on; null: none was heard
  const std::set<NodeId>& nodes() const { return nodes_; }               // members that are refused altogether

 private:
  Result<bool> take(const v1::Denials& denials, bool of_lease);

  std::shared_ptr<identity::DenyList> deny_;
  identity::PublicKey coordinator_;
  round::HistoryId current_;  // of the last lease
  bool granted_ = false;
  round::HistoryId history_;  // of last_
  std::uint64_t number_ = 0;
  std::optional<v1::Denials> last_;
  std::set<NodeId> nodes_;
};

}  // namespace fluvial::tree
