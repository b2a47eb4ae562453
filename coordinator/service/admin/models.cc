// Committed models: where they are, and which of them stay.
#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <boost/json.hpp>
#include <span>
#include <utility>

#include "coordinator/service/admin/resources.h"
#include "core/store/audit_log.h"

namespace fluvial::coordinator::admin {
namespace {

namespace json = boost::json;

constexpr std::uint64_t kPartBytesMax = 1 << 20;  // an answer has ten seconds, on a slow line too

ModelKeeper& keeper(Context* admin) { return admin->root.runs().steps().keeper(); }

net::Awaitable<Reply> find(Context* admin, Call call) {
  const Result<RunId> run = co_await admin->run_or_latest(call.names[0]);
  if (!run.ok()) co_return run.error();
  Result<std::string> text = co_await admin->runtime.pool.run([&]() -> Reply {
    FLUVIAL_ASSIGN(const ModelKeeper::Kept kept, keeper(admin).find(*run, call.names[1]));
    return json::serialize(
        json::object{{"path", kept.path}, {"sha256", to_hex(kept.digest)}, {"round", kept.round.value()}});
  });
  co_return text;
}

Result<std::uint64_t> place_in(const Call& call) {
  FLUVIAL_ASSIGN(const json::object object, parse_object(call.request.body));
  return number_of(object, "from", 0);
}

// Before the first part of a model is given to somebody: who takes it away, from where.
net::Awaitable<Status> note_read(Context* admin, const Call& call, RunId run, ModelKeeper::Kept kept) {
  store::AuditEntry entry = call.entry(store::AuditKind::kModelRead);
  const std::string person = call.caller.person
                                 ? "operator " + std::to_string(call.caller.person->node.value())
                                 : "user " + std::to_string(call.caller.user ? call.caller.user->uid : 0);
  const round::ModelKey model{run, ModelVersion(kept.round.value())};
  FLUVIAL_CO_ASSIGN(const bool first, admin->model_reads.asked(person, model, admin->runtime.clock.now()));
  if (!first) co_return Status{};
  entry.run = run;
  entry.detail = "round " + std::to_string(kept.round.value()) + ", sha256 " + to_hex(kept.digest);
  const WallTime when = admin->runtime.clock.wall_now();
  const Status written =
      co_await admin->runtime.pool.run([&] { return store::AuditLog(admin->journal).append(entry, when); });
  if (written.ok()) {
    admin->model_reads.written(person, model, admin->runtime.clock.now());
    co_return written;
  }
  co_return Error{written.error().code, "not given, the audit log does not take it: " + written.error().message};
}

// A part of the file, for whoever is on another machine. It gives the model itself away, so it is not for readers: a
// POST, though it changes nothing.
net::Awaitable<net::HttpResponse> read(Context* admin, Call call) {
  const Result<RunId> run = co_await admin->run_or_latest(call.names[0]);
  if (!run.ok()) co_return net::HttpResponse::from_error(run.error());
  const Result<std::uint64_t> from = place_in(call);
  if (!from.ok()) co_return net::HttpResponse::from_error(from.error());
  const Result<ModelKeeper::Kept> kept =
      co_await admin->runtime.pool.run([&] { return keeper(admin).find(*run, call.names[1]); });
  if (!kept.ok()) co_return net::HttpResponse::from_error(kept.error());
  const Status noted = co_await note_read(admin, call, *run, *kept);
  if (!noted.ok()) co_return net::HttpResponse::from_error(noted.error());
  Result<std::string> part = co_await admin->runtime.pool.run([&]() -> Result<std::string> {
    FLUVIAL_ASSIGN(const std::unique_ptr<store::File> file,
                   admin->runtime.files.open(kept->path, store::OpenMode::kRead));
    FLUVIAL_ASSIGN(const std::uint64_t size, file->size());
    std::string bytes(std::min(kPartBytesMax, size - std::min(*from, size)), '\0');
    FLUVIAL_TRY(store::read_exactly(*file, *from, std::as_writable_bytes(std::span(bytes)), kept->path));
    return bytes;
  });
  if (!part.ok()) co_return net::HttpResponse::from_error(part.error());
  net::HttpResponse response = net::HttpResponse::text(200, std::move(*part));
  response.content_type = "application/octet-stream";
  co_return response;
}

net::Awaitable<Reply> list_models(Context* admin, Call call) {
  const Result<RunId> run = co_await admin->run_or_latest(call.names[0]);
  if (!run.ok()) co_return run.error();
  Result<std::string> text = co_await admin->runtime.pool.run([&]() -> Reply {
    FLUVIAL_ASSIGN(const store::RunRow row, admin->journal.run(*run));
    FLUVIAL_ASSIGN(const std::vector<ModelKeeper::Listed> listed, keeper(admin).list(*run));
    json::array models;
    for (const ModelKeeper::Listed& one : listed) {
      models.push_back(json::object{{"round", one.round.value()},
                                    {"labels", json::array(one.labels.begin(), one.labels.end())},
                                    {"best", one.best ? json::value(*one.best) : json::value()}});
    }
    return json::serialize(
        json::object{{"run", run->value()}, {"kept_best", row.plan.models_kept_best}, {"models", std::move(models)}});
  });
  co_return text;
}

Result<std::string> label_in(const Call& call) {
  FLUVIAL_ASSIGN(const json::object object, parse_object(call.request.body));
  FLUVIAL_ASSIGN(const std::string name, text_of(object, "name", ""));
  FLUVIAL_TRY(store::check_label(name));
  return name;
}

store::AuditEntry entry_of(const Call& call, store::AuditKind kind, RunId run, std::string detail) {
  store::AuditEntry entry = call.entry(kind);
  entry.run = run;
  entry.detail = std::move(detail);
  return entry;
}

Reply done(RunId run) { return json::serialize(json::object{{"run", run.value()}}); }

net::Awaitable<Reply> label(Context* admin, Call call) {
  const Result<RunId> run = co_await admin->run_or_latest(call.names[0]);
  if (!run.ok()) co_return run.error();
  const Result<std::string> name = label_in(call);
  if (!name.ok()) co_return name.error();
  const WallTime when = admin->runtime.clock.wall_now();
  Reply labelled = co_await admin->runtime.pool.run([&]() -> Reply {
    FLUVIAL_ASSIGN(const ModelKeeper::Kept found, keeper(admin).find(*run, call.names[1]));
    const store::AuditEntry entry = entry_of(call, store::AuditKind::kModelLabelled, *run,
                                             *name + ", round " + std::to_string(found.round.value()));
    FLUVIAL_TRY(store::AuditLog(admin->journal).with(entry, when, [&] {
      return keeper(admin).label(*run, found.round, *name, when);
    }));
    return done(*run);
  });
  co_return labelled;
}

net::Awaitable<Reply> remove_label(Context* admin, Call call) {
  const Result<RunId> run = co_await admin->run_or_latest(call.names[0]);
  if (!run.ok()) co_return run.error();
  const Result<std::string> name = label_in(call);
  if (!name.ok()) co_return name.error();
  const store::AuditEntry entry = entry_of(call, store::AuditKind::kModelUnlabelled, *run, *name);
  const WallTime when = admin->runtime.clock.wall_now();
  Reply removed = co_await admin->runtime.pool.run([&]() -> Reply {
    FLUVIAL_TRY(
        store::AuditLog(admin->journal).with(entry, when, [&] { return keeper(admin).remove_label(*run, *name); }));
    return done(*run);
  });
  co_return removed;
}

}  // namespace

void add_models(Router& router) {
  router.get("/v1/models/{run}", list_models);
  router.get("/v1/models/{run}/{round}", find);
  router.post("/v1/models/{run}/unlabel", remove_label);
  router.post("/v1/models/{run}/{round}/label", label);
  router.post("/v1/models/{run}/{round}/read", read);
}

}  // namespace fluvial::coordinator::admin
