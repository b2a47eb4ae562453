// Whether contributions are their sites' own. A site signs what it contributes, and whoever passes it on can neither
// change nor invent it. A site of a version that signs nothing is believed by its parents' word, until it has signed
// once. Thread safe; blocking, as the journal is.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "core/identity/signature.h"
#include "core/store/journal.h"
#include "core/tree/hub.h"

namespace fluvial::coordinator {

class Authorship {
 public:
  explicit Authorship(store::CoordinatorJournal& journal) : journal_(journal) {}

  Status load();  // who has signed before; once, before anything comes
  // The site has enrolled anew, perhaps with a version that signs nothing.
  void begins_anew(SiteId site);

  // Whether the site contradicts itself: one submission of this round with two contents, each with its signature.
  // kUnauthenticated when one is not the site's own, or nobody can tell; kInvalidArgument when they are none.
  Status is_contradiction(RunId run, RoundId own, SiteId site, const std::vector<round::Contribution>& contents) const;
  // Of what the child has brought, the contributions that are not their sites' own, and why.
  std::vector<round::Refusal> forged(const tree::Child& child, const transfer::Brought& brought);
  // The keys (DER) by which the contributions' signatures were found to be good.
  std::map<SiteId, std::vector<std::byte>> keys_of(const round::ContributorSet& contributors) const;

 private:
  Status check(const tree::Child& child, const transfer::Brought& brought, const round::Contribution& contribution);
  // Whose the contribution is. None: it is signed by nobody, or by nobody knows whom, and believed. `session`: the key
  // of the site's own session, which it came in; none: another brought it.
  Result<identity::PublicKey> author_of(const transfer::Brought& brought, const round::Contribution& contribution,
                                        const identity::PublicKey& session) const;
  // As its certificates say. One that is none: its key is not known, for it enrolled with a version that kept none.
  Result<identity::PublicKey> key_of(SiteId site) const;
  // The keys that the site had before it enrolled anew, if it did so after this commit (none: after the run's start),
  // so while the next round was open: what it signed until then may be on its way. No key that was revoked.
  Result<std::vector<identity::PublicKey>> keys_before(SiteId site, RunId run,
                                                       const std::optional<store::CommitRow>& commit) const;
  void note(const transfer::Brought& brought, const round::Contribution& contribution, const identity::PublicKey& key);
  bool has_signed(SiteId site) const;

  store::CoordinatorJournal& journal_;
  mutable std::mutex mutex_;
  std::set<SiteId> signers_;
  struct Verified {
    RoundId round;  // that was open when it began to come
    identity::PublicKey key;
  };
  RunId run_;  // the newest
  RoundId newest_;
  std::map<Signature, Verified> verified_;  // of the run's last rounds: whose they are
};

}  // namespace fluvial::coordinator
