// Where committed models are.
#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <boost/json.hpp>
#include <span>

#include "coordinator/service/admin/resources.h"

namespace fluvial::coordinator::admin {
namespace {

namespace json = boost::json;

constexpr std::uint64_t kPartBytesMax = 1 << 20;  // an answer has ten seconds, on a slow line too

struct Kept {
  std::string path;
  Digest digest;
};

// The file of a round's model, 0 being the initial one. On the pool.
Result<Kept> kept_model(Context* admin, RunId run, const std::string& round) {
  Result<std::uint64_t> number = std::uint64_t{0};
  if (round != "latest") number = to_number("round", round);
  if (!number.ok()) return number.error();
  FLUVIAL_ASSIGN(const store::RunRow row, admin->journal.run(run));
  FLUVIAL_ASSIGN(const std::optional<store::CommitRow> last, admin->journal.last_commit(run));
  const RoundId wanted = round == "latest" ? (last ? last->record.round : RoundId(0)) : RoundId(*number);
  Digest digest = row.initial_model;
  if (wanted != RoundId(0)) {
    FLUVIAL_ASSIGN(const store::CommitRow commit, admin->journal.commit_of(run, wanted));
    digest = commit.record.model.digest;
  }
  const std::string path = admin->models.path_of({run, ModelVersion(wanted.value())});
  FLUVIAL_ASSIGN(const bool there, admin->runtime.files.exists(path));
  if (!there) {
    return Error{Code::kNotFound, "the model of round " + std::to_string(wanted.value()) +
                                      " is no longer kept (the plan's models_kept)"};
  }
  return Kept{path, digest};
}

net::Awaitable<Reply> find(Context* admin, Call call) {
  const Result<RunId> run = co_await admin->run_or_latest(call.names[0]);
  if (!run.ok()) co_return run.error();
  Result<std::string> text = co_await admin->runtime.pool.run([&]() -> Reply {
    FLUVIAL_ASSIGN(const Kept kept, kept_model(admin, *run, call.names[1]));
    return json::serialize(json::object{{"path", kept.path}, {"sha256", to_hex(kept.digest)}});
  });
  co_return text;
}

// A part of the file, for whoever is on another machine. It gives the model itself away, so it is not for readers: a
// POST, though it changes nothing.
net::Awaitable<net::HttpResponse> read(Context* admin, Call call) {
  const Result<RunId> run = co_await admin->run_or_latest(call.names[0]);
  if (!run.ok()) co_return net::HttpResponse::from_error(run.error());
  Result<std::string> part = co_await admin->runtime.pool.run([&]() -> Result<std::string> {
    FLUVIAL_ASSIGN(const json::object object, parse_object(call.request.body));
    FLUVIAL_ASSIGN(const std::uint64_t from, number_of(object, "from", 0));
    FLUVIAL_ASSIGN(const Kept kept, kept_model(admin, *run, call.names[1]));
    FLUVIAL_ASSIGN(const std::unique_ptr<store::File> file,
                   admin->runtime.files.open(kept.path, store::OpenMode::kRead));
    FLUVIAL_ASSIGN(const std::uint64_t size, file->size());
    std::string bytes(std::min(kPartBytesMax, size - std::min(from, size)), '\0');
    FLUVIAL_TRY(store::read_exactly(*file, from, std::as_writable_bytes(std::span(bytes)), kept.path));
    return bytes;
  });
  if (!part.ok()) co_return net::HttpResponse::from_error(part.error());
  net::HttpResponse response = net::HttpResponse::text(200, std::move(*part));
  response.content_type = "application/octet-stream";
  co_return response;
}

}  // namespace

void add_models(Router& router) {
  router.get("/v1/models/{run}/{round}", find);
  router.post("/v1/models/{run}/{round}/read", read);
}

}  // namespace fluvial::coordinator::admin
