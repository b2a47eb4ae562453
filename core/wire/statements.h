// What is signed, as bytes, and whether a message says what its author signed. The one place that knows what stands in
// a statement. Pure: signatures themselves are made and checked elsewhere (core/identity/signature.h), over exactly the
// bytes that travel.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/round/contribution.h"
#include "core/round/history.h"
#include "core/round/outcome.h"
#include "core/wire/record_mapping.h"
#include "fluvial/v1/wire.pb.h"

namespace fluvial::wire {

inline constexpr std::string_view kOpeningKind = "fluvial opening 1";
inline constexpr std::string_view kCommitKind = "fluvial commit 1";
inline constexpr std::string_view kOutcomeKind = "fluvial outcome 1";
inline constexpr std::string_view kRunStateKind = "fluvial run state 1";
inline constexpr std::string_view kContributionKind = "fluvial contribution 1";

// What became of a site's update, as the coordinator states it.
struct Decided {
  RunId run;
  RoundId round;
  SiteId site;
  round::Outcome outcome = round::Outcome::kPending;
  std::optional<Digest> digest;  // of the update that counted, or that was asked about
  RoundId own = {};              // of a refused update, as its Refusal says
  bool operator==(const Decided&) const = default;
};

// ---- bodies: the same content makes the same bytes
std::string opening_body(const Opening& opening, const std::vector<SiteId>& sites, round::HistoryId history);
// `master`: of the model that the server keeps, where that is another than sites train from.
std::string commit_body(const Commit& commit, const std::string& audit_head, round::HistoryId history,
                        const std::optional<Digest>& master = {});
std::string outcome_body(const Decided& decided, round::HistoryId history);
std::string run_state_body(const v1::RunState& state, Epoch epoch, round::HistoryId history);
std::string contribution_body(RunId run, RoundId round, const Digest& base, const round::Contribution& contribution);

// ---- checks of a message against the body that its author signed. kUnauthenticated: it says something else, or is of
// another history
// Every participant that the opening names must be among the statement's.
Status check_opening(const std::string& body, const Opening& opening, round::HistoryId history);
Status check_commit(const std::string& body, const Commit& commit, round::HistoryId history);
Status check_run_state(const std::string& body, const v1::RunState& state, round::HistoryId history);
Result<Decided> decided_from(const std::string& body, round::HistoryId history);
// The tree digest of the model that a statement names, whose body was checked. None: an older coordinator's.
std::optional<Digest> tree_of_opening(const v1::Signed& order);
std::optional<Digest> tree_of_commit(const v1::Signed& order);
// Whom the statement is about: for those who pass it on. kInvalidArgument when it is none.
Result<SiteId> site_of_outcome(const std::string& body);

}  // namespace fluvial::wire
