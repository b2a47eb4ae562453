#include "core/wire/statements.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>

#include "core/wire/mapping.h"
#include "core/wire/opening_fields.h"

namespace fluvial::wire {
namespace {

// A plan holds maps.
std::string bytes_of(const google::protobuf::MessageLite& statement) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream out(&bytes);
    google::protobuf::io::CodedOutputStream coded(&out);
    coded.SetSerializationDeterministic(true);
    statement.SerializeToCodedStream(&coded);
  }
  return bytes;
}

Error not_said(const std::string& what) {
  return {Code::kUnauthenticated, what + " is not what the coordinator signed"};
}

template <typename Statement>
Result<Statement> parse(const std::string& body, const std::string& what, round::HistoryId history) {
  Statement statement;
  if (!statement.ParseFromString(body)) return not_said(what);
  if (statement.history() != history.value()) {
    return Error{Code::kUnauthenticated, what + " is of another history of the federation"};
  }
  return statement;
}

std::string name_of(std::string_view what, RunId run, RoundId round) {
  return std::string(what) + " of run " + std::to_string(run.value()) + " round " + std::to_string(round.value());
}

bool says_plan(const v1::Plan& stated, const round::Plan& plan) {
  const Result<round::Plan> parsed = from_proto(stated);
  return parsed.ok() && *parsed == plan;
}

bool says_model(const v1::ModelRef& stated, const round::ModelRef& model) {
  const Result<round::ModelRef> parsed = from_proto(stated);
  return parsed.ok() && *parsed == model;
}

bool says_runs(const google::protobuf::RepeatedField<std::uint64_t>& stated, const std::vector<RunId>& runs) {
  return std::ranges::equal(stated, runs, {}, {}, &RunId::value);
}

// A parent that knows no old updates leaves out what is said of them.
bool says_late(const v1::OpeningStatement& stated, const Opening& opening) {
  if (!opening.late) return true;
  if (!stated.has_late()) return false;
  const Result<round::Lateness> late = from_proto(stated.late(), opening.base, opening.scale_bits);
  return late.ok() && *late == *opening.late;
}

// Likewise of passes. Its site then makes no update.
bool says_pass(const v1::OpeningStatement& stated, const Opening& opening) {
  if (!opening.pass) return true;
  if (!stated.has_pass()) return false;
  const Result<round::Pass> pass = from_proto(stated.pass(), opening.value_count);
  return pass.ok() && *pass == *opening.pass;
}

bool names(const SiteList& sites, SiteId site) { return std::ranges::binary_search(sites, site.value()); }

}  // namespace

std::string opening_body(const Opening& opening, const std::vector<SiteId>& sites, round::HistoryId history) {
  v1::OpeningStatement statement;
  set_opening_fields(opening, statement);
  for (const SiteId site : sites) statement.add_sites(site.value());
  std::ranges::sort(*statement.mutable_sites());
  if (opening.base_tree) statement.set_base_tree(digest_to_proto(*opening.base_tree));
  statement.set_history(history.value());
  return bytes_of(statement);
}

Status check_opening(const std::string& body, const Opening& opening, round::HistoryId history) {
  const std::string what = name_of("the opening", opening.run, opening.round);
  FLUVIAL_ASSIGN(const v1::OpeningStatement stated, parse<v1::OpeningStatement>(body, what, history));
  const bool same = stated.run() == opening.run.value() && stated.round() == opening.round.value() &&
                    stated.attempt() == opening.attempt.value() && stated.epoch() == opening.epoch.value() &&
                    stated.scale_bits() == static_cast<std::uint32_t>(opening.scale_bits) &&
                    stated.value_count() == opening.value_count && stated.integer_count() == opening.integer_count &&
                    says_model(stated.base(), opening.base) && says_plan(stated.plan(), opening.plan) &&
                    says_runs(stated.continues(), opening.continues) && says_late(stated, opening) &&
                    says_pass(stated, opening);
  if (!same) return not_said(what);
  for (const round::Participant& participant : opening.participants) {
    if (names(stated.sites(), participant.site)) continue;
    return Error{Code::kUnauthenticated,
                 what + ": site " + std::to_string(participant.site.value()) + " takes no part, says the coordinator"};
  }
  return {};
}

