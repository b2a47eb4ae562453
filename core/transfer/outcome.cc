#include "core/transfer/outcome.h"

#include <optional>
#include <string>
#include <utility>

#include "core/round/run_status.h"
#include "core/wire/mapping.h"
#include "core/wire/record_mapping.h"

namespace fluvial::transfer {

v1::Envelope outcome_query(RunId run, RoundId round, SiteId site, const Digest& digest) {
  v1::Envelope envelope = run_query(run, site);
  envelope.mutable_outcome_query()->set_round(round.value());
  envelope.mutable_outcome_query()->set_sha256(wire::digest_to_proto(digest));
  return envelope;
}

v1::Envelope run_query(RunId run, NodeId asker) {
  v1::Envelope envelope;
  envelope.mutable_outcome_query()->set_run(run.value());
  envelope.mutable_outcome_query()->set_site(asker.value());
  return envelope;
}

bool is_running(std::string_view run_state) { return run_state == round::run_status_name(round::RunStatus::kRunning); }

std::optional<v1::Envelope> passed_on(const v1::OutcomeQuery& asked) {
  const bool is_of_an_update = asked.round() != 0;
  if (is_of_an_update && asked.sha256().size() != std::tuple_size_v<Digest>) return std::nullopt;
  v1::Envelope message;
  v1::OutcomeQuery& query = *message.mutable_outcome_query();
  query.set_run(asked.run());
  query.set_round(asked.round());
  query.set_site(asked.site());
  if (is_of_an_update) query.set_sha256(asked.sha256());
  return message;
}

bool ends_run(std::string_view run_state) {
  const std::optional<round::RunStatus> status = round::parse_run_status(run_state);
  return status && is_over(*status);
}

Result<std::vector<v1::Envelope>> answers(store::CoordinatorJournal& journal, const v1::OutcomeQuery& query) {
  const RunId run(query.run());
  const Result<store::RunRow> row = journal.run(run);
  if (!row.ok() && row.error().code != Code::kNotFound) return row.error();
  const bool is_over = row.ok() && round::is_over(row->status);
  std::vector<v1::Envelope> all;
  if (is_over) {
    v1::RunState& state = *all.emplace_back().mutable_run_state();
    state.set_run(run.value());
    state.set_state(std::string(round::run_status_name(row->status)));
    state.set_reason(row->reason);
    state.set_name(row->plan.name);
  }
  if (query.round() == 0 && (is_over || !row.ok())) return all;
  v1::OutcomeReply& reply = *all.emplace_back().mutable_outcome_reply();
  reply.set_run(query.run());
  reply.set_round(query.round());
  reply.set_site(query.site());
  if (query.round() == 0) return all;
  reply.set_sha256(query.sha256());
  FLUVIAL_ASSIGN(const Digest digest, wire::digest_from_proto(query.sha256()));
  Result<round::Outcome> outcome = journal.outcome(run, RoundId(query.round()), SiteId(query.site()), digest);
  if (!outcome.ok() && outcome.error().code == Code::kNotFound) outcome = round::Outcome::kLate;
  if (!outcome.ok()) return outcome.error();
  reply.set_outcome(wire::to_proto(*outcome));
  return all;
}

}  // namespace fluvial::transfer
