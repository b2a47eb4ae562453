// fluvial model: committed models as files, and which of them stay.
#include <fmt/format.h>

#include <boost/json/serialize.hpp>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "cli/admin_client.h"
#include "cli/command.h"
#include "cli/table.h"
#include "core/round/best_by.h"
#include "core/store/model_book.h"
#include "core/store/safetensors.h"

namespace fluvial::cli {
namespace {

struct ExportOptions : AdminOptions {
  std::uint64_t run = 0;  // 0: the latest
  std::string round = "latest";
  std::string out;
  bool force = false;
};

// Reads it whole and compares its digest with what the coordinator committed; the copy is there complete or not at all.
Status copy_model(const std::string& from, const std::string& to, const std::string& sha256) {
  store::PosixFileSystem files;
  FLUVIAL_ASSIGN(const store::Model model, store::read_model(files, from));
  if (const std::string found = to_hex(store::model_digest(model.bytes.span())); found != sha256) {
    return Error{Code::kDataLoss, fmt::format("{}: its digest is {}, the journal says {}", from, found, sha256)};
  }
  return store::write_model(files, to, model.schema, model.bytes.span(), model.metadata);
}

constexpr std::uint64_t kReadBytes = 1 << 20;  // of one answer

// Over the network: part by part, several on their way at once, and then as copy_model() does.
Status fetch_model(const AdminClient& client, const std::string& target, const std::string& to,
                   const std::string& sha256) {
  store::PosixFileSystem files;
  const std::string part = to + ".part";
  {
    FLUVIAL_ASSIGN(const std::unique_ptr<store::File> file, files.open(part, store::OpenMode::kTruncate));
    std::uint64_t asked = 0;
    std::uint64_t here = 0;
    bool is_whole = false;
    const auto next = [&]() -> Result<std::optional<AdminClient::Request>> {
      if (is_whole) return std::optional<AdminClient::Request>();
      const json::object place{{"from", std::exchange(asked, asked + kReadBytes)}};
      return std::optional(AdminClient::Request{"POST", target + "/read", json::serialize(place)});
    };
    FLUVIAL_TRY(client.ask_all(next, [&](const std::string& bytes) -> Status {
      FLUVIAL_TRY(file->write_at(here, as_byte_span(bytes)));
      here += bytes.size();
      is_whole = is_whole || bytes.size() < kReadBytes;
      return {};
    }));
  }
  const Status copied = copy_model(part, to, sha256);
  const Status removed = files.remove(part);
  return copied.ok() ? removed : copied;
}

int export_model(const Io& io, const ExportOptions& options) {
  if (std::error_code error; !options.force && std::filesystem::exists(options.out, error)) {
    return fail(io, "model export",
                {Code::kAlreadyExists, options.out + " exists already; another name, or --force to overwrite it"});
  }
  const AdminClient client = options.client();
  const Result<std::uint64_t> run = options.run > 0 ? options.run : client.latest_run();
  if (!run.ok()) return fail(io, "model export", run.error());
  const std::string target = fmt::format("/v1/models/{}/{}", *run, options.round);
  const auto model = client.get(target);
  if (!model.ok()) return fail(io, "model export", model.error());
  const std::string sha256 = text_member(*model, "sha256");
  // All its parts of one round, also where the round was asked for as latest, best or by a label.
  const std::string round = fmt::format("/v1/models/{}/{}", *run, count_member(*model, "round"));
  const Status copied = client.is_remote() ? fetch_model(client, round, options.out, sha256)
                                           : copy_model(text_member(*model, "path"), options.out, sha256);
  if (!copied.ok()) return fail(io, "model export", copied.error());
  if (options.json) {
    json::value answer = *model;
    answer.as_object()["run"] = *run;
    answer.as_object()["exported"] = std::filesystem::absolute(options.out).string();
    io.print(pretty(answer));
  } else {
    io.print(
        fmt::format("{}: run {}, round {}, sha256 {}\n", options.out, *run, count_member(*model, "round"), sha256));
  }
  return kDone;
}

struct ModelOptions : AdminOptions {
  std::string run;  // a number, or latest
  std::string round;
  std::string name;
};

// "greatest test_accuracy 0.96", by the plan's models_kept_best.
std::string best_text(const std::string& kept_best, double value) {
  const auto by = round::parse_best_by(kept_best);
  if (!by.ok() || !*by) return fmt::format("{} {:.6g}", kept_best, value);
  return fmt::format("{} {} {:.6g}", (*by)->is_highest ? "greatest" : "least", (*by)->metric, value);
}

int list_models(const Io& io, const ModelOptions& options) {
  const auto answer = options.client().get(fmt::format("/v1/models/{}", options.run));
  if (!answer.ok()) return fail(io, "model list", answer.error());
  if (options.json) {
    io.print(pretty(*answer));
    return kDone;
  }
  const std::string kept_best = text_member(*answer, "kept_best");
  Table table({{"ROUND", Align::kRight}, {"LABELS"}, {"BEST"}});
  for (const json::value& model : array_member(*answer, "models")) {
    std::string labels;
    for (const json::value& label : array_member(model, "labels")) {
      if (label.is_string()) labels += (labels.empty() ? "" : " ") + std::string(label.as_string().c_str());
    }
    const json::value* best = model.is_object() ? model.as_object().if_contains("best") : nullptr;
    const bool is_best = best != nullptr && best->is_number();
    table.add({std::to_string(count_member(model, "round")), labels,
               is_best ? best_text(kept_best, best->to_number<double>()) : ""});
  }
  io.print(table.render(io.terminal()));
  return kDone;
}

int label_model(const Io& io, const ModelOptions& options) {
  const auto done = options.client().post(fmt::format("/v1/models/{}/{}/label", options.run, options.round),
                                          json::object{{"name", options.name}});
  if (!done.ok()) return fail(io, "model label", done.error());
  io.print(options.json ? pretty(*done)
                        : fmt::format("the model of round {} of run {} is '{}' and stays\n", options.round,
                                      count_member(*done, "run"), options.name));
  return kDone;
}

int unlabel_model(const Io& io, const ModelOptions& options) {
  const auto done =
      options.client().post(fmt::format("/v1/models/{}/unlabel", options.run), json::object{{"name", options.name}});
  if (!done.ok()) return fail(io, "model unlabel", done.error());
  io.print(options.json ? pretty(*done)
                        : fmt::format("run {} has no '{}' any more\n", count_member(*done, "run"), options.name));
  return kDone;
}

CLI::Validator a_run() {
  return checked("a run's number, or latest", [](const std::string& text) -> Status {
    const bool digits = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
    if (digits || text == "latest") return {};
    return Error{Code::kInvalidArgument, "no run"};
  });
}

CLI::Validator a_label() {
  return checked("a label: letters, digits, dots, dashes and underlines", store::check_label);
}

using ModelAction = int (*)(const Io&, const ModelOptions&);

CLI::App* add_model_command(CLI::App& model, Commands& commands, const std::shared_ptr<ModelOptions>& options,
                            const char* name, const char* help, ModelAction action) {
  CLI::App* app = model.add_subcommand(name, help);
  add_admin_options(*app, *options);
  add_json_flag(*app, *options);
  app->callback([&commands, options, action] {
    commands.chosen = [&commands, options, action] { return action(commands.io, *options); };
  });
  return app;
}

void declare_kept(CLI::App& model, Commands& commands) {
  const auto listed = std::make_shared<ModelOptions>();
  listed->run = "latest";
  CLI::App* list = add_model_command(model, commands, listed, "list", "a run's models that are kept", list_models);
  list->add_option("--run", listed->run, "the run's number")->type_name("RUN")->check(a_run())->capture_default_str();

  const auto labelled = std::make_shared<ModelOptions>();
  CLI::App* label =
      add_model_command(model, commands, labelled, "label", "keep a model, under a name of its own", label_model);
  label->add_option("RUN", labelled->run, "the run's number, or latest")->required()->check(a_run());
  label->add_option("ROUND", labelled->round, "the round that committed it, 0 for the initial model, latest or best")
      ->required()
      ->check(a_round());
  label->add_option("NAME", labelled->name, "the label")->required()->check(a_label());
  label->footer("Example:\n  fluvial model label 3 best candidate");

  const auto unlabelled = std::make_shared<ModelOptions>();
  CLI::App* unlabel = add_model_command(model, commands, unlabelled, "unlabel",
                                        "take a label away; the model goes if nothing else keeps it", unlabel_model);
  unlabel->add_option("RUN", unlabelled->run, "the run's number, or latest")->required()->check(a_run());
  unlabel->add_option("NAME", unlabelled->name, "the label")->required()->check(a_label());
}

}  // namespace

void add_model_commands(CLI::App& app, Commands& commands) {
  CLI::App* model = app.add_subcommand("model", "committed models");
  declare_kept(*model, commands);
  const auto options = std::make_shared<ExportOptions>();
  CLI::App* exported = model->add_subcommand("export", "copy a committed model to a safetensors file");
  exported->add_option("OUT", options->out, "the file to write")->required();
  exported->add_option("--run", options->run, "the run's number (default: the latest)")
      ->type_name("RUN")
      ->check(whole_number(1));
  exported
      ->add_option(
          "--round", options->round,
          "the round that committed it, 0 for the initial model, latest, best (by the plan's models_kept_best), "
          "or a label")
      ->type_name("N")
      ->capture_default_str()
      ->check(a_round());
  exported->add_flag("--force", options->force, "overwrite OUT");
  add_admin_options(*exported, *options);
  add_json_flag(*exported, *options);
  exported->footer("Example:\n  fluvial model export --round 20 model.safetensors");
  exported->callback(
      [&commands, options] { commands.chosen = [&commands, options] { return export_model(commands.io, *options); }; });
}

}  // namespace fluvial::cli
