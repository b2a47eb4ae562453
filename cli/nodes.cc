// fluvial nodes: who is in the federation.
#include <fmt/format.h>

#include <memory>

#include "cli/admin_client.h"
#include "cli/command.h"
#include "cli/format.h"
#include "cli/table.h"

namespace fluvial::cli {
namespace {

int list(const Io& io, const AdminOptions& options) {
  const auto nodes = options.client().get("/v1/nodes");
  if (!nodes.ok()) return fail(io, "nodes list", nodes.error());
  if (options.json) {
    io.print(pretty(*nodes));
    return kDone;
  }
  const Terminal terminal = io.terminal();
  Table table({{"ID", Align::kRight},
               {"NAME"},
               {"ROLE"},
               {"REGION"},
               {"PARENT"},
               {"STATE"},
               {"WEIGHT MAX", Align::kRight},
               {"ROUND P50", Align::kRight},
               {"ENROLLED"}});
  std::string reasons;
  std::string ahead_of_us;
  for (const json::value& node : array_member(*nodes, "nodes")) {
    std::string state = bool_member(node, "connected") ? terminal.green("connected") : terminal.yellow("away");
    if (bool_member(node, "quarantined")) {
      state = terminal.red("quarantined");
      reasons += text_member(node, "name") + ": " + text_member(node, "quarantine_reason") + "\n";
    }
    if (const std::string ahead = text_member(node, "ahead"); !ahead.empty()) {
      state = terminal.red("refused");
      ahead_of_us += text_member(node, "name") + ": " + ahead + "\n";
    }
    if (bool_member(node, "revoked")) state = terminal.red("revoked");
    const json::value* pace = node.is_object() ? node.as_object().if_contains("pace") : nullptr;
    const bool timed = pace != nullptr && pace->is_object();
    if (timed && bool_member(*pace, "straggler")) state += ", " + terminal.yellow("straggler");
    const std::string region = text_member(node, "region");
    const std::string parent = text_member(node, "parent");
    const std::uint64_t weight_max = count_member(node, "weight_max");
    table.add({std::to_string(count_member(node, "id")), text_member(node, "name"), text_member(node, "role"),
               region.empty() ? "-" : region, parent.empty() ? "-" : parent, state,
               weight_max == 0 ? "-" : format_count(weight_max),
               timed ? format_seconds(number_member(*pace, "p50_s", 0)) : "-",
               format_time(text_member(node, "enrolled_at"))});
  }
  io.print(table.empty() ? "no members yet; fluvial token create invites one\n" : table.render(terminal));
  if (!reasons.empty()) io.print("\nIn quarantine until `fluvial nodes clear NAME`:\n" + reasons);
  if (!ahead_of_us.empty()) io.print("\nRefused, because they know more than the coordinator:\n" + ahead_of_us);
  return kDone;
}

int revoke(const Io& io, const AdminOptions& options, const std::string& name) {
  const auto done = options.client().post("/v1/nodes/" + url_encoded(name) + "/revoke");
  if (!done.ok()) return fail(io, "nodes revoke", done.error());
  io.print(options.json ? pretty(*done) : fmt::format("{} is revoked: its sessions end and it cannot return\n", name));
  return kDone;
}

int clear(const Io& io, const AdminOptions& options, const std::string& name) {
  const auto done = options.client().post("/v1/nodes/" + url_encoded(name) + "/clear");
  if (!done.ok()) return fail(io, "nodes clear", done.error());
  io.print(options.json ? pretty(*done) : fmt::format("{} may take part again\n", name));
  return kDone;
}

}  // namespace

void add_node_commands(CLI::App& app, Commands& commands) {
  CLI::App* nodes = app.add_subcommand("nodes", "the federation's members");

  auto list_options = std::make_shared<AdminOptions>();
  CLI::App* listed = nodes->add_subcommand("list", "every member, its parent and whether it is connected");
  add_admin_options(*listed, *list_options);
  add_json_flag(*listed, *list_options);
  listed->callback([&commands, list_options] {
    commands.chosen = [&commands, list_options] { return list(commands.io, *list_options); };
  });

  auto clear_options = std::make_shared<AdminOptions>();
  auto cleared_name = std::make_shared<std::string>();
  CLI::App* cleared = nodes->add_subcommand("clear", "lift a site's quarantine");
  cleared->add_option("NAME", *cleared_name, "the site")->required();
  add_admin_options(*cleared, *clear_options);
  add_json_flag(*cleared, *clear_options);
  cleared->callback([&commands, clear_options, cleared_name] {
    commands.chosen = [&commands, clear_options, cleared_name] {
      return clear(commands.io, *clear_options, *cleared_name);
    };
  });

  auto revoke_options = std::make_shared<AdminOptions>();
  auto name = std::make_shared<std::string>();
  CLI::App* revoked = nodes->add_subcommand("revoke", "shut a member out, for good");
  revoked->add_option("NAME", *name, "the member")->required();
  add_admin_options(*revoked, *revoke_options);
  add_json_flag(*revoked, *revoke_options);
  revoked->callback([&commands, revoke_options, name] {
    commands.chosen = [&commands, revoke_options, name] { return revoke(commands.io, *revoke_options, *name); };
  });
}

}  // namespace fluvial::cli
