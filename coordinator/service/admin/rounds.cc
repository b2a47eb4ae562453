// Rounds: those that are committed, and the one that is open.
#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/json.hpp>
#include <map>
#include <string>
#include <vector>

#include "coordinator/service/admin/resources.h"
#include "coordinator/service/admin/waits.h"
#include "coordinator/service/json.h"
#include "coordinator/service/round_audit.h"

namespace fluvial::coordinator::admin {
namespace {

namespace json = boost::json;
constexpr std::uint64_t kRoundsMax = 10'000;
constexpr std::size_t kRoundsAtOnce = 64;
constexpr std::uint64_t kVerifiedMax = 50;  // a request: of each contributor a signature is checked

// Who takes part in the active run, and was never in one of its commits yet.
void add_uncounted(const Context& admin, RunId run, std::map<SiteId, store::SiteShare>& shares) {
  const ActiveRun* active = admin.root.runs().active();
  if (active == nullptr || active->machine.run() != run || !round::late_is_next(active->machine.plan())) return;
  for (const round::Participant& one : active->machine.attempt().participants) shares.try_emplace(one.site);
}

net::Awaitable<Reply> list_rounds(Context* admin, Call call) {
  const Result<RunId> run = co_await admin->run_or_latest(call.text("run"));
  if (!run.ok()) co_return run.error();
  const Result<std::uint64_t> from = call.number("from", 1);
  const Result<std::uint64_t> limit = call.number("limit", 1000);
  if (!from.ok()) co_return from.error();
  if (!limit.ok()) co_return limit.error();
  std::vector<store::CommitRow> rows;
  std::map<SiteId, store::SiteShare> shares;
  const Result<RoundId> pruned = co_await admin->runtime.pool.run([&]() -> Result<RoundId> {
    FLUVIAL_ASSIGN(rows, admin->journal.commits(*run, RoundId(*from), std::min(*limit, kRoundsMax)));
    FLUVIAL_ASSIGN(shares, admin->journal.shares(*run));
    return admin->journal.pruned(*run);
  });
  if (!pruned.ok()) co_return pruned.error();
  add_uncounted(*admin, *run, shares);
  const auto name_of = [admin](NodeId node) { return admin->name_of(node); };
  std::string text = "{\"pruned\":" + std::to_string(pruned->value()) + ",\"shares\":" + shares_json(shares, name_of) +
                     ",\"rounds\":[";
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (i % kRoundsAtOnce == kRoundsAtOnce - 1) {  // what else the strand has to do goes on between
      co_await boost::asio::post(admin->runtime.strand, boost::asio::use_awaitable);
    }
    if (i > 0) text += ',';
    text += round_json(rows[i], name_of);
  }
  co_return text + "]}";
}

json::object open_site(const Context& admin, const RollCall::Entry& entry) {
  const Absence& absence = entry.absence;
  return {{"site", entry.site.value()},
          {"name", admin.name_of(entry.site)},
          {"state", absence_state_name(absence.state)},
          {"reason", absence.reason},
          {"do", absence.advice},
          {"since", time_json(absence.since)},
          {"doing", doing_json(absence.activity)},
          {"progress", progress_json(absence.activity)}};
}

net::Awaitable<Reply> show_open(Context* admin, Call call) {
  const Result<RunId> run = co_await admin->run_or_latest(call.text("run"));
  if (!run.ok()) co_return run.error();
  const ActiveRun* active = admin->root.runs().active();
  if (active == nullptr || active->machine.run() != *run || !active->machine.is_open()) {
    co_return Error{Code::kNotFound, "no round of run " + std::to_string(run->value()) + " is open"};
  }
  const RunMachine& machine = active->machine;
  const RollCall& calls = admin->root.runs().roll_call();
  const TimePoint now = admin->runtime.clock.now();
  json::array sites;
  for (const RollCall::Entry& entry : calls.of(machine)) sites.push_back(open_site(*admin, entry));
  json::object open{{"run", run->value()},
                    {"round", machine.attempt().round.value()},
                    {"attempt", machine.attempt().attempt.value()},
                    {"quorum", machine.plan().quorum},
                    {"opened_at", utc(calls.wall(machine.opened_at()))},
                    {"soft_left_s", seconds_until(machine.soft_deadline(), now)},
                    {"hard_left_s", seconds_until(machine.hard_deadline(), now)},
                    {"tiers", tiers_json(*admin)},
                    {"sites", std::move(sites)}};
  add_mode(machine, open);
  add_pass(machine, open);
  co_return json::serialize(open);
}

json::object audited_json(const AuditedRound& round) {
  json::array faults;
  for (const std::string& fault : round.faults) faults.emplace_back(fault);
  return {{"round", round.round.value()},         {"contributors", round.contributors},
          {"signed", round.contributors_signed},  {"checked", round.contributions_checked},
          {"commit_signed", round.commit_signed}, {"faults", std::move(faults)}};
}

net::Awaitable<Reply> verify(Context* admin, Call call) {
  const Result<RunId> run = co_await admin->run_or_latest(call.text("run"));
  if (!run.ok()) co_return run.error();
  const Result<std::uint64_t> from = call.number("from", 1);
  const Result<std::uint64_t> limit = call.number("limit", kVerifiedMax);
  if (!from.ok()) co_return from.error();
  if (!limit.ok()) co_return limit.error();
  const identity::PublicKey key = admin->root.signer().key();
  const auto audited = co_await admin->runtime.pool.run(
      [&] { return audit_rounds(admin->journal, key, {*run, RoundId(*from), std::min(*limit, kVerifiedMax)}); });
  if (!audited.ok()) co_return audited.error();
  json::array rounds;
  for (const AuditedRound& round : *audited) rounds.push_back(audited_json(round));
  co_return json::serialize(json::object{{"run", run->value()}, {"rounds", std::move(rounds)}});
}

}  // namespace

void add_rounds(Router& router) {
  router.get("/v1/rounds", list_rounds);
  router.get("/v1/rounds/open", show_open);
  router.get("/v1/rounds/verify", verify);
}

}  // namespace fluvial::coordinator::admin
