// fluvial run export: the rounds of a run, to be kept where the coordinator lets them go.
#include <fmt/format.h>

#include <memory>
#include <optional>

#include "cli/admin_client.h"
#include "cli/command.h"
#include "cli/round_export.h"
#include "core/store/file_system.h"

namespace fluvial::cli {
namespace {

struct RunExportOptions : AdminOptions {
  std::uint64_t run = 0;  // 0: the latest
  std::uint64_t from = 1;
  std::string format = "jsonl";
  std::string out;
};

// Whole or not there: written beside it, and renamed at the end.
class OutFile {
 public:
  OutFile(store::FileSystem& files, std::string path) : files_(files), path_(std::move(path)) {}
  ~OutFile() {
    if (file_ && !done_) (void)files_.remove(store::temporary_of(path_)).ok();
  }
  OutFile(const OutFile&) = delete;
  OutFile& operator=(const OutFile&) = delete;

  Status open() {
    FLUVIAL_ASSIGN(file_, files_.open(store::temporary_of(path_), store::OpenMode::kTruncate));
    return {};
  }
  Status write(std::string_view text) {
    FLUVIAL_TRY(file_->write_at(size_bytes_, as_byte_span(text)));
    size_bytes_ += text.size();
    return {};
  }
  Status finish() {
    FLUVIAL_TRY(file_->sync());
    FLUVIAL_TRY(files_.rename(store::temporary_of(path_), path_));
    done_ = true;
    return files_.sync_folder(store::folder_of(path_));
  }

 private:
  store::FileSystem& files_;
  std::string path_;
  std::unique_ptr<store::File> file_;
  std::uint64_t size_bytes_ = 0;
  bool done_ = false;
};

Result<Exported> export_to(const Io& io, store::FileSystem& files, const RunExportOptions& options,
                           const FetchRounds& fetch) {
  const ExportFormat format = options.format == "csv" ? ExportFormat::kCsv : ExportFormat::kJsonLines;
  if (options.out.empty()) {
    const auto print = [&io](std::string_view text) -> Status {
      io.print(text);
      if (std::ferror(io.out) == 0) return {};
      return Error{Code::kUnavailable, "standard output takes no more"};
    };
    return export_rounds(fetch, print, options.from, format);
  }
  OutFile file(files, options.out);
  FLUVIAL_TRY(file.open());
  const auto write = [&file](std::string_view text) { return file.write(text); };
  FLUVIAL_ASSIGN(const Exported exported, export_rounds(fetch, write, options.from, format));
  FLUVIAL_TRY(file.finish());
  return exported;
}

int export_run(const Io& io, store::FileSystem& files, const RunExportOptions& options) {
  const AdminClient client = options.client();
  const Result<std::uint64_t> run = options.run == 0 ? client.latest_run() : Result<std::uint64_t>(options.run);
  if (!run.ok()) return fail(io, "run export", run.error());
  const auto shown = client.get(fmt::format("/v1/runs/{}", *run));
  if (!shown.ok()) return fail(io, "run export", shown.error());
  const auto fetch = [&](std::uint64_t from, std::uint64_t limit) {
    return client.get(fmt::format("/v1/rounds?run={}&from={}&limit={}", *run, from, limit));
  };
  const auto exported = export_to(io, files, options, fetch);
  if (!exported.ok()) return fail(io, "run export", exported.error());
  if (exported->pruned >= options.from) {
    io.note(fmt::format("run {}: rounds {} to {} are not in the coordinator's journal any more (keep_rounds)\n", *run,
                        options.from, exported->pruned));
  }
  const std::string what =
      exported->rounds == 0
          ? fmt::format("run {}: no committed rounds from {} on\n", *run, options.from)
          : fmt::format("run {}: {} rounds, {} to {}\n", *run, exported->rounds, exported->first, exported->last);
  io.note(what);
  return kDone;
}

}  // namespace

void declare_run_export(CLI::App& run, Commands& commands) {
  const auto options = std::make_shared<RunExportOptions>();
  CLI::App* app =
      run.add_subcommand("export", "a run's committed rounds: contributors, weights, digests, metrics, times");
  app->add_option("RUN", options->run, "its number (default: the latest)")->check(whole_number(1));
  app->add_option("--from", options->from, "the first round to export")
      ->type_name("N")
      ->capture_default_str()
      ->check(whole_number(1));
  app->add_option("--format", options->format,
                  "jsonl: a JSON object a line and round; csv: a line for each contributor and refusal")
      ->capture_default_str()
      ->check(one_of({"jsonl", "csv"}));
  app->add_option("--out", options->out, "the file to write (default: standard output)")->type_name("FILE");
  add_admin_options(*app, *options);
  app->footer("Example:\n  fluvial run export 3 --from 1001 --out run-3-from-1001.jsonl");
  app->callback([&commands, options] {
    commands.chosen = [&commands, options] { return export_run(commands.io, commands.files, *options); };
  });
}

}  // namespace fluvial::cli
