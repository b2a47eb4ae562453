// Runs: begun, shown, paused, resumed, stopped.
#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <boost/json.hpp>
#include <utility>

#include "coordinator/logic/problems.h"
#include "coordinator/model/passes.h"
#include "coordinator/service/admin/resources.h"
#include "coordinator/service/admin/waits.h"
#include "coordinator/service/json.h"
#include "core/aggregate/down.h"
#include "core/aggregate/plan_codec.h"
#include "core/aggregate/plan_notes.h"
#include "core/aggregate/server_optimizer.h"
#include "core/base/printable.h"
#include "core/digest/sha256.h"
#include "core/round/sampling.h"
#include "core/store/model_source.h"
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

// What a run begins with: a file, or the model of another run.
struct Source {
  std::string path;
  std::string upload;            // that it is; empty: none
  RunId run;                     // 0: of none
  bool continues = false;        // that run, or begins with its model alone
  std::string round;             // of that run, as ModelKeeper::find() takes it; empty: with `path`
  bool keeps_optimizer = false;  // and goes on with the state that the optimizer had after that round
};

// A number, or a text.
Result<std::string> round_in(const json::object& request) {
  const json::value* value = request.if_contains("round");
  if (value != nullptr && value->is_number()) return json::serialize(*value);
  return text_of(request, "round", "");
}

Result<Source> source_of(Context* admin, const Call& call, const json::object& request) {
  Source source;
  FLUVIAL_ASSIGN(const std::uint64_t continues, number_of(request, "continue", 0));
  FLUVIAL_ASSIGN(const std::uint64_t model_of, number_of(request, "model_of", 0));
  FLUVIAL_ASSIGN(source.round, round_in(request));
  FLUVIAL_ASSIGN(source.keeps_optimizer, truth_of(request, "keep_optimizer", false));
  FLUVIAL_ASSIGN(source.path, text_of(request, "model", ""));
  FLUVIAL_ASSIGN(const std::string upload, text_of(request, "upload", ""));
  source.continues = continues != 0;
  source.run = RunId(source.continues ? continues : model_of);
  const bool has_model = !source.path.empty() || !upload.empty();
  const auto wrong = [](const char* what) { return Error{Code::kInvalidArgument, what}; };
  if (model_of != 0 && (source.continues || has_model)) {
    return wrong("model_of: expected without a run to continue, and without another model");
  }
  if (!source.round.empty() && (source.run == RunId() || has_model)) {
    return wrong("round: expected with the run whose round it is, and without another model");
  }
  if (source.keeps_optimizer && (!source.continues || has_model)) {
    return wrong("keep_optimizer: expected with the run to continue, and without another model (with round: of that)");
  }
  if (source.round.empty() && !has_model) source.round = "latest";
  if (upload.empty() && (source.path.empty() || !call.caller.person)) return source;
  if (!source.path.empty()) {
    return wrong("model: over the network the coordinator opens no file of its machine: send yours (POST /v1/uploads)");
  }
  FLUVIAL_ASSIGN(source.path, admin->uploads.use(owner_of(call), upload));
  source.upload = upload;
  return source;
}

// A run that another begins with, as it was after a round.
struct Before {
  store::RunRow row;
  RoundId round;
  std::optional<store::CommitRow> commit = {};  // none: round 0, or one that only its label has kept from being pruned

  std::string states() const {  // where they are
    return commit ? commit->optimizer
                  : store::ModelStore::name_of({row.id, ModelVersion(round.value())}, store::ModelFile::kOptimizer);
  }
};

// The state of the server optimizer, for a run that goes on with it by this plan. On the pool.
Result<std::vector<float>> optimizer_state_of(Context* admin, const Before& before, const store::RunRow& row) {
  const round::Plan& plan = row.plan;
  const auto no = [&](const std::string& why) {
    return Error{Code::kFailedPrecondition,
                 "the optimizer's state of run " + std::to_string(before.row.id.value()) + " cannot be kept: " + why};
  };
  const std::string own(round::optimizer_name(before.row.plan.optimizer.kind));
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
  if (before.round == RoundId(0) && !before.row.keeps_optimizer) return no("no round of it is committed at round 0");
  Result<std::vector<float>> state =
      admin->models.load_optimizer(before.states(), vectors * before.row.schema.value_count());
  if (!state.ok() && state.error().code == Code::kNotFound) {
    return no("that of round " + std::to_string(before.round.value()) +
              " is not there (a backup has that of the last round of a run that goes on): " + state.error().message);
  }
  return state;
}

