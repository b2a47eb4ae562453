// Plans: what a plan file says, read as `fluvial run start` reads it. Nothing is changed by that.
#include <boost/asio/awaitable.hpp>
#include <boost/json.hpp>
#include <utility>

#include "coordinator/service/admin/resources.h"
#include "core/aggregate/plan_forms.h"
#include "core/aggregate/plan_notes.h"
#include "core/base/printable.h"
#include "core/config/plan_file.h"
#include "core/store/plan_json.h"

namespace fluvial::coordinator::admin {
namespace {

namespace json = boost::json;

constexpr std::size_t kFileNameBytesMax = 255;

// The text of a plan file, and the name that errors call it by.
Result<config::PlanFile> plan_file_in(const std::string& body) {
  FLUVIAL_ASSIGN(const json::object object, parse_object(body));
  FLUVIAL_ASSIGN(const std::string toml, text_of(object, "toml", ""));
  FLUVIAL_ASSIGN(const std::string file, text_of(object, "file", "plan.toml"));
  if (file.empty() || file.size() > kFileNameBytesMax || file.find('/') != std::string::npos || !is_printable(file)) {
    return Error{Code::kInvalidArgument, "file: expected the name of the plan's file, without its folder"};
  }
  return config::parse_plan(toml, file, aggregate::check_plan_forms);
}

net::Awaitable<Reply> check_plan_text(Context* admin, Call call) {
  co_return co_await admin->runtime.pool.run([&]() -> Reply {
    FLUVIAL_ASSIGN(const config::PlanFile file, plan_file_in(call.request.body));
    json::object plan = json::parse(store::plan_as_written(file.plan)).as_object();
    if (!file.names_participants_min) plan.erase("participants.min");  // it depends on who is enrolled at the start
    json::array notes;
    for (const std::string& note : aggregate::plan_notes(file.plan)) notes.emplace_back(note);
    return json::serialize(json::object{{"plan", std::move(plan)}, {"model", file.model}, {"notes", std::move(notes)}});
  });
}

}  // namespace

void add_plans(Router& router) { router.post_own("/v1/plans/check", check_plan_text); }

}  // namespace fluvial::coordinator::admin
