// fluvial run: training jobs on the federation.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>

#include "cli/admin_client.h"
#include "cli/command.h"
#include "cli/format.h"
#include "cli/model_upload.h"
#include "cli/run_watch.h"
#include "cli/table.h"
#include "cli/waits.h"
#include "core/aggregate/plan_forms.h"
#include "core/config/plan_file.h"
#include "core/store/file_system.h"
#include "core/store/plan_json.h"

namespace fluvial::cli {
namespace {

constexpr std::size_t kWaitsShown = 20;

struct StartOptions : AdminOptions {
  std::string plan;
  std::string model;
  std::uint64_t continues = 0;
  std::string round;
  bool keep_optimizer = false;
  bool watch = false;
  WatchOptions watching;
};

struct RunOptions : AdminOptions {
  std::uint64_t run = 0;  // 0: the latest
};

Result<json::object> start_request(const StartOptions& options) {
  FLUVIAL_ASSIGN(const config::PlanFile file, config::load_plan(options.plan, aggregate::check_plan_forms));
  FLUVIAL_ASSIGN(json::value plan, parse_json(store::plan_to_json(file.plan), "the plan"));
  if (!file.names_participants_min)
    plan.as_object().erase("participants.min");  // the coordinator knows who is enrolled
  json::object request;
  request["plan"] = std::move(plan);
  if (options.continues != 0) {
    request["continue"] = options.continues;
    if (!options.round.empty()) request["round"] = options.round;
    if (options.keep_optimizer) request["keep_optimizer"] = true;
    return request;
  }
  const std::string model = options.model.empty() ? file.model : options.model;
  if (model.empty()) {
    return Error{
        Code::kInvalidArgument,
        fmt::format("{} names no model: add model = \"FILE.safetensors\", or give --model FILE or --continue RUN",
                    options.plan)};
  }
  std::error_code error;
  const auto path = std::filesystem::absolute(model, error);
  if (error || !std::filesystem::is_regular_file(path, error)) {
    return Error{Code::kInvalidArgument, fmt::format("model {}: no such file", model)};
  }
  request["model"] = path.string();
  return request;
}

// Sends the model's file to a coordinator on another machine; the request names it from then on.
Status send_model(const Io& io, const AdminClient& client, json::object& request) {
  if (!client.is_remote() || !request.contains("model")) return {};
  const bool draws = Terminal::of(io.err).is_interactive();
  const auto amount = [](std::uint64_t bytes) { return format_bytes(static_cast<double>(bytes)); };
  UploadWords words;
  words.sent = [&](std::uint64_t sent, std::uint64_t bytes) {
    if (draws)
      io.note(fmt::format("\r\033[Kmodel: {} of {} sent{}", amount(sent), amount(bytes), sent == bytes ? "\n" : ""));
  };
  words.cut = [&](const Error& why, Duration wait) {
    io.note(fmt::format("{}fluvial run start: {}; going on in {:.1f} s\n", draws ? "\n" : "", why.message,
                        std::chrono::duration<double>(wait).count()));
  };
  store::PosixFileSystem files;
  FLUVIAL_ASSIGN(std::string upload, upload_model(client, files, text_member(request, "model"), words));
  request.erase("model");
  request["upload"] = std::move(upload);
  return {};
}

// The file is here, so it is the coordinator that looks at other folders, or as another user.
Error not_seen(const json::object& request, Error error) {
  if (request.contains("model") && (error.code == Code::kNotFound || error.code == Code::kPermissionDenied)) {
    error.message +=
        "; the coordinator opens the file itself: put it where its process sees it and its user may read it, such as "
        "its data "
        "folder (a service sees neither /home nor your /tmp, a container its volumes alone)";
  }
  return error;
}

int start(const Io& io, const StartOptions& options) {
  auto request = start_request(options);
  if (!request.ok()) return fail(io, "run start", request.error(), kUsage);
  const AdminClient client = options.client();
  if (const Status sent = send_model(io, client, *request); !sent.ok()) return fail(io, "run start", sent.error());
  const auto started = client.post("/v1/runs", *request);
  if (!started.ok()) return fail(io, "run start", not_seen(*request, started.error()));
  const std::uint64_t run = count_member(*started, "run");
  for (const json::value& note : array_member(*started, "notes")) {
    if (note.is_string()) io.note(fmt::format("note: {}\n", std::string_view(note.as_string())));
  }
  io.print(options.json ? pretty(*started) : fmt::format("run {} started\n", run));
  if (!options.watch) return kDone;
  return watch_run(io, "run start", client, {run, 1, options.json}, options.watching);
}

int list_runs(const Io& io, const AdminOptions& options) {
  const auto runs = options.client().get("/v1/runs");
  if (!runs.ok()) return fail(io, "run list", runs.error());
  if (options.json) {
    io.print(pretty(*runs));
    return kDone;
  }
  Table table({{"RUN", Align::kRight},
               {"NAME"},
               {"STATUS"},
               {"ROUNDS", Align::kRight},
               {"MODE"},
               {"CODEC"},
               {"CREATED"},
               {"REASON"}});
  for (const json::value& run : array_member(*runs, "runs")) {
    table.add({std::to_string(count_member(run, "id")), text_member(run, "name"), text_member(run, "status"),
               fmt::format("{}/{}", count_member(run, "committed"), count_member(run, "rounds")),
               text_member(run, "mode", "-"), text_member(run, "codec"), format_time(text_member(run, "created_at")),
               text_member(run, "reason")});
  }
  io.print(table.empty() ? "no runs yet; fluvial run start begins one\n" : table.render(io.terminal()));
  return kDone;
}

Result<std::uint64_t> run_or_latest(const AdminClient& client, std::uint64_t run) {
  if (run != 0) return run;
  return client.latest_run();
}

int show_run(const Io& io, const RunOptions& options) {
  const AdminClient client = options.client();
  const auto run = run_or_latest(client, options.run);
  if (!run.ok()) return fail(io, "run show", run.error());
  const auto shown = client.get(fmt::format("/v1/runs/{}", *run));
  if (!shown.ok()) return fail(io, "run show", shown.error());
  if (options.json) {
    io.print(pretty(*shown));
    return kDone;
  }
  const std::string reason = text_member(*shown, "reason");
  std::uint64_t values = 0;
  for (const json::value& tensor : array_member(*shown, "schema")) {
    std::uint64_t size = 1;
    for (const json::value& extent : array_member(tensor, "shape"))
      size *= static_cast<std::uint64_t>(to_number(extent, 0));
    values += size;
  }
  const Terminal terminal = io.terminal();
  const std::string open = open_words(member(*shown, "open"));
  std::string out = fmt::format(
      "run      {} {}\nstatus   {}{}{}\nrounds   {} of {}\ncreated  {}\nmodel    {} tensors, {} values\n", *run,
      text_member(*shown, "name"), text_member(*shown, "status"),
      reason.empty() ? "" : ": " + wrapped(reason, std::max<std::size_t>(terminal.columns(), 50) - 10, 9),
      open.empty() ? "" : ", " + open, count_member(*shown, "committed"), count_member(*shown, "rounds"),
      format_time(text_member(*shown, "created_at")), array_member(*shown, "schema").size(), format_count(values));
  if (const json::array& waits = array_member(*shown, "waits"); !waits.empty()) {
    out += "waits for\n" + waits_block(waits, kWaitsShown, terminal);
  }
  out += "plan     " + pretty(member(*shown, "plan"));
  io.print(out);
  return kDone;
}

int change(const Io& io, const RunOptions& options, const std::string& verb) {
  const AdminClient client = options.client();
  const auto run = run_or_latest(client, options.run);
  if (!run.ok()) return fail(io, "run " + verb, run.error());
  const auto done = client.post(fmt::format("/v1/runs/{}/{}", *run, verb));
  if (!done.ok()) return fail(io, "run " + verb, done.error());
  const json::value& pausing = member(*done, "pausing");
  const bool is_pausing = pausing.is_bool() && pausing.as_bool();
  io.print(options.json ? pretty(*done)
                        : fmt::format("run {}: {}{}\n", *run, verb, is_pausing ? ", once its open round closes" : ""));
  return kDone;
}

template <typename Action>
void declare_run(CLI::App& parent, Commands& commands, const std::string& name, const std::string& help,
                 Action action) {
  const auto options = std::make_shared<RunOptions>();
  CLI::App* app = parent.add_subcommand(name, help);
  app->add_option("RUN", options->run, "its number (default: the latest)")->check(whole_number(1));
  add_admin_options(*app, *options);
  add_json_flag(*app, *options);
  app->callback([&commands, options, action] {
    commands.chosen = [&commands, options, action] { return action(commands.io, *options); };
  });
}

void declare_start(CLI::App& run, Commands& commands) {
  const auto options = std::make_shared<StartOptions>();
  CLI::App* app = run.add_subcommand("start", "begin a run as a plan describes it");
  app->add_option("PLAN", options->plan, "the plan, a TOML file (docs/operations/plan.md)")->required();
  CLI::Option* model =
      app->add_option("--model", options->model,
                      "the initial model, a safetensors file, or the index of one in shards (default: the plan's)")
          ->type_name("FILE");
  CLI::Option* continues = app->add_option("--continue", options->continues, "start from the last model of this run")
                               ->type_name("RUN")
                               ->check(whole_number(1))
                               ->excludes(model);
  app->add_option("--round", options->round,
                  "with --continue: start from the model of this round, if it is kept: a number, best or a label")
      ->type_name("ROUND")
      ->check(a_round())
      ->needs(continues);
  app->add_flag("--keep-optimizer", options->keep_optimizer,
                "with --continue: go on with the state (momentum) that the server optimizer had after that run's last "
                "round, or after --round")
      ->needs(continues);
  app->add_flag("--watch", options->watch, "stay: say what the run waits for, and print a line a round");
  add_watch_options(*app, options->watching);
  add_admin_options(*app, *options);
  add_json_flag(*app, *options);
  app->footer("Example:\n  fluvial run start plan.toml --model initial.safetensors --watch\n\n" + watch_footer());
  app->callback(
      [&commands, options] { commands.chosen = [&commands, options] { return start(commands.io, *options); }; });
}

}  // namespace

void add_run_commands(CLI::App& app, Commands& commands) {
  CLI::App* run = app.add_subcommand("run", "training jobs on the federation");
  declare_start(*run, commands);
  const auto list_options = std::make_shared<AdminOptions>();
  CLI::App* listed = run->add_subcommand("list", "all runs");
  add_admin_options(*listed, *list_options);
  add_json_flag(*listed, *list_options);
  listed->callback([&commands, list_options] {
    commands.chosen = [&commands, list_options] { return list_runs(commands.io, *list_options); };
  });
  declare_run(*run, commands, "show", "a run: where it stands, what it waits for, its plan", show_run);
  declare_run_export(*run, commands);
  declare_run(*run, commands, "pause", "open no further round; the open one closes first",
              [](const Io& io, const RunOptions& options) { return change(io, options, "pause"); });
  declare_run(*run, commands, "resume", "go on with a paused run",
              [](const Io& io, const RunOptions& options) { return change(io, options, "resume"); });
  declare_run(*run, commands, "stop", "end a run; its last model stays and may be continued",
              [](const Io& io, const RunOptions& options) { return change(io, options, "stop"); });
}

}  // namespace fluvial::cli
