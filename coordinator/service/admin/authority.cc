// The certificate authority, and the way from one to the next.
#include <boost/asio/awaitable.hpp>
#include <boost/json.hpp>
#include <functional>
#include <utility>

#include "coordinator/service/admin/resources.h"
#include "coordinator/service/json.h"

namespace fluvial::coordinator::admin {
namespace {

namespace json = boost::json;

json::array names_json(const std::vector<std::string>& names) {
  json::array all;
  for (const std::string& name : names) all.push_back(json::string(name));
  return all;
}

std::string view_json(const AuthorityView& view) {
  json::array authorities;
  for (const AuthorityView::One& one : view.authorities) {
    authorities.push_back(json::object{{"state", state_name(one.state)},
                                       {"since", utc(one.since)},
                                       {"pin", one.pin},
                                       {"name", one.name},
                                       {"below_root", one.below_root},
                                       {"ends_at", utc(one.ends_at)},
                                       {"root_ends_at", utc(one.root_ends_at)}});
  }
  return json::serialize(json::object{{"phase", phase_name(view.phase)},
                                      {"trust", view.trust},
                                      {"authorities", std::move(authorities)},
                                      {"without", names_json(view.without)},
                                      {"relying", names_json(view.relying)},
                                      {"open_tokens", view.open_tokens}});
}

net::Awaitable<Reply> answer_view(Context* admin) {
  const WallTime now = admin->runtime.clock.wall_now();
  const Result<AuthorityView> view = co_await admin->runtime.pool.run([&] { return admin->authorities->view(now); });
  if (!view.ok()) co_return view.error();
  co_return view_json(*view);
}

net::Awaitable<Reply> show_authority(Context* admin, Call) { return answer_view(admin); }

// Takes the step, lets everything follow that is made of the authority, and says so in the log.
net::Awaitable<Reply> take(Context* admin, const char* said, std::function<Status(WallTime)> step) {
  const WallTime now = admin->runtime.clock.wall_now();
  const Status taken = co_await admin->runtime.pool.run([&] { return step(now); });
  if (!taken.ok()) co_return taken.error();
  const auto current = admin->authorities->live()->current();
  admin->facts.pin = current->pin();
  const Status followed = admin->authority_changed(now);
  if (!followed.ok()) {
    admin->runtime.log.error("the coordinator's own certificate did not follow the authority; start it again",
                             {{"reason", followed.error().to_string()}});
  }
  admin->runtime.log.info(said, {{"pin", current->pin()}, {"trust", current->trust()}});
  co_return co_await answer_view(admin);
}

Result<bool> is_forced(const Call& call) {
  if (call.request.body.empty()) return false;
  FLUVIAL_ASSIGN(const json::object object, parse_object(call.request.body));
  return truth_of(object, "force", false);
}

// None: the coordinator makes the next one itself.
Result<std::optional<identity::IssuerFiles>> files_of(const Call& call) {
  if (call.request.body.empty()) return std::optional<identity::IssuerFiles>();
  FLUVIAL_ASSIGN(const json::object object, parse_object(call.request.body));
  identity::IssuerFiles files;
  FLUVIAL_ASSIGN(files.certificate, text_of(object, "certificate", ""));
  FLUVIAL_ASSIGN(files.key, text_of(object, "key", ""));
  FLUVIAL_ASSIGN(files.root, text_of(object, "root", ""));
  const int given = !files.certificate.empty() + !files.key.empty() + !files.root.empty();
  if (given == 0) return std::optional<identity::IssuerFiles>();
  if (call.caller.person) {
    return Error{
        Code::kPermissionDenied,
        "certificate, key and root: over the network the coordinator opens no file of its machine: begin there "
        "(fluvial authority rollover begin), or name none"};
  }
  if (given == 3) return std::optional(std::move(files));
  return Error{Code::kInvalidArgument, "certificate, key and root belong together: give all three, or none"};
}

net::Awaitable<Reply> begin_rollover(Context* admin, Call call) {
  const auto files = files_of(call);
  if (!files.ok()) co_return files.error();
  const store::AuditEntry entry = call.entry(store::AuditKind::kRolloverBegun);
  co_return co_await take(
      admin, "a rollover of the certificate authority has begun",
      [admin, files = *files, entry](WallTime now) { return admin->authorities->begin(files, entry, now); });
}

net::Awaitable<Reply> undo(Context* admin, Call call) {
  const store::AuditEntry entry = call.entry(store::AuditKind::kRolloverUndone);
  co_return co_await take(admin, "the rollover of the certificate authority is taken back",
                          [admin, entry](WallTime now) { return admin->authorities->undo(entry, now); });
}

net::Awaitable<Reply> issue(Context* admin, Call call) {
  const Result<bool> force = is_forced(call);
  if (!force.ok()) co_return force.error();
  const store::AuditEntry entry = call.entry(store::AuditKind::kRolloverIssues);
  co_return co_await take(admin, "the next certificate authority issues", [admin, force = *force, entry](WallTime now) {
    return admin->authorities->issue(force, entry, now);
  });
}

net::Awaitable<Reply> end(Context* admin, Call call) {
  const Result<bool> force = is_forced(call);
  if (!force.ok()) co_return force.error();
  const store::AuditEntry entry = call.entry(store::AuditKind::kRolloverEnded);
  co_return co_await take(
      admin, "the certificate authority before is trusted no more",
      [admin, force = *force, entry](WallTime now) { return admin->authorities->end(force, entry, now); });
}

}  // namespace

void add_authority(Router& router) {
  router.get("/v1/authority", show_authority);
  router.post("/v1/authority/rollover/begin", begin_rollover);
  router.post("/v1/authority/rollover/undo", undo);
  router.post("/v1/authority/rollover/issue", issue);
  router.post("/v1/authority/rollover/end", end);
}

}  // namespace fluvial::coordinator::admin
