#include <fmt/format.h>

#include <csignal>
#include <filesystem>

#include "cli/local_run.h"
#include "tests/chaos/chaos.h"

namespace fluvial::chaos {
namespace {

int failed(const cli::Io& io, const Options& options, const Error& why, const std::string& account) {
  if (why.code == Code::kCancelled) return fail(io, why, cli::kFailed);
  const std::string what = fmt::format("FAILED with --seed {}: {}{}\n", options.seed, why.message,
                                       options.keep.empty() ? " (--keep FOLDER keeps the logs)" : "");
  io.print(fmt::format("\n{}{}\n{}", what, account, what));  // before and behind: a long account is cut somewhere
  return cli::kFailed;
}

int run(const cli::Io& io, const Options& options, const cli::WorkFolder& folder) {
  Chaos chaos(options, io, folder);
  if (const Status held = chaos.run(); !held.ok()) return failed(io, options, held.error(), chaos.account());
  chaos.print_report();
  if (options.json.empty()) return cli::kDone;
  const Status written = cli::write_text_file(options.json, cli::pretty(chaos.to_json()));
  return written.ok() ? cli::kDone : fail(io, written.error(), cli::kFailed);
}

int main_of(const std::vector<std::string>& arguments) {
  const Parsed parsed = parse(arguments);
  if (!parsed.run) return parsed.status;
  const Options& options = parsed.options;
  const cli::Io io;
  std::string path;
  int status = cli::kDone;
  {
    auto folder = cli::WorkFolder::open(options.keep, false, "chaos");
    if (!folder.ok()) return fail(io, folder.error(), cli::kUsage);
    path = folder->path();
    io.print(fmt::format("seed {}, in {}\n", options.seed, path));
    status = run(io, options, *folder);
  }
  if (options.keep.empty() && std::filesystem::exists(path)) {
    return failed(io, options, {Code::kInternal, path + " is left behind"}, "");
  }
  return status;
}

}  // namespace
}  // namespace fluvial::chaos

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // a peer or a reader that went away is an error value, no end
  return fluvial::chaos::main_of({argv + 1, argv + argc});
}
