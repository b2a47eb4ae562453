#include "coordinator/service/admin.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/json.hpp>
#include <charconv>
#include <utility>

#include "coordinator/logic/plan_codec.h"
#include "coordinator/service/backup.h"
#include "coordinator/service/json.h"
#include "coordinator/service/pace_report.h"
#include "core/identity/token.h"
#include "core/net/deadline.h"
#include "core/store/plan_json.h"
#include "core/store/safetensors.h"
#include "core/tree/ask.h"
#include "core/tree/process.h"
#include "core/tree/version.h"

namespace fluvial::coordinator {
namespace {

namespace json = boost::json;
constexpr std::uint64_t kRoundsMax = 10'000;

std::vector<std::string> split_path(const std::string& path) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  while (begin < path.size()) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    if (end > begin) parts.push_back(path.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

Result<std::uint64_t> to_number(const std::string& key, const std::string& text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    return Error{Code::kInvalidArgument, key + " = '" + text + "': expected a whole number"};
  }
  return value;
}

// What restores there were, what of the histories before is lost as far as members say, and who says that the journal
// is an older copy.
json::object history_json(const Registry& registry) {
  json::array lost;
  for (const store::LostRow& row : registry.lost()) {
    lost.push_back({{"run", row.known.run.value()},
                    {"round", row.known.round.value()},
                    {"site", registry.book().name_of(row.site)},
                    {"update", registry.known_name(row)},
                    {"digest", to_hex(row.known.digest)}});
  }
  json::array ahead;
  for (const auto& [node, reason] : registry.ahead()) {
    ahead.push_back({{"name", registry.book().name_of(node)}, {"reason", reason}});
  }
  return {{"restores", registry.lineage().size()},
          {"began_at_epoch", round::began_of(registry.lineage()).value()},
          {"lost", std::move(lost)},
          {"ahead", std::move(ahead)}};
}

Result<json::object> parse_object(const std::string& body) {
  boost::system::error_code error;
  json::value value = json::parse(body, error);
  if (error || !value.is_object()) return Error{Code::kInvalidArgument, "expected a JSON object"};
  return value.as_object();
}

Result<std::string> text_of(const json::object& object, const char* key, const char* otherwise) {
  const json::value* value = object.if_contains(key);
  if (value == nullptr || value->is_null()) return std::string(otherwise);
  if (!value->is_string()) return Error{Code::kInvalidArgument, std::string(key) + ": expected a string"};
  return std::string(value->as_string());
}

Result<std::uint64_t> number_of(const json::object& object, const char* key, std::uint64_t otherwise) {
  const json::value* value = object.if_contains(key);
  if (value == nullptr || value->is_null()) return otherwise;
  if (value->is_uint64()) return value->as_uint64();
  if (value->is_int64() && value->as_int64() >= 0) return static_cast<std::uint64_t>(value->as_int64());
  return Error{Code::kInvalidArgument, std::string(key) + ": expected a whole number"};
}

json::object run_object(const store::RunRow& row, RoundId committed) {
  return {{"id", row.id.value()},
          {"name", row.plan.name},
          {"status", run_status_name(row.status)},
          {"reason", row.reason},
          {"rounds", row.plan.rounds},
          {"committed", committed.value()},
          {"codec", row.plan.codec},
          {"continues", row.continues.value()},
          {"created_at", utc(row.created_at)}};
}

// What a token is still good for, in a word.
std::string_view token_state(const store::TokenRow& token, WallTime now) {
  if (token.revoked_at) return "revoked";
  if (token.uses >= token.uses_max) return "used";
  return now >= token.expires_at ? "expired" : "valid";
}

json::object open_round(const RunMachine& machine, const Federation& book, TimePoint now) {
  const auto left_s = [now](TimePoint at) {
    return std::chrono::duration<double>(std::max(Duration(0), at - now)).count();
  };
  json::array awaited;
  for (const SiteId site : machine.gather().awaited()) awaited.emplace_back(book.name_of(site));
  return {{"round", machine.attempt().round.value()},
          {"attempt", machine.attempt().attempt.value()},
          {"participants", machine.attempt().participants.size()},
          {"in", machine.gather().counted().size()},
          {"awaited", std::move(awaited)},
          {"soft_left_s", left_s(machine.soft_deadline())},
          {"hard_left_s", left_s(machine.hard_deadline())}};
}

}  // namespace

Status Admin::open(const std::string& socket, AdminFacts facts) {
  facts_ = std::move(facts);
  set_last_backup(last_backup(runtime_.files, facts_.data_dir));
  FLUVIAL_ASSIGN(server_, net::HttpServer::open(runtime_.io, net::UnixAddress{socket}, {}, runtime_.hooks));
  return {};
}

net::Awaitable<void> Admin::run() {
  co_await server_->run([this](net::HttpRequest request) { return handle(std::move(request)); });
}

void Admin::stop() {
  if (server_) server_->stop();
}

net::Awaitable<net::HttpResponse> Admin::handle(net::HttpRequest request) {
  std::optional<net::HttpResponse> response;
  co_await net::asio::co_spawn(runtime_.strand, net::detail::store(on_strand(std::move(request)), &response),
                               net::asio::use_awaitable);
  co_return std::move(*response);
}

net::Awaitable<net::HttpResponse> Admin::on_strand(net::HttpRequest request) {
  if (request.path == "/v1/rounds/watch" && request.method == "GET") {
    net::HttpResponse response;
    response.content_type = "application/x-ndjson";
    response.lines = [this, run = request.query["run"], from = request.query["from"]](
                         std::shared_ptr<net::LineWriter> out) { return watch(run, from, std::move(out)); };
    co_return response;
  }
  Reply reply = co_await route(&request, split_path(request.path));
  if (!reply.ok()) co_return net::HttpResponse::from_error(reply.error());
  co_return net::HttpResponse::json(std::move(*reply));
}

net::Awaitable<Admin::Reply> Admin::route(const net::HttpRequest* request, std::vector<std::string> path) {
  const bool get = request->method == "GET";
  const bool post = request->method == "POST";
  const std::string what = path.size() >= 2 && path[0] == "v1" ? path[1] : "";
  if (get && what == "status" && path.size() == 2) co_return status_json();
  if (get && what == "nodes" && path.size() == 2) co_return nodes(request->query.contains("all"));
  if (post && what == "backup" && path.size() == 2) co_return co_await copy_journal();
  if (post && what == "backup" && path.size() == 3 && path[2] == "made") co_return co_await backup_made(request->body);
  if (post && what == "nodes" && path.size() == 4 && path[3] == "revoke") co_return co_await revoke(path[2]);
  if (post && what == "nodes" && path.size() == 4 && path[3] == "remove") co_return co_await remove(path[2]);
  if (post && what == "nodes" && path.size() == 4 && path[3] == "clear") co_return co_await clear(path[2]);
  if (get && what == "tokens" && path.size() == 2) co_return co_await list_tokens();
  if (post && what == "tokens" && path.size() == 2) co_return co_await create_token(request->body);
  if (post && what == "tokens" && path.size() == 4 && path[3] == "revoke") co_return co_await revoke_token(path[2]);
  if (get && what == "runs" && path.size() == 2) co_return co_await list_runs();
  if (post && what == "runs" && path.size() == 2) co_return co_await start_run(request->body);
  if (get && what == "rounds" && path.size() == 2) co_return co_await list_rounds(request);
  if (path.size() >= 3 && (what == "runs" || what == "models")) {
    const Result<RunId> run = co_await run_or_latest(path[2]);
    if (!run.ok()) co_return run.error();
    if (get && what == "runs" && path.size() == 3) co_return co_await show_run(*run);
    if (post && what == "runs" && path.size() == 4) co_return co_await command_run(*run, path[3]);
    if (get && what == "models" && path.size() == 4) co_return co_await find_model(*run, path[3]);
  }
  co_return Error{Code::kNotFound, request->method + " " + request->path + " is not part of the admin API"};
}

std::string Admin::status_json() const {
  std::size_t sites = 0;
  for (const auto& [id, member] : registry_.book().members()) sites += member.role == Role::kSite ? 1 : 0;
  json::object object{{"role", "coordinator"},
                      {"federation", facts_.federation},
                      {"version", tree::kVersion},
                      {"pin", facts_.pin},
                      {"member_port", facts_.member_port},
                      {"enrol_port", facts_.enrol_port},
                      {"metrics_port", facts_.metrics_port},
                      {"sites_connected", sites},
                      {"aggregators_connected", registry_.book().members().size() - sites},
                      {"staging_bytes", hub_.budget().bytes_used()},
                      {"fault", runs_.fault()},
                      {"history", history_json(registry_)},
                      {"last_backup", nullptr},
                      {"run", nullptr}};
  if (last_backup_) object["last_backup"] = utc(*last_backup_);
  if (const ActiveRun* active = runs_.active()) {
    const RunMachine& machine = active->machine;
    const bool waiting = machine.status() == RunStatus::kRunning && !machine.is_open();
    object["run"] = json::object{{"id", machine.run().value()},
                                 {"name", machine.plan().name},
                                 {"status", run_status_name(machine.status())},
                                 {"reason", waiting ? "" : machine.reason()},
                                 {"round", machine.last_committed().value()},
                                 {"rounds", machine.plan().rounds},
                                 {"codec", machine.plan().codec},
                                 {"model_sha256", to_hex(machine.model().digest)},
                                 {"waiting", waiting ? machine.reason() : ""},
                                 {"open", nullptr}};
    if (machine.is_open())
      object["run"].as_object()["open"] = open_round(machine, registry_.book(), runtime_.clock.now());
  }
  return json::serialize(object);
}

Admin::Reply Admin::nodes(bool all) const {
  json::array list;
  for (const auto& [id, row] : registry_.book().nodes()) {
    if (row.removed_at && !all) continue;
    const auto member = registry_.book().members().find(id);
    const bool connected = member != registry_.book().members().end();
    const LeaseEntry* lease = registry_.book().lease_of(id);
    const auto ahead = registry_.ahead().find(id);
    json::object node{{"id", id.value()},
                      {"name", row.name},
                      {"role", role_name(row.role)},
                      {"region", row.region},
                      {"weight_max", row.weight_max},
                      {"connected", connected},
                      {"enrolled_at", utc(row.enrolled_at)},
                      {"advertise", row.advertise},
                      {"revoked", row.revoked_at.has_value()},
                      {"quarantined", row.quarantined_at.has_value()},
                      {"quarantine_reason", row.quarantine_reason},
                      {"ahead", ahead == registry_.ahead().end() ? "" : ahead->second},
                      {"removed", row.removed_at.has_value()},
                      {"parent", nullptr},
                      {"lease_epoch", nullptr},
                      {"past", nullptr},
                      {"pace", nullptr}};
    if (lease != nullptr) {
      node["parent"] = lease->parent == NodeId(0) ? "coordinator" : registry_.book().name_of(lease->parent);
      node["lease_epoch"] = lease->epoch.value();
    }
    const auto detour = connected ? registry_.book().detour_of(id, runtime_.clock.now()) : std::nullopt;
    if (detour) {
      node["past"] = json::object{{"aggregator", registry_.book().name_of(detour->past)}, {"reason", detour->reason}};
    }
    const round::SitePace* pace = runs_.active() ? runs_.active()->machine.pace().find(id) : nullptr;
    if (pace != nullptr) node["pace"] = pace_object(*pace);
    list.push_back(std::move(node));
  }
  return json::serialize(json::object{{"nodes", std::move(list)}});
}

net::Awaitable<Admin::Reply> Admin::revoke(std::string name) {
  const Result<NodeId> revoked = co_await registry_.revoke(name);
  if (!revoked.ok()) co_return revoked.error();
  runs_.revoked(*revoked);
  runtime_.log.warn("node revoked", {{"name", name}});
  co_return json::serialize(json::object{{"revoked", name}});
}

net::Awaitable<Admin::Reply> Admin::remove(std::string name) {
  const Result<NodeId> removed = co_await registry_.remove(name);
  if (!removed.ok()) co_return removed.error();
  runs_.revoked(*removed);
  runtime_.log.warn("node removed", {{"name", name}});
  co_return json::serialize(json::object{{"removed", name}});
}

net::Awaitable<Admin::Reply> Admin::clear(std::string name) {
  const Result<NodeId> cleared = co_await registry_.clear(name);
  if (!cleared.ok()) co_return cleared.error();
  runs_.quarantine_changed();
  runtime_.log.warn("quarantine lifted", {{"name", name}});
  co_return json::serialize(json::object{{"cleared", name}});
}

net::Awaitable<Admin::Reply> Admin::create_token(std::string body) {
  Result<json::object> object = parse_object(body);
  if (!object.ok()) co_return object.error();
  const Result<std::string> role_text = text_of(*object, "role", "site");
  const Result<std::string> name = text_of(*object, "name", "");
  const Result<std::string> region = text_of(*object, "region", "");
  const Result<std::uint64_t> weight_max = number_of(*object, "weight_max", 1'000'000);
  const Result<std::uint64_t> ttl_s = number_of(*object, "ttl_s", facts_.token_ttl_s);
  const Result<std::uint64_t> uses = number_of(*object, "uses", 1);
  for (const Error* error : {role_text.ok() ? nullptr : &role_text.error(), name.ok() ? nullptr : &name.error(),
                             region.ok() ? nullptr : &region.error(), weight_max.ok() ? nullptr : &weight_max.error(),
                             ttl_s.ok() ? nullptr : &ttl_s.error(), uses.ok() ? nullptr : &uses.error()}) {
    if (error != nullptr) co_return *error;
  }
  const Result<Role> role = identity::role_from_name(*role_text);
  if (!role.ok()) co_return role.error();
  if (*weight_max == 0 || *weight_max >= round::kWeightLimit) {
    co_return Error{Code::kInvalidArgument, "weight_max = " + std::to_string(*weight_max) + ": expected 1 to 2^29 - 1"};
  }
  if (*ttl_s == 0 || *ttl_s > 365 * 86'400ULL) {
    co_return Error{Code::kInvalidArgument, "ttl_s = " + std::to_string(*ttl_s) + ": expected 1 second to a year"};
  }
  const WallTime expires = runtime_.clock.wall_now() + std::chrono::seconds(*ttl_s);
  const Result<identity::NewToken> made = identity::make_token(
      {*role, *name, *region, static_cast<std::uint32_t>(*weight_max), expires, facts_.enrol_address, *uses},
      facts_.pin);
  if (!made.ok()) co_return made.error();
  const identity::TokenRecord& record = made->record;
  const store::TokenRow row{record.id,      record.secret_hash, record.role, record.name,
                            record.region,  record.weight_max,  expires,     {},
                            record.uses_max};
  const Status kept = co_await runtime_.pool.run([&] { return journal_.add_token(row); });
  if (!kept.ok()) co_return kept.error();
  runtime_.log.info("token created",
                    {{"token", row.id}, {"role", role_name(row.role)}, {"name", row.name}, {"uses", row.uses_max}});
  co_return json::serialize(
      json::object{{"token", made->token.to_text()}, {"id", row.id}, {"name", row.name}, {"expires_at", utc(expires)}});
}

net::Awaitable<Admin::Reply> Admin::list_tokens() {
  const Result<std::vector<store::TokenRow>> tokens = co_await runtime_.pool.run([&] { return journal_.tokens(); });
  if (!tokens.ok()) co_return tokens.error();
  json::array list;
  const WallTime now = runtime_.clock.wall_now();
  for (const store::TokenRow& row : *tokens) {
    json::object token{{"id", row.id},
                       {"role", role_name(row.role)},
                       {"name", row.name},
                       {"region", row.region},
                       {"state", token_state(row, now)},
                       {"uses", row.uses},
                       {"uses_max", row.uses_max},
                       {"used_at", nullptr},
                       {"expires_at", utc(row.expires_at)},
                       {"revoked_at", nullptr}};
    if (row.used_at) token["used_at"] = utc(*row.used_at);
    if (row.revoked_at) token["revoked_at"] = utc(*row.revoked_at);
    list.push_back(std::move(token));
  }
  co_return json::serialize(json::object{{"tokens", std::move(list)}});
}

net::Awaitable<Admin::Reply> Admin::revoke_token(std::string id) {
  const WallTime when = runtime_.clock.wall_now();
  const Status kept = co_await runtime_.pool.run([&] { return journal_.revoke_token(id, when); });
  if (!kept.ok()) co_return kept.error();
  runtime_.log.warn("token revoked", {{"token", id}});
  co_return json::serialize(json::object{{"revoked", id}});
}

net::Awaitable<Result<RunId>> Admin::run_or_latest(std::string text) {
  if (!text.empty() && text != "latest") {
    const Result<std::uint64_t> number = to_number("run", text);
    if (!number.ok()) co_return number.error();
    co_return RunId(*number);
  }
  const Result<std::vector<store::RunRow>> rows = co_await runtime_.pool.run([&] { return journal_.runs(); });
  if (!rows.ok()) co_return rows.error();
  if (rows->empty()) co_return Error{Code::kNotFound, "no run yet; start one: fluvial run start plan.toml"};
  co_return rows->back().id;
}

net::Awaitable<Admin::Reply> Admin::list_runs() {
  Result<std::string> text = co_await runtime_.pool.run([&]() -> Reply {
    json::array list;
    FLUVIAL_ASSIGN(const std::vector<store::RunRow> rows, journal_.runs());
    for (const store::RunRow& row : rows) {
      FLUVIAL_ASSIGN(const std::optional<store::CommitRow> last, journal_.last_commit(row.id));
      list.push_back(run_object(row, last ? last->record.round : RoundId(0)));
    }
    return json::serialize(json::object{{"runs", std::move(list)}});
  });
  co_return text;
}

net::Awaitable<Admin::Reply> Admin::show_run(RunId run) {
  Result<std::string> text = co_await runtime_.pool.run([&]() -> Reply {
    FLUVIAL_ASSIGN(const store::RunRow row, journal_.run(run));
    FLUVIAL_ASSIGN(const std::optional<store::CommitRow> last, journal_.last_commit(row.id));
    json::object object = run_object(row, last ? last->record.round : RoundId(0));
    object["plan"] = json::parse(store::plan_to_json(row.plan));
    object["schema"] = json::parse(store::schema_to_json(row.schema));
    return json::serialize(object);
  });
  co_return text;
}

net::Awaitable<Admin::Reply> Admin::start_run(std::string body) {
  struct Prepared {
    store::RunRow row;
    Buffer model;
  };
  Result<Prepared> prepared = co_await runtime_.pool.run([&]() -> Result<Prepared> {
    FLUVIAL_ASSIGN(const json::object object, parse_object(body));
    if (!object.contains("plan")) return Error{Code::kInvalidArgument, "plan: expected a plan"};
    Prepared made;
    FLUVIAL_ASSIGN(made.row.plan, store::plan_from_json(json::serialize(object.at("plan"))));
    FLUVIAL_ASSIGN(made.row.plan.codec, check_plan_codec(made.row.plan.codec));  // one text for one codec, everywhere
    FLUVIAL_ASSIGN(const std::string path, text_of(object, "model", ""));
    FLUVIAL_ASSIGN(const std::uint64_t continues, number_of(object, "continue", 0));
    std::optional<store::Model> model;
    if (!path.empty()) {
      FLUVIAL_ASSIGN(model, store::read_model(runtime_.files, path));
    }
    if (continues != 0) {
      FLUVIAL_ASSIGN(const store::RunRow before, journal_.run(RunId(continues)));
      made.row.continues = RunId(continues);
      if (model) {
        FLUVIAL_TRY(round::check_same_schema(before.schema, model->schema));
      } else {
        FLUVIAL_ASSIGN(const std::optional<store::CommitRow> last, journal_.last_commit(before.id));
        const ModelVersion version(last ? last->record.round.value() : 0);
        FLUVIAL_ASSIGN(model,
                       models_.load({before.id, version}, last ? last->record.model.digest : before.initial_model));
      }
    }
    if (!model) return Error{Code::kInvalidArgument, "model: expected a safetensors file, or a run to continue"};
    made.row.schema = model->schema;
    made.row.initial_model = store::model_digest(model->bytes.span());
    made.model = std::move(model->bytes);
    return made;
  });
  if (!prepared.ok()) co_return prepared.error();
  const Result<RunId> run = co_await runs_.start(std::move(prepared->row), std::move(prepared->model));
  if (!run.ok()) co_return run.error();
  co_return json::serialize(json::object{{"run", run->value()}});
}

net::Awaitable<Admin::Reply> Admin::command_run(RunId run, std::string command) {
  Status done = Error{Code::kNotFound, "a run can be told to pause, resume or stop"};
  if (command == "pause") done = co_await runs_.pause(run, "by an administrator");
  if (command == "resume") done = co_await runs_.resume(run);
  if (command == "stop") done = co_await runs_.stop_run(run, "by an administrator");
  if (!done.ok()) co_return done.error();
  co_return json::serialize(json::object{{"run", run.value()}, {"command", command}});
}

net::Awaitable<Admin::Reply> Admin::list_rounds(const net::HttpRequest* request) {
  const auto query = [&](const char* key, const char* otherwise) {
    const auto found = request->query.find(key);
    return found == request->query.end() ? std::string(otherwise) : found->second;
  };
  const Result<RunId> run = co_await run_or_latest(query("run", ""));
  if (!run.ok()) co_return run.error();
  const Result<std::uint64_t> from = to_number("from", query("from", "1"));
  const Result<std::uint64_t> limit = to_number("limit", query("limit", "1000"));
  if (!from.ok()) co_return from.error();
  if (!limit.ok()) co_return limit.error();
  std::vector<store::CommitRow> rows;
  const Result<RoundId> pruned = co_await runtime_.pool.run([&]() -> Result<RoundId> {
    FLUVIAL_ASSIGN(rows, journal_.commits(*run, RoundId(*from), std::min(*limit, kRoundsMax)));
    return journal_.pruned(*run);
  });
  if (!pruned.ok()) co_return pruned.error();
  std::string text = "{\"pruned\":" + std::to_string(pruned->value()) + ",\"rounds\":[";
  for (const store::CommitRow& row : rows) {
    if (text.back() == '}') text += ',';
    text += round_json(row, [this](NodeId node) { return registry_.book().name_of(node); });
  }
  co_return text + "]}";
}

net::Awaitable<Admin::Reply> Admin::find_model(RunId run, std::string round) {
  Result<std::uint64_t> number = std::uint64_t{0};
  if (round != "latest") number = to_number("round", round);
  if (!number.ok()) co_return number.error();
  Result<std::string> text = co_await runtime_.pool.run([&]() -> Reply {
    FLUVIAL_ASSIGN(const store::RunRow row, journal_.run(run));
    FLUVIAL_ASSIGN(const std::optional<store::CommitRow> last, journal_.last_commit(run));
    const RoundId wanted = round == "latest" ? (last ? last->record.round : RoundId(0)) : RoundId(*number);
    Digest digest = row.initial_model;
    if (wanted != RoundId(0)) {
      FLUVIAL_ASSIGN(const store::CommitRow commit, journal_.commit_of(run, wanted));
      digest = commit.record.model.digest;
    }
    const std::string path = models_.path_of({run, ModelVersion(wanted.value())});
    FLUVIAL_ASSIGN(const bool there, runtime_.files.exists(path));
    if (!there) {
      return Error{Code::kNotFound, "the model of round " + std::to_string(wanted.value()) +
                                        " is no longer kept (the plan's models_kept)"};
    }
    return json::serialize(json::object{{"path", path}, {"sha256", to_hex(digest)}});
  });
  co_return text;
}

}  // namespace fluvial::coordinator
