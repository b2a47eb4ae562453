#include <fmt/format.h>

#include "cli/demo.h"
#include "cli/format.h"
#include "cli/table.h"

namespace fluvial::cli {

bool left_no_trace(const DemoOutcome& outcome) {
  return outcome.killed.empty() || outcome.disturbed_sha256 == outcome.model_sha256;
}

json::object demo_json(const DemoOptions& options, const DemoOutcome& outcome) {
  json::array site_models, killed;
  for (const std::string& node : outcome.killed) killed.push_back(json::string(node));
  for (const std::string& digest : outcome.site_model_sha256) site_models.push_back(json::string(digest));
  return {{"test_accuracy", outcome.test_accuracy},
          {"central_test_accuracy", outcome.central_test_accuracy},
          {"rounds", options.rounds},
          {"rounds_committed", outcome.rounds_committed},
          {"sites", options.shape.sites},
          {"aggregators", options.shape.aggregators},
          {"codec", options.codec},
          {"down", options.down},
          {"model", options.model},
          {"seed", options.seed},
          {"seconds", outcome.seconds},
          {"bytes_up_total", static_cast<std::uint64_t>(outcome.bytes_up)},
          {"bytes_up_fp32_equivalent", static_cast<std::uint64_t>(outcome.bytes_up_fp32)},
          {"bytes_to_coordinator_total", static_cast<std::uint64_t>(outcome.bytes_to_coordinator)},
          {"mode", options.mode},
          {"late", options.late},
          {"contributions", outcome.contributions},
          {"late_updates", outcome.late_updates},
          {"old_updates", outcome.old_updates},
          {"model_sha256", outcome.model_sha256},
          {"site_model_sha256", std::move(site_models)},
          {"killed", std::move(killed)},
          {"disturbed_model_sha256", outcome.disturbed_sha256}};
}

std::string demo_summary(const DemoOptions& options, const DemoOutcome& outcome, const Terminal& terminal) {
  Table table({{""}, {"FEDERATED", Align::kRight}, {"CENTRAL", Align::kRight}});
  table.add({"test accuracy", terminal.green(format_percent(outcome.test_accuracy)),
             format_percent(outcome.central_test_accuracy)});
  table.add({"test loss", format_metric(outcome.test_loss), format_metric(outcome.central_test_loss)});
  table.add({"images leave their site", "no", "yes"});
  const char* const parents = options.shape.aggregators > 0 ? "aggregators" : "the coordinator";
  table.add({fmt::format("updates, sites to {}", parents), format_bytes(outcome.bytes_up), "-"});
  table.add({"the same in fp32", format_bytes(outcome.bytes_up_fp32), "-"});
  if (options.shape.aggregators > 0) {
    table.add({"sums, aggregators to the coordinator", format_bytes(outcome.bytes_to_coordinator), "-"});
  }
  std::size_t agreeing = 0;
  for (const std::string& digest : outcome.site_model_sha256) agreeing += digest == outcome.model_sha256 ? 1 : 0;
  const bool windows = options.mode == "async";
  std::string text =
      table.render(terminal) + fmt::format("\n{} {} in {}; {} of {} sites hold the committed model, sha256 {}..\n",
                                           outcome.rounds_committed, windows ? "windows" : "rounds",
                                           format_seconds(outcome.seconds), agreeing, options.shape.sites,
                                           outcome.model_sha256.substr(0, 16));
  if (outcome.old_updates + outcome.late_updates > 0) {
    text += fmt::format("of {} updates that were counted {} were made for an earlier {}, and count for less",
                        outcome.contributions, outcome.old_updates, windows ? "window" : "round");
    text += outcome.late_updates > 0 ? fmt::format("; {} times a site missed a round\n", outcome.late_updates) : "\n";
  }
  if (outcome.killed.empty()) return text;
  text += fmt::format("undisturbed                    sha256 {}\nwith {:<25} sha256 {}\n", outcome.model_sha256,
                      "kills in open rounds", outcome.disturbed_sha256);
  return text +
         (left_no_trace(outcome) ? terminal.green("the same model, bit for bit") : terminal.red("another model")) +
         fmt::format(" ({} killed)\n", fmt::join(outcome.killed, " and "));
}

std::string demo_pointers(const DemoOptions& options, const WorkFolder& folder, const Terminal& terminal) {
  std::string text = terminal.bold("Where to look next") + "\n";
  text += "  README.md                     what this is, and a federation of your own\n";
  text += "  docs/operations/              enrol a remote site; every setting, every key of plan.toml, every metric\n";
  text += "  fluvial demo --help           other models, codecs and sizes\n";
  text += folder.is_kept()
              ? fmt::format("  {}  logs, plan.toml, models and identities of this demo\n", folder.path())
              : "  fluvial demo --keep           leaves logs, plan.toml, models and identities to look at\n";
  if (!options.json.empty()) text += fmt::format("  {}  these figures\n", options.json);
  return text;
}

}  // namespace fluvial::cli
