// fluvial operators: the people who use the admin API over the network.
#include <fmt/format.h>

#include <memory>

#include "cli/admin_client.h"
#include "cli/command.h"
#include "cli/format.h"
#include "cli/table.h"

namespace fluvial::cli {
namespace {

struct OperatorsOptions : AdminOptions {
  bool all = false;
};

int list_operators(const Io& io, const OperatorsOptions& options) {
  const auto operators = options.client().get(options.all ? "/v1/operators?all=1" : "/v1/operators");
  if (!operators.ok()) return fail(io, "operators list", operators.error());
  if (options.json) {
    io.print(pretty(*operators));
    return kDone;
  }
  const Terminal terminal = io.terminal();
  Table table(
      {{"ID", Align::kRight}, {"NAME"}, {"ACCESS"}, {"STATE"}, {"CERTIFICATE ENDS"}, {"LAST SEEN"}, {"ENROLLED"}});
  for (const json::value& person : array_member(*operators, "operators")) {
    const bool revoked = bool_member(person, "revoked");
    table.add({std::to_string(count_member(person, "id")), text_member(person, "name"), text_member(person, "access"),
               revoked ? terminal.red(bool_member(person, "removed") ? "removed" : "revoked") : terminal.green("valid"),
               format_time(text_member(person, "certificate_ends_at")),
               format_time(text_member(person, "last_seen_at")), format_time(text_member(person, "enrolled_at"))});
  }
  io.print(table.empty() ? "no operators; fluvial token create --role operator invites one\n" : table.render(terminal));
  return kDone;
}

}  // namespace

void add_operator_commands(CLI::App& app, Commands& commands) {
  CLI::App* operators = app.add_subcommand("operators", "the people at the admin API over the network");
  auto options = std::make_shared<OperatorsOptions>();
  CLI::App* listed = operators->add_subcommand("list", "every operator, and what each may do");
  listed->add_flag("--all", options->all, "also those that were removed");
  add_admin_options(*listed, *options);
  add_json_flag(*listed, *options);
  listed->footer(
      "An operator is no member of the tree. One is invited with fluvial token create --role operator, and shut out "
      "with\n"
      "fluvial nodes revoke NAME: at once, whatever it is doing. Ends and times are known since the coordinator "
      "started.");
  listed->callback([&commands, options] {
    commands.chosen = [&commands, options] { return list_operators(commands.io, *options); };
  });
}

}  // namespace fluvial::cli
