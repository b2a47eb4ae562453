// Runs: begun, shown, paused, resumed, stopped.
#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <boost/json.hpp>
#include <utility>

#include "coordinator/model/passes.h"
#include "coordinator/service/admin/resources.h"
#include "coordinator/service/admin/waits.h"
#include "coordinator/service/json.h"
#include "core/aggregate/down.h"
#include "core/aggregate/plan_codec.h"
#include "core/aggregate/plan_notes.h"
#include "core/aggregate/server_optimizer.h"
#include "core/digest/sha256.h"
#include "core/round/sampling.h"
#include "core/store/plan_json.h"
#include "core/store/safetensors.h"

namespace fluvial::coordinator::admin {
namespace {

namespace json = boost::json;

json::object run_object(const store::RunRow& row, RoundId committed) {
  json::object run{{"id", row.id.value()},
                   {"name", row.plan.name},
                   {"status", run_status_name(row.status)},
                   {"reason", row.reason},
                   {"rounds", row.plan.rounds},
                   {"committed", committed.value()},
                   {"codec", row.plan.codec},
                   {"mode", row.plan.mode},
                   {"continues", row.continues.value()},
                   {"keeps_optimizer", row.keeps_optimizer},
                   {"created_at", utc(row.created_at)}};
  if (row.codec_state) run["codec_state"] = vector_object(*row.codec_state);
  return run;
}

// Where the journal does not have the last word: it does not say that a run has paused because of it, and it knows of a
// run's end before the next one can be started.
void add_own_status(const Context& admin, const store::RunRow& row, json::object& run) {
  const ActiveRun* active = admin.root.runs().active();
  if (active == nullptr || active->machine.run() != row.id) return;
  const RunStatus own = active->machine.status();
  if (own != RunStatus::kPaused && (is_over(own) || !is_over(row.status))) return;
  run["status"] = run_status_name(own);
  run["reason"] = own == RunStatus::kPaused ? active->machine.reason() : "";
}

net::Awaitable<Reply> list_runs(Context* admin, Call) {
  using Listed = std::vector<std::pair<store::RunRow, RoundId>>;
  const Result<Listed> listed = co_await admin->runtime.pool.run([&]() -> Result<Listed> {
    Listed runs;
    FLUVIAL_ASSIGN(std::vector<store::RunRow> rows, admin->journal.runs());
    for (store::RunRow& row : rows) {
      FLUVIAL_ASSIGN(const std::optional<store::CommitRow> last, admin->journal.last_commit(row.id));
      runs.emplace_back(std::move(row), last ? last->record.round : RoundId(0));
    }
    return runs;
  });
  if (!listed.ok()) co_return listed.error();
  json::array runs;
  for (const auto& [row, committed] : *listed) {
    json::object run = run_object(row, committed);
    add_own_status(*admin, row, run);
    runs.push_back(std::move(run));
  }
  co_return json::serialize(json::object{{"runs", std::move(runs)}});
}

net::Awaitable<Reply> show_run(Context* admin, Call call) {
  const Result<RunId> run = co_await admin->run_or_latest(call.names[0]);
  if (!run.ok()) co_return run.error();
  store::RunRow row;
  Result<json::object> shown = co_await admin->runtime.pool.run([&]() -> Result<json::object> {
    FLUVIAL_ASSIGN(row, admin->journal.run(*run));
    FLUVIAL_ASSIGN(const std::optional<store::CommitRow> last, admin->journal.last_commit(row.id));
    json::object object = run_object(row, last ? last->record.round : RoundId(0));
    object["plan"] = json::parse(store::plan_as_written(row.plan));
    object["schema"] = json::parse(store::schema_to_json(row.schema));
    return object;
  });
  if (!shown.ok()) co_return shown.error();
  add_own_status(*admin, row, *shown);
  const ActiveRun* active = admin->root.runs().active();
  const bool is_active = active != nullptr && active->machine.run() == *run;
  (*shown)["open"] = is_active ? open_json(*admin, active->machine) : json::value();
  (*shown)["waits"] = is_active ? waits_json(*admin) : json::array();
  co_return json::serialize(*shown);
}

std::uint64_t sites_enrolled(const Federation& book) {
  return static_cast<std::uint64_t>(std::ranges::count_if(book.nodes(), [&](const auto& entry) {
    const NodeEntry& node = entry.second;
    return node.role == Role::kSite && !node.revoked_at && !node.removed_at && !node.quarantined_at;
  }));
}

// The file that the run begins with, if it begins with one; one that was sent is to be removed afterwards.
struct InitialModel {
  std::string path;
  bool was_sent = false;
};
Result<InitialModel> initial_model(Context* admin, const Call& call) {
  FLUVIAL_ASSIGN(const json::object object, parse_object(call.request.body));
  FLUVIAL_ASSIGN(const std::string path, text_of(object, "model", ""));
  FLUVIAL_ASSIGN(const std::string upload, text_of(object, "upload", ""));
  if (upload.empty() && (path.empty() || !call.caller.person)) return InitialModel{path};
  if (!path.empty()) {
    return Error{Code::kInvalidArgument,
                 "model: over the network the coordinator opens no file of its machine: send yours (POST /v1/uploads)"};
  }
  FLUVIAL_ASSIGN(const std::string sent, admin->uploads.take(owner_of(call), upload));
  return InitialModel{sent, true};
}

// The state of the server optimizer at the end of a run, for one that continues it with this plan. On the pool.
Result<std::vector<float>> optimizer_state_of(Context* admin, const store::RunRow& before, const store::RunRow& row) {
  const round::Plan& plan = row.plan;
  const auto no = [&](const std::string& why) {
    return Error{Code::kFailedPrecondition,
                 "the optimizer's state of run " + std::to_string(before.id.value()) + " cannot be kept: " + why};
  };
  const std::string own(round::optimizer_name(before.plan.optimizer.kind));
  const std::string next(round::optimizer_name(plan.optimizer.kind));
  if (own != next) return no("it is that of " + own + ", and the plan's optimizer is " + next);
  const std::size_t vectors = aggregate::state_vectors(plan.optimizer);
  if (vectors == 0) return no(own + " has none");
  // Its bias correction counts the rounds of the run.
  if (plan.optimizer.kind == round::Optimizer::kLamb) return no("lamb begins anew with each run");
  if (plan.optimizer.kind == round::Optimizer::kOnebitAdam && !row.codec_state) {
    return no(
        "onebit_adam goes on behind a warm-up that is over, with codec onebit_adam:freeze=0, and the same block and "
        "chunk_values");
  }
  FLUVIAL_ASSIGN(const std::optional<store::CommitRow> last, admin->journal.last_commit(before.id));
  if (!last && !before.keeps_optimizer) return no("no round of it is committed");
  const std::string reference =
      last ? last->optimizer : store::ModelStore::name_of({before.id, ModelVersion(0)}, store::ModelFile::kOptimizer);
  return admin->models.load_optimizer(reference, vectors * before.schema.value_count());
}

struct Prepared {
  store::RunRow row;
  Buffer model;
  States states;
};

// Of two runs with models of one schema: the state that the codec begins with, as far as it has one that is alike at
// all sites and is that of the run before. Any other codec, or rank, begins as before a first round. On the pool.
Status continue_codec(Context* admin, const store::RunRow& before, const std::optional<store::CommitRow>& last,
                      Prepared& made) {
  const std::optional<round::VectorRef>& left = last ? last->record.codec_state : before.codec_state;
  if (!left) return {};
  FLUVIAL_ASSIGN(const kernels::CodecSpec own, kernels::parse_codec(before.plan.codec));
  FLUVIAL_ASSIGN(const kernels::CodecSpec spec, kernels::parse_codec(made.row.plan.codec));
  if (!goes_on_from(own, spec)) return {};
  const bool by_chunks = spec.kind == kernels::CodecKind::kOnebitAdam;  // as its momentum goes down
  if (by_chunks && before.plan.chunk_values != made.row.plan.chunk_values) return {};
  const std::string reference =
      last ? last->optimizer : store::ModelStore::name_of({before.id, ModelVersion(0)}, store::ModelFile::kOptimizer);
  FLUVIAL_ASSIGN(const Buffer state, admin->models.load_codec_state(reference, left->digest));
  FLUVIAL_ASSIGN(const std::unique_ptr<kernels::Codec> codec, kernels::make_codec(spec));
  FLUVIAL_ASSIGN(NamedVector begins, continued_state(*codec, before.schema, made.row.plan, state.span()));
  made.row.codec_state = begins.ref;
  made.states.codec = std::move(begins.bytes);
  return {};
}

Result<aggregate::Down> checked_down(const round::Plan& plan) {
  Result<aggregate::Down> down = aggregate::parse_down(plan.down);
  if (down.ok()) return down;
  return Error{down.error().code, "down = " + down.error().message};
}

// What a run begins with, as far as it comes from another one; `model` is its own, if it has one. On the pool.
Status continue_run(Context* admin, const json::object& request, Prepared& made, std::optional<store::Model>& model) {
  FLUVIAL_ASSIGN(const std::uint64_t continues, number_of(request, "continue", 0));
  FLUVIAL_ASSIGN(const bool keeps, truth_of(request, "keep_optimizer", false));
  if (keeps && (continues == 0 || model)) {
    return Error{Code::kInvalidArgument,
                 "keep_optimizer: expected with the run to continue, and without a model of another round"};
  }
  if (continues == 0) return {};
  FLUVIAL_ASSIGN(const store::RunRow before, admin->journal.run(RunId(continues)));
  made.row.continues = RunId(continues);
  if (model) return round::check_same_schema(before.schema, model->schema);
  FLUVIAL_ASSIGN(const std::optional<store::CommitRow> last, admin->journal.last_commit(before.id));
  const ModelVersion version(last ? last->record.round.value() : 0);
  FLUVIAL_ASSIGN(model, admin->models.load({before.id, version}, last ? last->master : before.initial_model));
  FLUVIAL_TRY(continue_codec(admin, before, last, made));
  if (!keeps) return {};
  FLUVIAL_ASSIGN(made.states.optimizer, optimizer_state_of(admin, before, made.row));
  made.row.keeps_optimizer = true;
  return {};
}

// A variance that stays as it is has to come from somewhere.
Status check_warm_up(const store::RunRow& row) {
  FLUVIAL_ASSIGN(const kernels::CodecSpec spec, kernels::parse_codec(row.plan.codec));
  const bool has_none = spec.kind == kernels::CodecKind::kOnebitAdam && spec.freeze_rounds == 0;
  if (!has_none || (row.codec_state && row.keeps_optimizer)) return {};
  return Error{Code::kInvalidArgument, "codec " + row.plan.codec +
                                           " has no warm-up: expected to continue a run whose own is over, with "
                                           "keep_optimizer"};
}

net::Awaitable<Reply> start(Context* admin, Call call) {
  const Result<InitialModel> initial = initial_model(admin, call);
  if (!initial.ok()) co_return initial.error();
  const std::uint64_t enrolled = sites_enrolled(admin->book());
  Result<Prepared> prepared = co_await admin->runtime.pool.run([&]() -> Result<Prepared> {
    FLUVIAL_ASSIGN(const json::object object, parse_object(call.request.body));
    if (!object.contains("plan")) return Error{Code::kInvalidArgument, "plan: expected a plan"};
    Prepared made;
    FLUVIAL_ASSIGN(made.row.plan, store::plan_from_json(json::serialize(object.at("plan"))));
    FLUVIAL_ASSIGN(made.row.plan.codec,
                   aggregate::check_plan_codec(made.row.plan.codec));  // one text for one codec, everywhere
    FLUVIAL_TRY(aggregate::check_codec_fits(made.row.plan));           // and the model, once it is read
    FLUVIAL_ASSIGN(const aggregate::Down down, checked_down(made.row.plan));
    made.row.plan.down = aggregate::to_string(down);
    if (!object.at("plan").as_object().contains("participants.min")) {
      made.row.plan.participants_min = round::participants_min_for(enrolled, made.row.plan.quorum);
    }
    std::optional<store::Model> model;
    if (!initial->path.empty()) {
      FLUVIAL_ASSIGN(model, store::read_model(admin->runtime.files, initial->path));
      FLUVIAL_TRY(store::check_header_fits(model->schema));
    }
    FLUVIAL_TRY(continue_run(admin, object, made, model));
    FLUVIAL_TRY(check_warm_up(made.row));
    if (!model) return Error{Code::kInvalidArgument, "model: expected a safetensors file, or a run to continue"};
    FLUVIAL_TRY(aggregate::check_codec_fits(made.row.plan, model->schema));
    made.row.schema = model->schema;
    made.row.initial_model = store::model_digest(model->bytes.span());
    made.model = std::move(model->bytes);
    return made;
  });
  if (initial->was_sent) {
    const Status removed = co_await admin->runtime.pool.run([&] { return admin->runtime.files.remove(initial->path); });
    if (!removed.ok()) {
      admin->runtime.log.warn("a model that was sent could not be removed; the next start does",
                              {{"path", initial->path}, {"reason", removed.error().to_string()}});
    }
  }
  if (!prepared.ok()) co_return prepared.error();
  const store::RunRow& row = prepared->row;
  std::string plan =
      "plan " + row.plan.name + ", sha256 " + to_hex(sha256(as_byte_span(store::plan_to_json(row.plan))));
  if (row.keeps_optimizer) plan += ", with the optimizer's state of run " + std::to_string(row.continues.value());
  if (row.codec_state) plan += ", with the codec's state of run " + std::to_string(row.continues.value());
  json::array notes;
  for (const std::string& note : aggregate::plan_notes(row.plan)) notes.emplace_back(note);
  for (const std::string& note : aggregate::model_notes(row.plan, row.schema)) notes.emplace_back(note);
  const Result<RunId> run = co_await admin->root.runs().start(std::move(prepared->row), std::move(prepared->model),
                                                              std::move(prepared->states));
  if (!run.ok()) co_return run.error();
  store::AuditEntry entry = call.entry(store::AuditKind::kRunStarted);
  entry.run = *run;
  entry.detail = std::move(plan);
  const Status recorded = co_await admin->record(std::move(entry));
  if (!recorded.ok()) co_return recorded.error();
  co_return json::serialize(json::object{{"run", run->value()}, {"notes", std::move(notes)}});
}

// With `reason` in the body, which may be empty altogether.
Result<std::string> reason_of(const std::string& body) {
  std::string reason(kByPerson);
  if (body.empty()) return reason;
  FLUVIAL_ASSIGN(const json::object object, parse_object(body));
  FLUVIAL_ASSIGN(const std::string given, text_of(object, "reason", ""));
  const bool is_clean = std::ranges::none_of(given, [](char c) { return static_cast<unsigned char>(c) < ' '; });
  if (given.size() > kGivenReasonBytesMax || !is_clean) {
    return Error{Code::kInvalidArgument,
                 "reason: expected at most " + std::to_string(kGivenReasonBytesMax) + " bytes in one line"};
  }
  return given.empty() ? reason : reason + ": " + given;
}

net::Awaitable<Reply> command(Context* admin, Call call) {
  const Result<RunId> run = co_await admin->run_or_latest(call.names[0]);
  if (!run.ok()) co_return run.error();
  const Result<std::string> reason = reason_of(call.request.body);
  if (!reason.ok()) co_return reason.error();
  const std::string& verb = call.names[1];
  Status done = Error{Code::kNotFound, "a run can be told to pause, resume or stop"};
  if (verb == "pause") done = co_await admin->root.runs().pause(*run, *reason);
  if (verb == "resume") done = co_await admin->root.runs().resume(*run);
  if (verb == "stop") done = co_await admin->root.runs().stop_run(*run, *reason);
  if (!done.ok()) co_return done.error();
  store::AuditEntry entry = call.entry(verb == "pause"    ? store::AuditKind::kRunPaused
                                       : verb == "resume" ? store::AuditKind::kRunResumed
                                                          : store::AuditKind::kRunStopped);
  entry.run = *run;
  if (*reason != kByPerson) entry.detail = *reason;
  const Status recorded = co_await admin->record(std::move(entry));
  if (!recorded.ok()) co_return recorded.error();
  const ActiveRun* active = admin->root.runs().active();
  const bool is_pausing = active != nullptr && active->machine.run() == *run && active->machine.pausing();
  co_return json::serialize(json::object{{"run", run->value()}, {"command", verb}, {"pausing", is_pausing}});
}

}  // namespace

void add_runs(Router& router) {
  router.get("/v1/runs", list_runs);
  router.post("/v1/runs", start);
  router.get("/v1/runs/{run}", show_run);
  router.post("/v1/runs/{run}/{command}", command);
}

}  // namespace fluvial::coordinator::admin
