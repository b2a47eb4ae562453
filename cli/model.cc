// fluvial model: committed models as files.
#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "cli/admin_client.h"
#include "cli/command.h"
#include "core/store/safetensors.h"

namespace fluvial::cli {
namespace {

struct ExportOptions : AdminOptions {
  std::string run;
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

// Over the network: part by part, and then as copy_model() does.
Status fetch_model(const AdminClient& client, const std::string& target, const std::string& to,
                   const std::string& sha256) {
  store::PosixFileSystem files;
  const std::string part = to + ".part";
  {
    FLUVIAL_ASSIGN(const std::unique_ptr<store::File> file, files.open(part, store::OpenMode::kTruncate));
    for (std::uint64_t from = 0;;) {
      FLUVIAL_ASSIGN(const std::string bytes, client.post_for_bytes(target + "/read", json::object{{"from", from}}));
      if (bytes.empty()) break;
      FLUVIAL_TRY(file->write_at(from, as_byte_span(bytes)));
      from += bytes.size();
    }
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
  std::string run = options.run;
  if (run.empty()) {
    const auto latest = client.latest_run();
    if (!latest.ok()) return fail(io, "model export", latest.error());
    run = std::to_string(*latest);
  }
  const std::string target = fmt::format("/v1/models/{}/{}", run, options.round);
  const auto model = client.get(target);
  if (!model.ok()) return fail(io, "model export", model.error());
  const std::string sha256 = text_member(*model, "sha256");
  const Status copied = client.is_remote() ? fetch_model(client, target, options.out, sha256)
                                           : copy_model(text_member(*model, "path"), options.out, sha256);
  if (!copied.ok()) return fail(io, "model export", copied.error());
  if (options.json) {
    json::value answer = *model;
    answer.as_object()["exported"] = std::filesystem::absolute(options.out).string();
    io.print(pretty(answer));
  } else {
    io.print(fmt::format("{}: run {}, round {}, sha256 {}\n", options.out, run, options.round, sha256));
  }
  return kDone;
}

}  // namespace

void add_model_commands(CLI::App& app, Commands& commands) {
  CLI::App* model = app.add_subcommand("model", "committed models");
  const auto options = std::make_shared<ExportOptions>();
  CLI::App* exported = model->add_subcommand("export", "copy a committed model to a safetensors file");
  exported->add_option("OUT", options->out, "the file to write")->required();
  exported->add_option("--run", options->run, "the run's number (default: the latest)")
      ->type_name("RUN")
      ->check(whole_number(1));
  exported->add_option("--round", options->round, "the round that committed it, 0 for the initial model, or latest")
      ->type_name("N")
      ->capture_default_str()
      ->check(checked("a round's number, or latest", [](const std::string& text) -> Status {
        const bool digits = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
        if (digits || text == "latest") return {};
        return Error{Code::kInvalidArgument, "no round"};
      }));
  exported->add_flag("--force", options->force, "overwrite OUT");
  add_admin_options(*exported, *options);
  add_json_flag(*exported, *options);
  exported->footer("Example:\n  fluvial model export --round 20 model.safetensors");
  exported->callback(
      [&commands, options] { commands.chosen = [&commands, options] { return export_model(commands.io, *options); }; });
}

}  // namespace fluvial::cli
