// A committed round as a timeline: what every node did, and what the round waited for.
#include "coordinator/logic/timeline.h"

#include <boost/asio/awaitable.hpp>
#include <boost/json.hpp>
#include <string>
#include <vector>

#include "coordinator/service/admin/resources.h"
#include "coordinator/service/json.h"

namespace fluvial::coordinator::admin {
namespace {

namespace json = boost::json;

double seconds(Duration time) { return std::chrono::duration<double>(time).count(); }

std::string name_of(const Context& admin, NodeId node) {
  return node == NodeId(0) ? "coordinator" : admin.name_of(node);
}

std::string_view role_of(const Context& admin, NodeId node) {
  if (node == NodeId(0)) return role_name(Role::kCoordinator);
  const auto found = admin.book().nodes().find(node);
  return role_name(found == admin.book().nodes().end() ? Role::kSite : found->second.role);
}

json::array spans_of(const Context& admin, const RoundTrace& trace) {
  json::array spans;
  for (const auto& [id, node] : trace.nodes) {
    const std::string name = name_of(admin, id);
    for (const round::Span& span : node.spans) {
      json::object one{{"name", round::span_name(span.kind)},
                       {"node", name},
                       {"role", role_of(admin, id)},
                       {"parent", nullptr},
                       {"of", nullptr},
                       {"start_s", seconds(span.begun - trace.opened)},
                       {"end_s", seconds(span.ended - trace.opened)}};
      if (id != NodeId(0)) one["parent"] = name_of(admin, node.parent);
      if (span.about != NodeId(0)) one["of"] = name_of(admin, span.about);
      spans.push_back(std::move(one));
    }
  }
  return spans;
}

std::string timeline_json(const Context& admin, const RoundTrace& trace) {
  const auto name = [&admin](NodeId node) { return name_of(admin, node); };
  const std::vector<CriticalStep> path = critical_path(trace);
  json::array critical;
  for (const CriticalStep& step : path) {
    critical.push_back({{"name", step.name}, {"node", name(step.node)}, {"seconds", seconds(step.time)}});
  }
  json::array clocks;
  json::array missing;
  for (const auto& [id, node] : trace.nodes) {
    if (!node.told) {
      missing.emplace_back(name(id));
    } else if (id != NodeId(0)) {
      clocks.push_back(
          {{"node", name(id)}, {"offset_s", seconds(node.offset)}, {"uncertainty_s", seconds(node.uncertainty)}});
    }
  }
  return json::serialize(json::object{{"run", trace.run.value()},
                                      {"round", trace.round.value()},
                                      {"attempt", trace.attempt.value()},
                                      {"seconds", seconds(trace.committed - trace.opened)},
                                      {"opened_at", utc(trace.opened_at)},
                                      {"words", words_of(trace, path, name)},
                                      {"critical", std::move(critical)},
                                      {"clocks", std::move(clocks)},
                                      {"spans", spans_of(admin, trace)},
                                      {"missing", std::move(missing)}});
}

net::Awaitable<Reply> show_timeline(Context* admin, Call call) {
  const Result<RunId> run = co_await admin->run_or_latest(call.text("run"));
  if (!run.ok()) co_return run.error();
  const Traces& traces = admin->root.runs().steps().traces();
  const std::string& which = call.names[0];
  RoundId round = traces.newest(*run).value_or(RoundId(0));
  if (which != "latest") {
    const Result<std::uint64_t> number = to_number("round", which);
    if (!number.ok()) co_return number.error();
    round = RoundId(*number);
  }
  const RoundTrace* trace = traces.find(*run, round);
  if (trace != nullptr) co_return timeline_json(*admin, *trace);
  co_return Error{Code::kNotFound,
                  "there is no timeline of round " + which + " of run " + std::to_string(run->value()) +
                      ": of the last " + std::to_string(Traces::kRoundsMax) +
                      " rounds committed since the coordinator started timelines are kept, of this run " +
                      std::to_string(traces.kept(*run))};
}

}  // namespace

void add_timeline(Router& router) { router.get("/v1/rounds/{round}/timeline", show_timeline); }

}  // namespace fluvial::coordinator::admin
