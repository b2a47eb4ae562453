// fluvial rounds trace: a committed round as a timeline.
#include <fmt/format.h>

#include <algorithm>
#include <boost/json/serialize.hpp>
#include <memory>
#include <string>
#include <vector>

#include "cli/admin_client.h"
#include "cli/chrome_trace.h"
#include "cli/command.h"
#include "cli/format.h"
#include "core/store/file_system.h"

namespace fluvial::cli {
namespace {

struct TraceOptions : AdminOptions {
  std::uint64_t run = 0;  // 0: the latest
  std::string round = "latest";
  std::string out;

  std::string target() const {
    const std::string of_run = run == 0 ? "" : fmt::format("?run={}", run);
    return fmt::format("/v1/rounds/{}/timeline{}", url_encoded(round), of_run);
  }
};

Status check_round(const std::string& text) {
  const bool digits = !text.empty() && text.size() <= 18 && text.find_first_not_of("0123456789") == std::string::npos;
  if (text == "latest" || (digits && text != "0")) return {};
  return Error{Code::kInvalidArgument, fmt::format("'{}': expected a round's number, or latest", text)};
}

std::string describe(const json::value& timeline) {
  std::string text = text_member(timeline, "words") + "\n";
  std::vector<std::string> missing;
  for (const json::value& node : array_member(timeline, "missing")) {
    if (node.is_string()) missing.emplace_back(node.as_string());
  }
  if (!missing.empty()) {
    text += fmt::format("without what {} did: no report of it came (yet), or its clock was not measured\n",
                        fmt::join(missing, ", "));
  }
  double uncertainty = 0;
  for (const json::value& clock : array_member(timeline, "clocks")) {
    uncertainty = std::max(uncertainty, number_member(clock, "uncertainty_s", 0));
  }
  if (!array_member(timeline, "clocks").empty()) {
    text += fmt::format("times of other nodes are right to {}\n", format_seconds(uncertainty));
  }
  return text;
}

int trace(const Io& io, store::FileSystem& files, const TraceOptions& options) {
  const auto timeline = options.client().get(options.target());
  if (!timeline.ok()) return fail(io, "rounds trace", timeline.error());
  if (!options.out.empty()) {
    const std::string text = json::serialize(chrome_trace(*timeline)) + "\n";
    const ByteSpan parts[] = {as_byte_span(text)};
    const Status written = store::write_file_atomically(files, options.out, parts);
    if (!written.ok()) return fail(io, "rounds trace", written.error());
  }
  io.print(options.json ? pretty(*timeline) : describe(*timeline));
  if (!options.out.empty()) io.note(fmt::format("{}: open it in https://ui.perfetto.dev\n", options.out));
  return kDone;
}

}  // namespace

void declare_round_trace(CLI::App& rounds, Commands& commands) {
  const auto options = std::make_shared<TraceOptions>();
  CLI::App* app = rounds.add_subcommand("trace", "what every node did in a round, and what the round waited for");
  app->add_option("ROUND", options->round, "its number, or latest")
      ->capture_default_str()
      ->check(checked("a round's number, or latest", check_round));
  app->add_option("--run", options->run, "the run's number (default: the latest)")
      ->type_name("RUN")
      ->check(whole_number(1));
  app->add_option("--out", options->out, "write it as a Chrome trace, which Perfetto opens")->type_name("FILE");
  add_admin_options(*app, *options);
  add_json_flag(*app, *options);
  app->footer(
      "Prints what the round waited for, step by step. The last 32 rounds committed since the\n"
      "coordinator started are kept.\n\n"
      "Example:\n  fluvial rounds trace 17 --out trace.json");
  app->callback([&commands, options] {
    commands.chosen = [&commands, options] { return trace(commands.io, commands.files, *options); };
  });
}

}  // namespace fluvial::cli
