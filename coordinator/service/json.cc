#include "coordinator/service/json.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <boost/json.hpp>
#include <utility>

#include "core/base/plain_numbers.h"
#include "core/round/reported.h"

namespace fluvial::coordinator {
namespace {

namespace json = boost::json;

std::string text_of(const json::object& object) { return plain_numbers(json::serialize(object)); }

json::object metrics_object(const round::Metrics& metrics) {
  json::object object;
  for (const auto& [name, value] : metrics) {
    if (round::counts(value)) object[name] = value;
  }
  return object;
}

// Metrics, with the names of those that reported one that is in no mean.
json::object not_finite_object(const round::ContributorSet& contributors, const NameOf& name_of) {
  json::object object;
  for (const auto& [site, entry] : contributors.entries()) {
    for (const auto& [name, value] : entry.metrics) {
      if (round::counts(value)) continue;
      json::value& names = object[name];
      if (names.is_null()) names.emplace_array();
      names.get_array().emplace_back(name_of(site));
    }
  }
  return object;
}

// Those before the last: who was in, and the mean that they made.
json::array passes_array(const std::vector<round::PassRecord>& passes, const NameOf& name_of) {
  json::array all;
  for (const round::PassRecord& pass : passes) {
    json::array contributors;
    for (const auto& [site, entry] : pass.contributors.entries()) {
      contributors.push_back({{"site", site.value()},
                              {"name", name_of(site)},
                              {"weight", entry.weight},
                              {"digest", to_hex(entry.digest)}});
    }
    all.push_back(
        {{"pass", all.size()}, {"mean", to_hex(pass.mean.digest)}, {"contributors", std::move(contributors)}});
  }
  return all;
}

json::object round_object(const store::CommitRow& row, const std::map<SiteId, NodeId>& parents, const NameOf& name_of) {
  json::array contributors;
  std::uint64_t stale = 0;
  for (const auto& [site, entry] : row.record.contributors.entries()) {
    stale += entry.staleness() > 0 ? 1 : 0;
    json::object contributor{{"site", site.value()},
                             {"name", name_of(site)},
                             {"weight", entry.weight},
                             {"share", static_cast<double>(entry.share) / round::kWholeFactor},
                             {"digest", to_hex(entry.digest)},
                             {"staleness", entry.staleness()},
                             {"own_round", entry.own_round(row.record.round).value()},
                             {"metrics", metrics_object(entry.metrics)}};
    if (const auto parent = parents.find(site); parent != parents.end()) {
      contributor["parent"] = parent->second == NodeId(0) ? "coordinator" : name_of(parent->second);
    }
    contributors.push_back(std::move(contributor));
  }
  json::array refused;
  for (const round::Refusal& refusal : row.record.refusals) {
    refused.push_back({{"site", refusal.site.value()},
                       {"name", name_of(refusal.site)},
                       {"code", code_name(refusal.error.code)},
                       {"message", refusal.error.message}});
  }
  json::object object;
  object["run"] = row.record.run.value();
  object["round"] = row.record.round.value();
  object["attempt"] = row.record.attempt.value();
  object["participants"] = row.participants_count;
  object["contributors"] = std::move(contributors);
  if (!row.record.passes.empty()) {
    object["epoch"] = row.record.epoch.value();
    object["passes"] = passes_array(row.record.passes, name_of);
  }
  object["stale"] = stale;
  object["refused"] = std::move(refused);
  json::array late_sites;
  for (const store::LateSite& late : row.late) {
    late_sites.push_back({{"site", late.site.value()}, {"name", name_of(late.site)}, {"reason", late.reason}});
  }
  object["late_sites"] = std::move(late_sites);
  // A version that signs commits names everybody who is late: nobody, where the round was a window.
  object["late"] = row.order ? row.late.size()
                             : row.participants_count - row.record.contributors.size() - row.record.refusals.size();
  object["weight"] = row.record.contributors.total_weight();
  object["model_sha256"] = to_hex(row.record.model.digest);
  object["master_sha256"] = to_hex(row.master);
  if (row.sum_digest) object["sum_sha256"] = to_hex(*row.sum_digest);
  if (const std::optional<round::VectorRef>& state = row.record.codec_state) {
    object["codec_state"] = vector_object(*state);
  }
  object["seconds"] = static_cast<double>(row.duration_ms) / 1000.0;
  object["bytes_up"] = row.bytes_up;
  object["bytes_down"] = row.bytes_down;
  object["metrics"] = metrics_object(row.metrics);
  object["not_finite"] = not_finite_object(row.record.contributors, name_of);
  object["evaluation"] = metrics_object(row.evaluation);
  object["committed_at"] = utc(row.committed_at);
  return object;
}

}  // namespace

json::object vector_object(const round::VectorRef& vector) {
  return {{"sha256", to_hex(vector.digest)}, {"bytes", vector.bytes}};
}

std::string shares_json(const std::map<SiteId, store::SiteShare>& shares, const NameOf& name_of) {
  json::array all;
  for (const auto& [site, share] : shares) {
    all.push_back({{"site", site.value()},
                   {"name", name_of(site)},
                   {"rounds", share.rounds},
                   {"weight", share.weight},
                   {"stale", share.stale},
                   {"staleness", share.staleness}});
  }
  return json::serialize(all);
}

std::string utc(WallTime time) {
  const auto ms = time.time_since_epoch().count();
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(static_cast<std::time_t>(ms / 1000)), ms % 1000);
}

std::string round_json(const store::CommitRow& row, const NameOf& name_of) {
  return text_of(round_object(row, row.parents, name_of));
}

std::string committed_line(const store::CommitRow& row, const NameOf& name_of) {
  json::object object = round_object(row, {}, name_of);  // of one that has just been committed nobody has read them
  object["event"] = "committed";
  return text_of(object);
}

std::string evaluated_line(RunId run, RoundId round, const round::Metrics& evaluation) {
  return text_of(json::object{{"event", "evaluated"},
                              {"run", run.value()},
                              {"round", round.value()},
                              {"evaluation", metrics_object(evaluation)}});
}

std::string opened_line(const round::AttemptRecord& attempt) {
  return text_of(json::object{{"event", "opened"},
                              {"run", attempt.run.value()},
                              {"round", attempt.round.value()},
                              {"attempt", attempt.attempt.value()},
                              {"participants", attempt.participants.size()}});
}

std::string error_line(const Error& error) {
  return text_of(json::object{{"event", "error"}, {"code", code_name(error.code)}, {"message", error.message}});
}

std::string state_line(RunId run, RunStatus status, const std::string& reason) {
  return text_of(
      json::object{{"event", "state"}, {"run", run.value()}, {"status", run_status_name(status)}, {"reason", reason}});
}

}  // namespace fluvial::coordinator
