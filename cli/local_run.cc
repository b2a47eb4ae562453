#include "cli/local_run.h"

#include <fmt/format.h>

#include <array>

#include "core/config/plan_file.h"
#include "core/store/file_system.h"
#include "core/store/plan_json.h"

namespace fluvial::cli {

Status write_text_file(const std::string& path, const std::string& text) {
  store::PosixFileSystem files;
  const std::array<ByteSpan, 1> parts = {as_byte_span(text)};
  return store::write_file_atomically(files, path, parts);
}

Result<std::uint64_t> start_local_run(const AdminClient& admin, const round::Plan& plan, const std::string& folder,
                                      const std::string& model) {
  const std::string path = folder + "/plan.toml";
  FLUVIAL_TRY(write_text_file(path, config::plan_to_toml({plan, model})));
  FLUVIAL_ASSIGN(const config::PlanFile file, config::load_plan(path));
  FLUVIAL_ASSIGN(json::value plan_json, parse_json(store::plan_to_json(file.plan), "the plan"));
  json::object request;
  request["plan"] = std::move(plan_json);
  request["model"] = file.model;
  FLUVIAL_ASSIGN(const json::value started, admin.post("/v1/runs", request));
  return count_member(started, "run");
}

Status watch_local_run(const AdminClient& admin, std::uint64_t run, std::uint64_t rounds, RoundView& view,
                       const std::function<void(const json::value& event)>& heard) {
  const Status watched = admin.watch(fmt::format("/v1/rounds/watch?run={}&from=1", run), [&](const json::value& event) {
    if (heard) heard(event);
    view.on_event(event);
    return view.status() != "paused";
  });
  if (watched.ok() && view.committed() == rounds) return {};
  view.finish();
  if (!watched.ok()) return watched;
  if (view.status().empty() || view.status() == "running") {
    return Error{Code::kUnavailable,
                 fmt::format("the coordinator broke off after {} of {} rounds", view.committed(), rounds)};
  }
  return Error{Code::kInternal, fmt::format("the run {} after {} of {} rounds: {}", view.status(), view.committed(),
                                            rounds, view.reason())};
}

}  // namespace fluvial::cli
