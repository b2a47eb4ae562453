// What a child takes from its parent as the coordinator's: openings, commits, outcomes and ends of runs, each signed by
// the coordinator, so that a parent can pass them on and not make them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <tuple>

#include "core/identity/signature.h"
#include "core/round/history.h"
#include "core/wire/statements.h"

namespace fluvial::tree {

// A contribution's author: kUnauthenticated unless the site signed it as it is.
Status check_author(const identity::PublicKey& site, RunId run, RoundId round, const Digest& base,
                    const round::Contribution& contribution);

// On the node's strand. Every error is kUnauthenticated: the parent made up or changed what it says, and nothing of it
// is to be believed.
class Orders {
 public:
  // With each lease and each session. No key: this coordinator is of a version that signs nothing, and is believed as
  // its messages come.
  void in_history(round::HistoryId history);
  void by(const identity::PublicKey& coordinator) { coordinator_ = coordinator; }
  const identity::PublicKey& key() const { return coordinator_; }
  bool are_signed() const { return static_cast<bool>(coordinator_); }

  // False: an older attempt or pass than was heard of before, which is to be left alone: its parent lags, or plays it
  // again.
  Result<bool> opened(const wire::Opening& opening);
  Status committed(const wire::Commit& commit) const;
  // Of this site in the commit. None: the commit does not say.
  Result<std::optional<wire::Decided>> outcome_of(SiteId site, const wire::Commit& commit) const;
  // The tree digest of the model that it names, which was checked before. None: the coordinator signs none.
  std::optional<Digest> tree_of(const wire::Opening& opening) const;
  std::optional<Digest> tree_of(const wire::Commit& commit) const;
  Status answered(const v1::OutcomeReply& reply) const;
  Status ended(const v1::RunState& state) const;

 private:
  Status check(std::string_view kind, const v1::Signed& order) const;
  Result<wire::Decided> decided(SiteId site, RunId run, RoundId round, const v1::Signed& order) const;

  using Newest = std::tuple<RoundId, Epoch, AttemptId, std::uint32_t>;  // the last: the pass
  identity::PublicKey coordinator_;
  round::HistoryId history_;
  std::map<RunId, Newest> newest_;  // opened
};

}  // namespace fluvial::tree