// Of two runs with models of one schema: the state that the codec begins with, as far as it has one that is alike at
// all sites and is that of the run before. Any other codec, or rank, begins as before a first round. On the pool.
Status continue_codec(Context* admin, const Before& before, NewRun& made) {
  const std::optional<round::VectorRef> left = before.commit                ? before.commit->record.codec_state
                                               : before.round == RoundId(0) ? before.row.codec_state
                                                                            : std::nullopt;
  if (!left) return {};
  FLUVIAL_ASSIGN(const kernels::CodecSpec own, kernels::parse_codec(before.row.plan.codec));
  FLUVIAL_ASSIGN(const kernels::CodecSpec spec, kernels::parse_codec(made.row.plan.codec));
  if (!goes_on_from(own, spec)) return {};
  const bool by_chunks = spec.kind == kernels::CodecKind::kOnebitAdam;  // as its momentum goes down
  if (by_chunks && before.row.plan.chunk_values != made.row.plan.chunk_values) return {};
  FLUVIAL_ASSIGN(const Buffer state, admin->models.load_codec_state(before.states(), left->digest));
  FLUVIAL_ASSIGN(const std::unique_ptr<kernels::Codec> codec, kernels::make_codec(spec));
  FLUVIAL_ASSIGN(NamedVector begins, continued_state(*codec, before.row.schema, made.row.plan, state.span()));
  made.row.codec_state = begins.ref;
  made.states.codec = std::move(begins.bytes);
  return {};
}

Result<aggregate::Down> checked_down(const round::Plan& plan) {
  Result<aggregate::Down> down = aggregate::parse_down(plan.down);
  if (down.ok()) return down;
  return Error{down.error().code, "down = " + down.error().message};
}