std::string commit_body(const Commit& commit, const std::string& audit_head, round::HistoryId history,
                        const std::optional<Digest>& master) {
  v1::CommitStatement statement;
  statement.set_run(commit.run.value());
  statement.set_round(commit.round.value());
  statement.set_attempt(commit.attempt.value());
  *statement.mutable_model() = to_proto(commit.model);
  statement.set_last(commit.last);
  statement.set_audit_head(audit_head);
  statement.set_history(history.value());
  if (master) statement.set_master_sha256(digest_to_proto(*master));
  if (commit.model_tree) statement.set_model_tree(digest_to_proto(*commit.model_tree));
  return bytes_of(statement);
}

Status check_commit(const std::string& body, const Commit& commit, round::HistoryId history) {
  const std::string what = name_of("the commit", commit.run, commit.round);
  FLUVIAL_ASSIGN(const v1::CommitStatement stated, parse<v1::CommitStatement>(body, what, history));
  const bool same = stated.run() == commit.run.value() && stated.round() == commit.round.value() &&
                    stated.attempt() == commit.attempt.value() && stated.last() == commit.last &&
                    says_model(stated.model(), commit.model);
  return same ? Status{} : Status{not_said(what)};
}

std::string outcome_body(const Decided& decided, round::HistoryId history) {
  v1::OutcomeStatement statement;
  statement.set_run(decided.run.value());
  statement.set_round(decided.round.value());
  statement.set_site(decided.site.value());
  statement.set_outcome(to_proto(decided.outcome));
  if (decided.digest) statement.set_sha256(digest_to_proto(*decided.digest));
  statement.set_history(history.value());
  statement.set_own_round(decided.own.value());
  return bytes_of(statement);
}

Result<Decided> decided_from(const std::string& body, round::HistoryId history) {
  FLUVIAL_ASSIGN(const v1::OutcomeStatement stated, parse<v1::OutcomeStatement>(body, "the outcome", history));
  Decided decided{RunId(stated.run()), RoundId(stated.round()), SiteId(stated.site())};
  FLUVIAL_ASSIGN(decided.outcome, from_proto(stated.outcome()));
  if (!stated.sha256().empty()) {
    FLUVIAL_ASSIGN(decided.digest, digest_from_proto(stated.sha256()));
  }
  decided.own = RoundId(stated.own_round());
  return decided;
}

namespace {

std::optional<Digest> tree_of(const std::string& stated) {
  const Result<Digest> digest = digest_from_proto(stated);
  return digest.ok() ? std::optional(*digest) : std::nullopt;
}

}  // namespace

std::optional<Digest> tree_of_opening(const v1::Signed& order) {
  v1::OpeningStatement statement;
  return statement.ParseFromString(order.body()) ? tree_of(statement.base_tree()) : std::nullopt;
}

std::optional<Digest> tree_of_commit(const v1::Signed& order) {
  v1::CommitStatement statement;
  return statement.ParseFromString(order.body()) ? tree_of(statement.model_tree()) : std::nullopt;
}

Result<SiteId> site_of_outcome(const std::string& body) {
  v1::OutcomeStatement statement;
  if (!statement.ParseFromString(body)) return Error{Code::kInvalidArgument, "no statement of an outcome"};
  return SiteId(statement.site());
}

std::string run_state_body(const v1::RunState& state, Epoch epoch, round::HistoryId history) {
  v1::RunStateStatement statement;
  statement.set_run(state.run());
  statement.set_state(state.state());
  statement.set_reason(state.reason());
  statement.set_epoch(epoch.value());
  statement.set_history(history.value());
  statement.set_name(state.name());
  return bytes_of(statement);
}

// What it says of the state counts; reasons are for people.
Status check_run_state(const std::string& body, const v1::RunState& state, round::HistoryId history) {
  const std::string what = "the state of run " + std::to_string(state.run());
  FLUVIAL_ASSIGN(const v1::RunStateStatement stated, parse<v1::RunStateStatement>(body, what, history));
  const bool same = stated.run() == state.run() && stated.state() == state.state() && stated.name() == state.name();
  return same ? Status{} : Status{not_said(what)};
}

std::string contribution_body(RunId run, RoundId round, const Digest& base, const round::Contribution& contribution) {
  v1::ContributionStatement statement;
  statement.set_run(run.value());
  statement.set_round(round.value());
  statement.set_site(contribution.site.value());
  statement.set_incarnation(contribution.incarnation.value());
  statement.set_submission(contribution.submission);
  statement.set_weight(contribution.weight);
  statement.set_base_sha256(digest_to_proto(base));
  statement.set_sha256(digest_to_proto(contribution.digest));
  if (contribution.from.pass > 0) {
    statement.set_pass(contribution.from.pass);
    statement.set_mean_sha256(digest_to_proto(contribution.from.mean));
  }
  return bytes_of(statement);
}

}  // namespace fluvial::wire
