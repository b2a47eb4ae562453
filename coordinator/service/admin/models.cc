// Where committed models are.
#include <boost/asio/awaitable.hpp>
#include <boost/json.hpp>

#include "coordinator/service/admin/resources.h"

namespace fluvial::coordinator::admin {
namespace {

namespace json = boost::json;

net::Awaitable<Reply> find(Context* admin, Call call) {
  const Result<RunId> run = co_await admin->run_or_latest(call.names[0]);
  if (!run.ok()) co_return run.error();
  const std::string& round = call.names[1];
  Result<std::uint64_t> number = std::uint64_t{0};
  if (round != "latest") number = to_number("round", round);
  if (!number.ok()) co_return number.error();
  Result<std::string> text = co_await admin->runtime.pool.run([&]() -> Reply {
    FLUVIAL_ASSIGN(const store::RunRow row, admin->journal.run(*run));
    FLUVIAL_ASSIGN(const std::optional<store::CommitRow> last, admin->journal.last_commit(*run));
    const RoundId wanted = round == "latest" ? (last ? last->record.round : RoundId(0)) : RoundId(*number);
    Digest digest = row.initial_model;
    if (wanted != RoundId(0)) {
      FLUVIAL_ASSIGN(const store::CommitRow commit, admin->journal.commit_of(*run, wanted));
      digest = commit.record.model.digest;
    }
    const std::string path = admin->models.path_of({*run, ModelVersion(wanted.value())});
    FLUVIAL_ASSIGN(const bool there, admin->runtime.files.exists(path));
    if (!there) {
      return Error{Code::kNotFound, "the model of round " + std::to_string(wanted.value()) +
                                        " is no longer kept (the plan's models_kept)"};
    }
    return json::serialize(json::object{{"path", path}, {"sha256", to_hex(digest)}});
  });
  co_return text;
}

}  // namespace

void add_models(Router& router) { router.get("/v1/models/{run}/{round}", find); }

}  // namespace fluvial::coordinator::admin