// What a run begins with, as far as it comes from another one; `model` is its own, if it has one. Gives the round of
// the other. On the pool.
Result<RoundId> begin_from(Context* admin, const Source& source, NewRun& made, std::optional<store::Model>& model) {
  Before before;
  FLUVIAL_ASSIGN(before.row, admin->journal.run(source.run));
  if (source.continues) made.row.continues = source.run;
  if (model) {
    FLUVIAL_TRY(round::check_same_schema(before.row.schema, model->schema));
    return RoundId(0);
  }
  FLUVIAL_ASSIGN(const ModelKeeper::Kept kept, admin->root.runs().steps().keeper().find(source.run, source.round));
  FLUVIAL_ASSIGN(model, admin->models.load({source.run, ModelVersion(kept.round.value())}, kept.digest));
  before.round = kept.round;
  if (!source.continues) return kept.round;
  if (kept.round != RoundId(0)) {
    Result<store::CommitRow> commit = admin->journal.commit_of(source.run, kept.round);
    if (commit.ok()) before.commit = std::move(*commit);
    if (!commit.ok() && commit.error().code != Code::kNotFound) return commit.error();
  }
  FLUVIAL_TRY(continue_codec(admin, before, made));
  if (!source.keeps_optimizer) return kept.round;
  FLUVIAL_ASSIGN(made.states.optimizer, optimizer_state_of(admin, before, made.row));
  made.row.keeps_optimizer = true;
  return kept.round;
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

Result<round::Plan> plan_in(const json::object& request, std::uint64_t enrolled) {
  if (!request.contains("plan")) return Error{Code::kInvalidArgument, "plan: expected a plan"};
  FLUVIAL_ASSIGN(round::Plan plan, store::plan_from_json(json::serialize(request.at("plan"))));
  FLUVIAL_ASSIGN(plan.codec, aggregate::check_plan_codec(plan.codec));  // one text for one codec, everywhere
  FLUVIAL_TRY(aggregate::check_codec_fits(plan));                       // and the model, once it is read
  FLUVIAL_ASSIGN(const aggregate::Down down, checked_down(plan));
  plan.down = aggregate::to_string(down);
  if (!request.at("plan").as_object().contains("participants.min")) {
    plan.participants_min = round::participants_min_for(enrolled, plan.quorum);
  }
  return plan;
}

// What is said of a run that began.
struct Begun {
  RoundId round;  // of the run that its model is of
  std::string detail;
  json::array notes = {};
};

// On the pool, while no run is active.
Result<NewRun> prepare(Context* admin, const Source& source, const round::Plan& plan, Begun& begun) {
  NewRun made{.row = {.plan = plan}, .model = {}};
  std::optional<store::Model> model;
  if (!source.path.empty()) {
    FLUVIAL_ASSIGN(model, store::read_initial_model(admin->runtime.files, source.path));
    FLUVIAL_TRY(store::check_header_fits(model->schema));
  }
  if (source.run != RunId()) {
    FLUVIAL_ASSIGN(begun.round, begin_from(admin, source, made, model));
  }
  FLUVIAL_TRY(check_warm_up(made.row));
  if (!model) return Error{Code::kInvalidArgument, "model: expected a safetensors file, or a run to continue"};
  FLUVIAL_TRY(aggregate::check_codec_fits(plan, model->schema));
  made.row.schema = model->schema;
  made.row.initial_model = store::model_digest(model->bytes.span());
  made.model = std::move(model->bytes);
  const std::string of_run = " of run " + std::to_string(source.run.value());
  begun.detail = "plan " + plan.name + ", sha256 " + to_hex(sha256(as_byte_span(store::plan_to_json(plan))));
  if (source.path.empty()) begun.detail += ", from round " + std::to_string(begun.round.value()) + of_run;
  if (made.row.keeps_optimizer) begun.detail += ", with the optimizer's state" + of_run;
  if (made.row.codec_state) begun.detail += ", with the codec's state" + of_run;
  for (const std::string& note : aggregate::plan_notes(plan)) begun.notes.emplace_back(note);
  for (const std::string& note : aggregate::model_notes(plan, made.row.schema)) begun.notes.emplace_back(note);
  return made;
}

net::Awaitable<Reply> start(Context* admin, Call call) {
  const Result<json::object> request = parse_object(call.request.body);
  if (!request.ok()) co_return request.error();
  const Result<Source> source = source_of(admin, call, *request);
  if (!source.ok()) co_return source.error();
  const std::uint64_t enrolled = sites_enrolled(admin->book());
  Begun begun;
  Result<round::Plan> plan = co_await admin->runtime.pool.run([&] { return plan_in(*request, enrolled); });
  Result<RunId> run = Error{Code::kInternal, "the run was not begun"};
  if (plan.ok()) run = co_await admin->root.runs().start([&] { return prepare(admin, *source, *plan, begun); });
  if (!source->upload.empty()) co_await end_use(admin, source->upload, run.ok());
  if (!plan.ok()) co_return plan.error();
  if (!run.ok()) co_return run.error();
  if (const auto note = heavy_sites_note(*plan, admin->book().nodes())) begun.notes.emplace_back(*note);
  store::AuditEntry entry = call.entry(store::AuditKind::kRunStarted);
  entry.run = *run;
  entry.detail = std::move(begun.detail);
  const Status recorded = co_await admin->record(std::move(entry));
  if (!recorded.ok()) co_return recorded.error();
  co_return json::serialize(
      json::object{{"run", run->value()}, {"round", begun.round.value()}, {"notes", std::move(begun.notes)}});
}

// With `reason` in the body, which may be empty altogether.
Result<std::string> reason_of(const std::string& body) {
  std::string reason(kByPerson);
  if (body.empty()) return reason;
  FLUVIAL_ASSIGN(const json::object object, parse_object(body));
  FLUVIAL_ASSIGN(const std::string given, text_of(object, "reason", ""));
  if (given.size() > kGivenReasonBytesMax || !is_printable(given)) {
    return Error{Code::kInvalidArgument, "reason: expected at most " + std::to_string(kGivenReasonBytesMax) +
                                             " bytes in one line, without control characters"};
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
