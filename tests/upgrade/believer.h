// A node of today that hears the session that a version has recorded.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "core/base/result.h"
#include "core/tree/denials.h"
#include "core/tree/lease_statement.h"
#include "core/tree/orders.h"
#include "core/wire/mapping.h"
#include "core/wire/record_mapping.h"
#include "tests/upgrade/recording.h"
#include "tests/upgrade/signing.h"

namespace fluvial::upgrade {

// It checks what the coordinator and a site have signed. Counts what it believes.
class Believer {
 public:
  Believer() {
    orders_.in_history(kRecordedHistory);
    orders_.by(coordinator_);
  }
  Status hears(const v1::Envelope& message) {
    if (message.hello().has_lease()) FLUVIAL_TRY(lease(message.hello().lease()));
    if (message.has_lease_grant()) FLUVIAL_TRY(granted(message.lease_grant()));
    for (const v1::Signed& one : message.member_change().leases()) FLUVIAL_TRY(lease(one));
    if (message.has_denials()) FLUVIAL_TRY(told(message.denials()));
    if (message.round_open().has_order()) FLUVIAL_TRY(opened(message.round_open()));
    if (message.has_update_begin()) update_ = message.update_begin();
    if (!message.update_end().signature().empty()) FLUVIAL_TRY(updated(message.update_end()));
    for (const v1::Contributor& one : message.partial_begin().contributors()) FLUVIAL_TRY(gave(one));
    for (const v1::Contributor& one : message.round_commit().contributors()) FLUVIAL_TRY(gave(one));
    if (message.round_commit().has_order()) FLUVIAL_TRY(committed(message.round_commit()));
    if (message.outcome_reply().has_order())
      FLUVIAL_TRY(believed("outcome", orders_.answered(message.outcome_reply())));
    if (message.run_state().has_order()) FLUVIAL_TRY(believed("run state", orders_.ended(message.run_state())));
    return {};
  }
  const std::map<std::string, int>& counts() const { return counts_; }
  Status admits(NodeId node) const {
    identity::PeerIdentity peer;
    peer.node = node;
    return deny_->check(peer);
  }

 private:
  Status believed(const char* what, const Status& status) {
    if (status.ok()) ++counts_[what];
    return status;
  }
  Status lease(const v1::Signed& statement) {
    FLUVIAL_ASSIGN(const round::LeaseTerms terms, tree::read_lease(coordinator_, statement));
    const bool same = terms.node == NodeId(7) && terms.key == site_.id() && terms.history == kRecordedHistory;
    return believed("lease", same ? Status{} : Error{Code::kInternal, "a lease that says something else"});
  }
  Status granted(const v1::LeaseGrant& grant) {
    for (const v1::Signed& one : grant.leases()) FLUVIAL_TRY(lease(one));
    FLUVIAL_TRY(denials_.granted(kRecordedHistory, coordinator_, grant.has_denials() ? &grant.denials() : nullptr));
    return grant.has_denials() ? believed("denials", {}) : Status{};
  }
  Status told(const v1::Denials& denials) {
    FLUVIAL_ASSIGN(const bool newer, denials_.told(denials));
    return believed("denials", newer ? Status{} : Error{Code::kInternal, "denials with a higher number are newer"});
  }
  Status opened(const v1::RoundOpen& message) {
    FLUVIAL_ASSIGN(const wire::Opening opening, wire::from_proto(message));
    FLUVIAL_ASSIGN(const bool newer, orders_.opened(opening));
    run_ = opening.run;
    round_ = opening.round;
    base_ = opening.base.digest;
    return believed("opening", newer ? Status{} : Error{Code::kInternal, "there was none before"});
  }
  Status gave(const v1::Contributor& contributor) {
    if (contributor.signature().empty()) return {};
    FLUVIAL_ASSIGN(const round::Contribution contribution, wire::from_proto(contributor));
    return believed("contribution", tree::check_author(site_, run_, round_, base_, contribution));
  }
  Status updated(const v1::UpdateEnd& end) {
    v1::Contributor contributor;
    contributor.set_site(update_.key().site());
    contributor.set_incarnation(update_.key().incarnation());
    contributor.set_submission(update_.key().submission());
    contributor.set_weight(update_.weight());
    contributor.set_sha256(end.sha256());
    contributor.set_signature(end.signature());
    contributor.set_lease_epoch(update_.lease_epoch());
    return gave(contributor);
  }
  Status committed(const v1::RoundCommit& message) {
    FLUVIAL_ASSIGN(const wire::Commit commit, wire::from_proto(message));
    for (const auto& [site, order] : commit.outcomes) {
      FLUVIAL_ASSIGN(const auto decided, orders_.outcome_of(site, commit));
      FLUVIAL_TRY(believed("outcome", decided ? Status{} : Error{Code::kInternal, "an outcome gets lost"}));
    }
    return believed("commit", orders_.committed(commit));
  }

  const identity::PublicKey coordinator_ = recorded_public_key(kCoordinator);
  const identity::PublicKey site_ = recorded_public_key("hospital-a");
  std::shared_ptr<identity::DenyList> deny_ = std::make_shared<identity::DenyList>();
  tree::HeardDenials denials_{deny_};
  tree::Orders orders_;
  RunId run_;
  RoundId round_;
  Digest base_{};
  v1::UpdateBegin update_;
  std::map<std::string, int> counts_;
};

}  // namespace fluvial::upgrade
