#include "core/wire/history_mapping.h"

#include <utility>

#include "core/wire/mapping.h"

namespace fluvial::wire {

void to_proto(const round::Lineage& lineage, HistoryList* out) {
  for (const round::History& history : lineage) {
    v1::History& added = *out->Add();
    added.set_id(history.id.value());
    added.set_began(history.began.value());
    added.set_last_run(history.last_run.value());
    for (const round::Fork& fork : history.forks) {
      v1::Fork& one = *added.add_forks();
      one.set_run(fork.run.value());
      one.set_round(fork.round.value());
    }
  }
}

Result<round::Lineage> from_proto(const HistoryList& histories) {
  if (static_cast<std::size_t>(histories.size()) > round::kHistoriesMax) {
    return Error{Code::kInvalidArgument, "more than " + std::to_string(round::kHistoriesMax) + " histories"};
  }
  round::Lineage lineage;
  for (const v1::History& message : histories) {
    round::History history{round::HistoryId(message.id()), Epoch(message.began()), RunId(message.last_run()), {}};
    if (static_cast<std::size_t>(message.forks_size()) > round::kForksMax) {
      return Error{Code::kInvalidArgument, "a history with more than " + std::to_string(round::kForksMax) + " forks"};
    }
    for (const v1::Fork& fork : message.forks()) history.forks.push_back({RunId(fork.run()), RoundId(fork.round())});
    lineage.push_back(std::move(history));
  }
  FLUVIAL_TRY(round::check_lineage(lineage));
  return lineage;
}

v1::Standing to_proto(const round::Standing& standing) {
  v1::Standing out;
  out.set_history(standing.history.value());
  out.set_epoch(standing.epoch.value());
  for (const round::KnownRound& known : standing.rounds) {
    v1::KnownRound& added = *out.add_rounds();
    added.set_run(known.run.value());
    added.set_round(known.round.value());
    added.set_decided(known.decided);
    added.set_counted(known.counted);
    added.set_sha256(digest_to_proto(known.digest));
  }
  return out;
}

Result<round::Standing> from_proto(const v1::Standing& standing) {
  if (static_cast<std::size_t>(standing.rounds_size()) > round::kKnownRoundsMax) {
    return Error{Code::kInvalidArgument, "more than " + std::to_string(round::kKnownRoundsMax) + " rounds"};
  }
  round::Standing out{round::HistoryId(standing.history()), Epoch(standing.epoch()), {}};
  for (const v1::KnownRound& message : standing.rounds()) {
    round::KnownRound known{
        RunId(message.run()), RoundId(message.round()), message.decided(), message.decided() && message.counted(), {}};
    FLUVIAL_ASSIGN(known.digest, digest_from_proto(message.sha256()));
    out.rounds.push_back(known);
  }
  return out;
}

}  // namespace fluvial::wire
